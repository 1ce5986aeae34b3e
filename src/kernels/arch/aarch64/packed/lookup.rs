//! Tables of sums, looked up by `TBL`: the products of [`crate::arch::packed::lookup`], 16 rows to a group.

use std::arch::aarch64::*;

use super::prefetch;
use crate::arch::packed::lookup::{Bytes, MOST, lookups};
use crate::proof::{Neon, Proof};
use crate::shared::packed::lookup::{Bitwise, Quaternary, Tl1, Tl2};
use crate::shared::packed::{Call, Layout};

lookups! { Neon, 16, "neon",
    TL1: Tl1;
    TL2: Tl2;
    QUATERNARY: Quaternary;
    BITWISE: Bitwise;
}

impl Bytes for Neon {
    const ROWS: usize = 16;
    type Vector = uint8x16_t;
    type Words = [int16x8_t; 2];

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load(p: *const u8) -> uint8x16_t {
        // SAFETY: the caller's 16 bytes.
        unsafe { vld1q_u8(p) }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn table(p: *const u8) -> uint8x16_t {
        // SAFETY: the caller's 16 bytes.
        unsafe { vld1q_u8(p) }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn nibbles(v: uint8x16_t) -> [uint8x16_t; 2] {
        [vandq_u8(v, vdupq_n_u8(15)), vshrq_n_u8::<4>(v)]
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn negative(signs: uint8x16_t) -> uint8x16_t {
        vcltzq_s8(vreinterpretq_s8_u8(signs))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn find(table: uint8x16_t, index: uint8x16_t, flip: Option<uint8x16_t>) -> uint8x16_t {
        let entry = vqtbl1q_u8(table, index);
        match flip {
            Some(flip) => veorq_u8(entry, flip),
            None => entry,
        }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn add(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        vaddq_u8(a, b)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn join([a, b]: [int16x8_t; 2], low: uint8x16_t, high: uint8x16_t, factor: i8) -> [int16x8_t; 2] {
        let (low, high) = (vreinterpretq_s8_u8(low), vreinterpretq_s8_u8(high));
        let (one, many) = (vdupq_n_s8(factor), vdupq_n_s8(32 * factor));
        [
            vmlal_s8(vmlal_s8(a, vget_low_s8(low), vget_low_s8(one)), vget_low_s8(high), vget_low_s8(many)),
            vmlal_high_s8(vmlal_high_s8(b, low, one), high, many),
        ]
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn zero() -> [int16x8_t; 2] {
        [vdupq_n_s16(0); 2]
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn spill([a, b]: [int16x8_t; 2], sums: &mut [i32; MOST]) {
        let words = [vget_low_s16(a), vget_high_s16(a), vget_low_s16(b), vget_high_s16(b)];
        for (words, sums) in words.into_iter().zip(sums.as_chunks_mut::<4>().0) {
            // SAFETY: four sums.
            unsafe { vst1q_s32(sums.as_mut_ptr(), vaddw_s16(vld1q_s32(sums.as_ptr()), words)) };
        }
    }

    #[inline(always)]
    fn prefetch(p: *const u8, bytes: usize, ahead: usize) {
        prefetch(p, bytes, ahead);
    }
}
