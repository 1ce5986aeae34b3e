//! The numbers the pass computes with: `f32`, and `f64` to check it against differences.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

use crate::kernels::{Isa, gemm};
use crate::math;

/// A floating-point number.
pub trait Real:
    Copy
    + Default
    + Debug
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + 'static
{
    /// The nearest number.
    fn of(x: f64) -> Self;
    /// The same number.
    fn single(x: f32) -> Self {
        Self::of(x.into())
    }
    /// The same number.
    fn wide(self) -> f64;
    /// e^x.
    fn exp(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// A tile of a matrix product, see [`gemm::tile`].
    fn tile(isa: Isa, a: &[Self], b: &[Self]) -> gemm::Tile<Self>;
}

impl Real for f32 {
    #[inline(always)]
    fn of(x: f64) -> f32 {
        x as f32
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn exp(self) -> f32 {
        math::pexp(self)
    }
    fn tanh(self) -> f32 {
        math::tanhf(self)
    }
    #[inline(always)]
    fn tile(isa: Isa, a: &[f32], b: &[f32]) -> gemm::Tile<f32> {
        gemm::tile(isa, a, b)
    }
}

impl Real for f64 {
    fn of(x: f64) -> f64 {
        x
    }
    fn wide(self) -> f64 {
        self
    }
    fn exp(self) -> f64 {
        math::exp(self)
    }
    fn tanh(self) -> f64 {
        libm::tanh(self)
    }
    #[inline(always)]
    fn tile(isa: Isa, a: &[f64], b: &[f64]) -> gemm::Tile<f64> {
        gemm::tile_f64(isa, a, b)
    }
}
