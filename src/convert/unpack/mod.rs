//! Quantized matrices of checkpoints, as the 32-bit floats that they stand for.
//!
//! `quantized::all` replaces the tensors of a quantized matrix by one of floats, whose bytes are made when they are read.
//! The rest of the converter sees an ordinary tensor. What a code is worth is the definition of the method that wrote
//! it, in the order of llama.cpp's converter where that has one: codes less zeros are whole numbers, and a product with
//! a scale is rounded once.

pub(super) mod codes;
pub(super) mod float8;
pub(super) mod form;
