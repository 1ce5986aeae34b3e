//! The two ways to compute products, and their activations.

use trine_formats::widely::{CHUNK, Shape};

use super::act;
use crate::Isa;
use crate::proof::compiled_for_avx2;

/// How products are computed; the two are different definitions and give different bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Path {
    /// Single precision, [`trine_formats::widely::product_row`].
    #[default]
    Exact,
    /// 8-bit activations, [`trine_formats::widely::int8`].
    Int8,
}

impl Path {
    /// Bytes of a row of activations, a multiple of 64.
    pub fn act_bytes(self, shape: &Shape) -> usize {
        match self {
            Path::Exact => 2 * 4 * CHUNK * shape.chunks(),
            Path::Int8 => act::int8_bytes(shape),
        }
    }

    /// Arranges a row of activations, real parts and then imaginary parts, for all forms of the path.
    ///
    /// # Panics
    /// When a length does not fit the shape.
    pub fn arrange(self, isa: Isa, shape: &Shape, x: &[f32], out: &mut [u8]) {
        assert_eq!(x.len(), 2 * shape.columns, "activations");
        assert_eq!(out.len(), self.act_bytes(shape), "activation row");
        let path = self;
        compiled_for_avx2!(fma, isa, arrange(path: Path, shape: &Shape, x: &[f32], out: &mut [u8]), arrange);
    }
}

#[inline(always)]
fn arrange(path: Path, shape: &Shape, x: &[f32], out: &mut [u8]) {
    match path {
        Path::Exact => act::arrange_floats(shape, x, out),
        Path::Int8 => act::arrange_bytes(shape, x, out),
    }
}
