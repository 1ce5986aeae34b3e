//! Kernels of the packed layouts, which are those of other processors byte for byte wherever ARM has a use for them.

use std::arch::aarch64::{float32x4_t, vst1q_f32};

use trine_formats::types::TypeId;

use crate::packed::Layout;
use crate::{Isa, Level};

/// `$body` for `$i` from 0 on, up to eight times: what is left of it is no loop, so that arrays become registers however long it is.
macro_rules! unrolled {
    ($i:ident in 0..$n:ident $body:block) => {
        unrolled!($i, $n, $body, 0 1 2 3 4 5 6 7)
    };
    ($i:ident, $n:ident, $body:block, $($at:literal)*) => {
        const { assert!($n <= 8) };
        $(if $at < $n {
            let $i = $at;
            $body
        })*
    };
}

mod block32;
mod block32_tile;
mod half;
mod k16;
mod k16_scaled;
mod k_tile;
mod lanes;
mod pair;
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
    // The modules of an instruction set: of ternary codes, of Q2_K and of the others.
    macro_rules! of {
        ($($ternary:ident)::+, $k16:ident$(::$level:ident)?, $dot:ident, $best:ident) => {
            match ty {
                TypeId::TQ1_0 => list![$($ternary)::+::TQ1_0],
                TypeId::TQ2_0 => list![$($ternary)::+::TQ2_0],
                TypeId::I2_S => list![$($ternary)::+::I2_S],
                TypeId::TL1 | TypeId::TL2 => list![$($ternary)::+::TL],
                TypeId::Q8_0 => list![block32::$best::Q8_0_X16],
                TypeId::Q4_0 => list![block32::$best::Q4_0_X16],
                TypeId::Q4_1 => list![block32::$best::Q4_1_X16],
                TypeId::Q5_0 => list![block32::$best::Q5_0_X16],
                TypeId::Q5_1 => list![block32::$best::Q5_1_X16],
                TypeId::IQ4_NL => list![block32::$best::IQ4_NL_X16],
                TypeId::MXFP4 => list![block32::$best::MXFP4_X16],
                TypeId::Q2_K => list![q2_k::$dot::Q2_K],
                TypeId::Q3_K => list![$k16$(::$level)?::Q3_K],
                TypeId::Q4_K => list![q4_k::$best::Q4_K],
                TypeId::Q5_K => list![q4_k::$best::Q5_K],
                TypeId::Q6_K => list![$k16$(::$level)?::Q6_K],
                TypeId::F16 => list![half::F16],
                TypeId::BF16 => list![half::BF16],
                _ => &[],
            }
        };
    }
    match isa.vectors() {
        Level::Neon => of!(t2::neon, k16, neon, neon),
        Level::Dotprod => of!(t2::dotprod, k16_scaled::dotprod, dotprod, dotprod),
        Level::I8mm => of!(t2_pairs, k16_scaled::i8mm, dotprod, i8mm),
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
