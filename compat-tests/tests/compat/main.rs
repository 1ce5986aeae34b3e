//! trine against the reference programs and libraries, and the inputs that mean no good. One program for all, so that
//! the crates below are linked once and a long test has others beside it.
#![allow(missing_docs)]

mod codecs;
mod dots;
mod fairy2i;
mod gguf_py;
mod gguf_rs;
mod golden_models;
mod golden_quantize;
mod hostile;
