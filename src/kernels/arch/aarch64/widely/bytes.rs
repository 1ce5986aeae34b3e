//! Sixteen rows with 8-bit activations: a code's factors on the real and on the imaginary axis, -1, 0 or 1, are looked
//! up by four bits, two codes, at once.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by axis, part and four rows alike")]

use std::arch::aarch64::*;

use super::super::dot::{Dot, load};
use crate::proof::{Dotprod, Neon};
use crate::shared::widely::{BLOCK_BYTES, BLOCK_CHUNKS, Block, CHUNK_BYTES, ROWS, Unit, by_blocks};

/// For each code its factor on an axis: real, imaginary.
const FACTORS: [[i8; 4]; 2] = [[-1, 1, 0, 0], [0, 0, -1, 1]];

/// Factors by four bits, of the lower or of the upper code.
const fn table(axis: usize, upper: bool) -> [i8; 16] {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = FACTORS[axis][if upper { i >> 2 } else { i & 3 }];
        i += 1;
    }
    table
}

/// The tables, `[lower, upper][real, imaginary]`.
const TABLES: [[[i8; 16]; 2]; 2] = [[table(0, false), table(1, false)], [table(0, true), table(1, true)]];

/// The products of a unit and one row of activations.
///
/// # Safety
/// The processor has NEON, and the lengths fit.
#[target_feature(enable = "neon")]
pub(super) unsafe fn multiply_neon(unit: &Unit<'_>, acts: &[u8], out: &mut [[f32; ROWS]; 2]) {
    // SAFETY: as the caller says.
    unsafe { multiply::<Neon>(unit, acts, out) }
}

/// The same by `SDOT`.
///
/// # Safety
/// The processor has NEON and `SDOT`, and the lengths fit.
#[target_feature(enable = "neon,dotprod")]
pub(super) unsafe fn multiply_dotprod(unit: &Unit<'_>, acts: &[u8], out: &mut [[f32; ROWS]; 2]) {
    // SAFETY: as the caller says.
    unsafe { multiply::<Dotprod>(unit, acts, out) }
}

/// # Safety
/// The processor has NEON and the instructions of `D`, and the lengths fit.
#[inline(always)]
unsafe fn multiply<D: Dot>(unit: &Unit<'_>, acts: &[u8], out: &mut [[f32; ROWS]; 2]) {
    by_blocks(unit, acts, out, |codes, x, sums| {
        // SAFETY: the caller says that the instructions are there.
        unsafe { stream_of_block::<D>(codes, x, sums) }
    });
}

/// The rows of a block of one stream, four at a time.
///
/// # Safety
/// The processor has NEON and the instructions of `D`.
#[inline(always)]
unsafe fn stream_of_block<D: Dot>(codes: &[u8; BLOCK_BYTES], x: &Block<'_>, sums: &mut [[f32; ROWS]; 4]) {
    // SAFETY: the caller says that the instructions are there; a block of codes has four chunks of 64 bytes, a block
    // has 64 real and 64 imaginary parts, and tables have sixteen bytes.
    unsafe {
        let tables = TABLES.map(|axes| axes.map(|table| vld1q_s8(table.as_ptr())));
        // rr, ri, ir, ii, each of four times four rows
        let mut integers = [[vdupq_n_s32(0); 4]; 4];
        for chunk in 0..BLOCK_CHUNKS {
            let x = [0, 64].map(|part| load(x.ints.as_ptr().add(part + 16 * chunk)));
            for four in 0..4 {
                let bytes = codes.as_ptr().add(CHUNK_BYTES * chunk + 16 * four);
                let bytes = vreinterpretq_u8_s8(load(bytes));
                let halves = [vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8::<4>(bytes)];
                macro_rules! add {
                    ($($field:literal)*) => { $(
                        for axis in 0..2 {
                            let factors = vqtbl1q_s8(tables[$field % 2][axis], halves[$field / 2]);
                            for part in 0..2 {
                                let sum = &mut integers[2 * axis + part][four];
                                *sum = D::lane::<$field>(*sum, factors, x[part]);
                            }
                        }
                    )* };
                }
                add!(0 1 2 3);
            }
        }
        for (k, (integers, sums)) in integers.into_iter().zip(sums).enumerate() {
            let scale = vdupq_n_f32(x.scales[k % 2]);
            for (integers, sums) in integers.into_iter().zip(sums.as_chunks_mut::<4>().0) {
                let product = vmulq_f32(scale, vcvtq_f32_s32(integers));
                let sum = vaddq_f32(vld1q_f32(sums.as_ptr()), product);
                vst1q_f32(sums.as_mut_ptr(), sum);
            }
        }
    }
}
