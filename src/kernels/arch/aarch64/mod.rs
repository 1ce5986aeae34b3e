//! Kernels for 64-bit ARM.
//!
//! Loops over packed weights are generic over [`dot::Dot`], the sum of four products of bytes: an instruction of
//! [`Level::Dotprod`], and a handful of [`Level::Neon`]. Intrinsics of `SDOT` and `SMMLA` are not stable yet, so they
//! are written as assembly of one instruction each, which the compiler places and schedules like any other.

use crate::arch::rows::RowKernel;
use crate::scalar::CompareRows;
use crate::{Isa, Level};

mod dot;
mod encode;
pub(crate) mod halves;
mod packed;
mod simd;
pub(crate) mod widely;

pub(crate) use encode::{decode_rows, encode_rows, quantize_act};
pub(crate) use packed::layouts;

/// Rows as files have them are multiplied by the definitions.
pub(crate) fn row_kernels() -> impl Iterator<Item = &'static RowKernel> {
    std::iter::empty()
}

/// The comparison of rows is the definition.
pub(crate) fn compare_rows(_: Isa) -> Option<CompareRows> {
    None
}

/// Returns the features that an instruction set adds to its base; true for those that this processor has.
pub(crate) fn features(level: Level) -> Vec<(&'static str, bool)> {
    macro_rules! detected {
        ($feature:tt) => {
            vec![($feature, std::arch::is_aarch64_feature_detected!($feature))]
        };
    }
    match level {
        Level::Neon => detected!("neon"),
        Level::Dotprod => detected!("dotprod"),
        Level::I8mm => detected!("i8mm"),
        _ => vec![("x86-64", false)],
    }
}
