//! Kernels for NVIDIA GPUs without a GPU: the emulator of PTX, the checked-in PTX, and the bits that it computes.
#![allow(missing_docs)]

mod emulator;
mod halves;
mod manifest;
mod mistakes;
mod product;
mod products;
