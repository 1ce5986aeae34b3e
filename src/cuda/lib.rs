//! Support for NVIDIA GPUs with the bits of trine's scalar definitions: where the elements of matrices lie in the
//! registers of a warp, how the blocks of GGUF files are laid out for them, which kernel runs on which grid, the
//! kernels themselves as PTX, and a model's forward pass as a list of launches.
//!
//! All of it is safe Rust that runs without a GPU, but for [`driver`], which asks NVIDIA's library for devices; [`run`]
//! carries launches out on whatever implements [`device::Device`]. Weights are moved, never encoded again: a layout
//! holds the codes and scales of the file in another order, so what a kernel multiplies is what the file says.

#![deny(unsafe_code)]

pub mod device;
#[allow(unsafe_code)]
pub mod driver;
pub mod fast;
pub mod floats;
pub mod fragment;
pub mod integers;
pub mod pack;
pub mod plan;
pub mod planes;
pub mod program;
pub mod ptx;
pub mod run;
