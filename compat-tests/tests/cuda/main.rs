//! Kernels for NVIDIA GPUs without a GPU: the emulator of PTX, the checked-in PTX, and the bits that it computes.
#![allow(missing_docs)]

mod archs;
mod check;
mod emulator;
mod experts;
mod halves;
#[path = "../../../tests/archs/listing.rs"]
#[allow(dead_code, reason = "the models of tests/archs, which asks for more of them")]
mod listing;
mod manifest;
mod mistakes;
mod model;
mod ops;
mod product;
mod products;
mod sparse;
#[path = "../../../tests/archs/weights.rs"]
mod weights;
