//! What an NVIDIA GPU needs to give the bits of trine's scalar definitions: where the elements of matrices lie in the
//! registers of a warp, how the blocks of GGUF files are laid out for them, which kernel runs on which grid, and the
//! kernels themselves as PTX.
//!
//! All of it is safe Rust that runs without a GPU, but for [`driver`], which asks NVIDIA's library for devices. Weights are moved,
//! never encoded again: a layout holds the codes and scales of the file in another order, so what a kernel multiplies is what the
//! file says.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod driver;
pub mod fast;
pub mod fragment;
pub mod pack;
pub mod plan;
pub mod ptx;
