//! Kernels of the packed layouts, which are those of other processors byte for byte wherever ARM has a use for them.

use std::arch::aarch64::{float32x4_t, vst1q_f32};

use trine_formats::types::TypeId;

use crate::packed::Layout;
use crate::{Isa, Level};

mod block32;
mod half;
mod k16;
mod lanes;
mod q2_k;
mod q4_k;
mod t2;
mod t2_pairs;

/// Rows of a register.
const FOUR: usize = 4;

/// The layouts of a type that have kernels for an instruction set that the processor has, the best first.
pub(crate) fn layouts(ty: TypeId, isa: Isa) -> &'static [&'static Layout] {
    macro_rules! list {
        ($layout:path) => {{
            static LIST: &[&Layout] = &[&$layout];
            LIST
        }};
    }
    macro_rules! of {
        ($dot:ident) => {
            match ty {
                TypeId::TQ1_0 => list![t2::$dot::TQ1_0],
                TypeId::TQ2_0 => list![t2::$dot::TQ2_0],
                TypeId::I2_S => list![t2::$dot::I2_S],
                TypeId::TL1 | TypeId::TL2 => list![t2::$dot::TL],
                TypeId::Q8_0 => list![block32::$dot::Q8_0_X16],
                TypeId::Q4_0 => list![block32::$dot::Q4_0_X16],
                TypeId::Q4_1 => list![block32::$dot::Q4_1_X16],
                TypeId::Q5_0 => list![block32::$dot::Q5_0_X16],
                TypeId::Q5_1 => list![block32::$dot::Q5_1_X16],
                TypeId::IQ4_NL => list![block32::$dot::IQ4_NL_X16],
                TypeId::MXFP4 => list![block32::$dot::MXFP4_X16],
                TypeId::Q2_K => list![q2_k::$dot::Q2_K],
                TypeId::Q3_K => list![k16::Q3_K],
                TypeId::Q4_K => list![q4_k::$dot::Q4_K],
                TypeId::Q5_K => list![q4_k::$dot::Q5_K],
                TypeId::Q6_K => list![k16::Q6_K],
                TypeId::F16 => list![half::F16],
                TypeId::BF16 => list![half::BF16],
                _ => &[],
            }
        };
    }
    match (isa.vectors(), ty) {
        (Level::I8mm, TypeId::TQ1_0) => return list![t2_pairs::TQ1_0],
        (Level::I8mm, TypeId::TQ2_0) => return list![t2_pairs::TQ2_0],
        (Level::I8mm, TypeId::I2_S) => return list![t2_pairs::I2_S],
        (Level::I8mm, TypeId::TL1 | TypeId::TL2) => return list![t2_pairs::TL],
        _ => {}
    }
    match isa.vectors() {
        Level::Neon => of!(neon),
        Level::Dotprod | Level::I8mm => of!(dotprod),
        _ => &[],
    }
}

/// Writes the outputs of four rows.
#[inline]
#[target_feature(enable = "neon")]
fn store(out: &mut [f32], v: float32x4_t) {
    let out = &mut out[..FOUR];
    // SAFETY: `out` has four floats; the store asks for no alignment.
    unsafe { vst1q_f32(out.as_mut_ptr(), v) }
}

/// Asks for the `bytes` bytes that lie `ahead` bytes behind `p`; 0 asks for nothing.
#[inline(always)]
fn prefetch(p: *const u8, bytes: usize, ahead: usize) {
    if ahead > 0 {
        for line in (0..bytes).step_by(64) {
            super::dot::prefetch(p.wrapping_add(ahead + line));
        }
    }
}
