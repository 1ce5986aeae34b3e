//! Kernels for 64-bit ARM.
//!
//! Loops over packed weights are generic over [`dot::Dot`], the sum of four products of bytes: an instruction of
//! [`crate::Level::Dotprod`], and a handful of [`crate::Level::Neon`]. Intrinsics of `SDOT` and `SMMLA` are not stable yet, so they
//! are written as assembly of one instruction each, which the compiler places and schedules like any other.

use super::kernels::Kernels;

mod dot;
mod encode;
mod packed;
mod simd;
pub(crate) mod widely;

use encode::{decode_rows, encode_rows, quantize_act};
use packed::{LAYOUTS, LOOKUPS};

/// Rows as files have them are multiplied, and compared, by the definitions.
pub(super) const KERNELS: Kernels =
    Kernels { layouts: LAYOUTS, lookups: LOOKUPS, quantize_act, decode_rows, encode_rows, ..Kernels::NONE };

/// A feature, and whether this processor has it.
macro_rules! detected {
    ($feature:tt) => {
        vec![($feature, std::arch::is_aarch64_feature_detected!($feature))]
    };
}
pub(crate) use detected;
