//! Any-precision files of small synthetic models: their contents, their sizes, and refusals.

mod footprint;
mod inputs;
mod model;
mod output;
