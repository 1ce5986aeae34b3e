//! Kernels for x86-64. Everything that needs an instruction set is private to this module and is
//! handed out only after that set was detected.

use trine_formats::types::TypeId;

use super::kernels::Kernels;
use crate::scalar::QuantizeAct;
use crate::{Isa, Level};

mod act;
mod ahead;
pub(crate) mod bitplane;
mod chain;
mod codes;
pub(crate) mod dense;
mod eighths;
pub(crate) mod elements;
mod encode;
pub(crate) mod exact;
mod float;
mod grouped;
mod lane_codes;
mod lanes;
mod packed;
mod panel;
mod points;
pub(crate) mod prefetch;
pub(crate) mod probe;
mod quantize;
mod quantize512;
mod rows;
mod simd;
pub(crate) mod ternary;
pub(crate) mod tiles;
mod wide;
pub(crate) mod widely;

#[cfg(test)]
pub(crate) use packed::software_layouts;

pub(super) const KERNELS: Kernels = Kernels {
    row_kernels: &[
        panel::ROW_KERNELS,
        lanes::ROW_KERNELS,
        points::ROW_KERNELS,
        eighths::ROW_KERNELS,
        float::ROW_KERNELS,
    ],
    layouts: packed::LAYOUTS,
    lookups: packed::LOOKUPS,
    quantize_act,
    decode_rows: encode::decode_rows,
    encode_rows: encode::encode_rows,
    compare_rows: encode::compare_rows,
};

/// The encoder of an activation type for an instruction set that the processor has.
fn quantize_act(act: TypeId, isa: Isa) -> Option<QuantizeAct> {
    match isa.vectors() {
        Level::Avx2 => quantize::encoder(act),
        Level::Avx512 => quantize512::encoder(act),
        _ => None,
    }
}
