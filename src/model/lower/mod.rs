//! A description and a file's tensors become a program.
//!
//! Every part of a block says what it computes, operation by operation, while its tensors are loaded. What a description
//! does not list is absent; nothing is decided by an architecture's name.

mod attention;
mod block;
mod compressed;
mod delta;
mod drafter;
mod encoder;
mod experts;
mod feed_forward;
mod head;
mod key_parts;
mod latent;
mod lowering;
mod mamba;
mod model;
mod mtp;
mod ngrams;
mod predicted;
mod recurrent;
mod rotated;
mod rwkv;
mod streams;
mod switched;

pub use lowering::{Lowered, Lowering};
