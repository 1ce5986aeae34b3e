//! Quantized matrices of checkpoints, as the 32-bit floats that they stand for.
//!
//! [`find::all`] replaces the tensors of a quantized matrix by one of floats, whose bytes are made when they are read.
//! The rest of the converter sees an ordinary tensor. What a code is worth is the definition of the method that wrote
//! it, in the order of llama.cpp's converter where that has one: codes less zeros are whole numbers, and a product with
//! a scale is rounded once.

mod codes;
pub(super) mod find;
mod float8;
pub(super) mod form;
