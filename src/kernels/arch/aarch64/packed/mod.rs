//! Kernels of the packed layouts, which are those of other processors byte for byte wherever ARM has a use for them.

use std::arch::aarch64::{float32x4_t, vst1q_f32};

use trine_formats::types::TypeId;

use crate::packed::Layout;
use crate::{Isa, Level};

/// `$body` for `$i` from 0 on, up to eight times: what is left of it is no loop, so that arrays become registers
/// however long it is.
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
mod k16_dotprod;
mod k_one;
mod k_tile;
mod lanes;
mod pair;
mod q2_k;
mod q4_k;
mod q4_k_dotprod;
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
    // Of the modules that are in scope where it stands.
    macro_rules! kernels {
        () => {
            match ty {
                TypeId::TQ1_0 => list![ternary::TQ1_0],
                TypeId::TQ2_0 => list![ternary::TQ2_0],
                TypeId::I2_S => list![ternary::I2_S],
                TypeId::TL1 | TypeId::TL2 => list![ternary::TL],
                TypeId::Q8_0 => list![block32::Q8_0_X16],
                TypeId::Q4_0 => list![block32::Q4_0_X16],
                TypeId::Q4_1 => list![block32::Q4_1_X16],
                TypeId::Q5_0 => list![block32::Q5_0_X16],
                TypeId::Q5_1 => list![block32::Q5_1_X16],
                TypeId::IQ4_NL => list![block32::IQ4_NL_X16],
                TypeId::MXFP4 => list![block32::MXFP4_X16],
                TypeId::Q2_K => list![q2_k::Q2_K],
                TypeId::Q3_K => list![k16::Q3_K],
                TypeId::Q4_K => list![q4_k::Q4_K],
                TypeId::Q5_K => list![q4_k::Q5_K],
                TypeId::Q6_K => list![k16::Q6_K],
                TypeId::F16 => list![half::F16],
                TypeId::BF16 => list![half::BF16],
                _ => &[],
            }
        };
    }
    match isa.vectors() {
        Level::Neon => {
            use self::{block32::neon as block32, q2_k::neon as q2_k, t2::neon as ternary};
            kernels!()
        }
        Level::Dotprod => {
            use self::{block32::dotprod as block32, q2_k::dotprod as q2_k};
            use self::{k16_dotprod::dotprod as k16, q4_k_dotprod::dotprod as q4_k};
            use t2::dotprod as ternary;
            kernels!()
        }
        Level::I8mm => {
            use self::{block32::i8mm as block32, q2_k::dotprod as q2_k};
            use self::{k16_dotprod::i8mm as k16, q4_k_dotprod::i8mm as q4_k};
            use t2_pairs as ternary;
            kernels!()
        }
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
