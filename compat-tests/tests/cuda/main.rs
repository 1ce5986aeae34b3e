//! Kernels for NVIDIA GPUs without a GPU: the emulator of PTX, the checked-in PTX, and the bits that it computes.
#![allow(missing_docs)]

mod added;
mod anyprec;
mod archs;
mod check;
mod counts;
mod devices;
mod emulator;
mod experts;
mod halves;
mod integers;
mod manifest;
mod mistakes;
mod model;
mod ops;
mod product;
mod products;
mod rows;
mod sparse;
mod states;
