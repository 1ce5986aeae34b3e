//! Any-precision files of small made-up models: what is in them, how large they are, and what is refused.

mod footprint;
mod inputs;
mod model;
mod output;
