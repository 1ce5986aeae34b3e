//! Kernels of the packed layouts, which are those of other processors byte for byte; only activations are arranged for
//! what multiplies here.

use crate::shared::packed::Layout;

mod block32;
mod dot;
mod half;
mod k16;
mod k32;
mod k_quants;
mod t2;

/// All packed layouts.
pub(super) const LAYOUTS: &[&[Layout]] = &[t2::LAYOUTS, block32::LAYOUTS, k32::LAYOUTS, k16::LAYOUTS, half::LAYOUTS];
