//! Parts of all encoders: the ends of a block, and integers made bytes.

use std::arch::aarch64::*;

use crate::arch::halves::native::narrow_numbers;

/// Floats of a register.
pub(super) const FOUR: usize = 4;

/// Four values.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn load(x: &[f32; FOUR]) -> float32x4_t {
    // SAFETY: four floats; no alignment is asked for.
    unsafe { vld1q_f32(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn store(to: &mut [u8; 16], v: uint8x16_t) {
    // SAFETY: sixteen bytes; no alignment is asked for.
    unsafe { vst1q_u8(to.as_mut_ptr(), v) }
}

/// Smallest and largest value, if all are finite. Of zeros with two signs any may be given.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn ends<const N: usize>(x: &[f32; N]) -> Option<(f32, f32)> {
    const { assert!(N > 0 && N.is_multiple_of(2 * FOUR)) };
    let fours = x.as_chunks::<FOUR>().0;
    // Two chains each, for the latency. A NaN goes through both kinds of instruction and is below nothing in the end.
    let mut lo = [load(&fours[0]), load(&fours[1])];
    let mut hi = lo;
    for two in fours[2..].as_chunks::<2>().0 {
        for (k, x) in two.iter().enumerate() {
            lo[k] = vminq_f32(lo[k], load(x));
            hi[k] = vmaxq_f32(hi[k], load(x));
        }
    }
    let lo = vminvq_f32(vminq_f32(lo[0], lo[1]));
    let hi = vmaxvq_f32(vmaxq_f32(hi[0], hi[1]));
    (lo > f32::NEG_INFINITY && hi < f32::INFINITY).then_some((lo, hi))
}

/// The largest magnitude of values between `lo` and `hi`, both of which are among them.
#[inline(always)]
pub(super) fn largest((lo, hi): (f32, f32)) -> f32 {
    lo.abs().max(hi.abs())
}

/// The first value of the largest magnitude, of values between `ends`, both of which are among them.
#[inline(always)]
pub(super) fn first_extreme(x: &[f32], ends: (f32, f32)) -> f32 {
    let (lo, hi) = (ends.0.abs(), ends.1.abs());
    if lo > hi {
        ends.0
    } else if hi > lo {
        ends.1
    } else {
        x.iter().copied().find(|v| v.abs() == hi).unwrap_or(ends.1)
    }
}

/// The low bytes of sixteen integers, in order.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn low_bytes(v: [int32x4_t; 4]) -> uint8x16_t {
    let words = v.map(|v| vreinterpretq_u16_s32(v));
    let low = vuzp1q_u16(words[0], words[1]);
    let high = vuzp1q_u16(words[2], words[3]);
    vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high))
}

/// Sixteen values times `factor`, made integers by `round`, as bytes.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn scaled(x: &[f32; 16], factor: f32, round: impl Fn(float32x4_t) -> int32x4_t) -> uint8x16_t {
    let mut integers = [vdupq_n_s32(0); 4];
    for (integer, x) in integers.iter_mut().zip(x.as_chunks::<FOUR>().0) {
        *integer = round(vmulq_n_f32(load(x), factor));
    }
    low_bytes(integers)
}

/// The nearest half float, of anything but a NaN.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn f16_bytes(x: f32) -> [u8; 2] {
    vget_lane_u16::<0>(narrow_numbers(vdupq_n_f32(x))).to_le_bytes()
}
