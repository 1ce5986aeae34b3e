//! The parts of a block of [`super::block32`] for four rows.

use std::arch::aarch64::*;

use super::super::dot::{halves, load};
use super::FOUR;
use super::pair::Weights;
use crate::shared::packed::block32::{Block32, ROWS};

/// The codes of rows `4 r .. 4 r + 4` of a block: dword k of each in register k.
///
/// # Safety
/// The block is readable.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn unpack<B: Block32>(block: *const u8, r: usize) -> Weights {
    let mut codes = [vdupq_n_s8(0); 8];
    let nibble = vdupq_n_u8(15);
    for g in 0..B::LINES {
        // SAFETY: a packed block has `LINES` lines of 64 bytes.
        let line = unsafe { load(block.add(B::LINES_START + 64 * g + 4 * FOUR * r)) };
        if B::LINES == 8 {
            codes[g] = line;
        } else {
            let line = vreinterpretq_u8_s8(line);
            codes[g] = vreinterpretq_s8_u8(vandq_u8(line, nibble));
            codes[g + 4] = vreinterpretq_s8_u8(vshrq_n_u8::<4>(line));
        }
    }
    if let Some(table) = B::TABLE {
        // SAFETY: a table of 16 bytes.
        let table = unsafe { load(table.as_ptr()) };
        for c in &mut codes {
            *c = vqtbl1q_s8(table, vreinterpretq_u8_s8(*c));
        }
    }
    if B::FIFTH_AT.is_some() {
        // SAFETY: a packed block with fifth bits has 64 bytes of them.
        let fifth = unsafe { load(block.add(B::MASKS_START + 4 * FOUR * r)) };
        let fifth = vreinterpretq_u8_s8(fifth);
        for (g, c) in codes.iter_mut().enumerate() {
            let place = vshlq_u8(fifth, vdupq_n_s8(4 - g as i8));
            let bit = vandq_u8(place, vdupq_n_u8(16));
            *c = vorrq_s8(*c, vreinterpretq_s8_u8(bit));
        }
    }
    codes
}

/// The scales of rows `4 r .. 4 r + 4`.
///
/// # Safety
/// The block is readable.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn scales<B: Block32>(block: *const u8, r: usize) -> float32x4_t {
    // SAFETY: a packed block starts with 16 scales.
    let at = unsafe { block.add(B::SCALE_BYTES * FOUR * r) };
    if B::SCALE_BYTES == 2 {
        // SAFETY: four half floats.
        return unsafe { halves(at) };
    }
    if B::SCALE_BYTES == 4 {
        // SAFETY: four floats.
        return unsafe { vld1q_f32(at.cast()) };
    }
    // Half of 2^(e - 127) as bits; the two smallest are denormal.
    // SAFETY: four exponents.
    let e = unsafe { at.cast::<u32>().read_unaligned() };
    let e = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(e)));
    let e = vmovl_u16(vget_low_u16(e));
    let normal = vshlq_n_u32::<23>(vsubq_u32(e, vdupq_n_u32(1)));
    let denormal = vshlq_u32(vdupq_n_u32(0x0020_0000), vreinterpretq_s32_u32(e));
    let small = vcltq_u32(e, vdupq_n_u32(2));
    vreinterpretq_f32_u32(vbslq_u32(small, denormal, normal))
}

/// The offsets of rows `4 r .. 4 r + 4`, zero where a type has none.
///
/// # Safety
/// The block is readable.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn offsets<B: Block32>(block: *const u8, r: usize) -> float32x4_t {
    if B::OFFSETS == 0 {
        return vdupq_n_f32(0.0);
    }
    // SAFETY: 16 offsets stand behind the scales.
    unsafe { halves(block.add(B::SCALE_BYTES * ROWS + 2 * FOUR * r)) }
}
