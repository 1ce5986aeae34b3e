//! Registers of four rows: outputs, and prefetches beside them.

use std::arch::aarch64::{float32x4_t, vst1q_f32};

use crate::arch::halves::native;

/// Rows of a register.
pub(super) const FOUR: usize = 4;

/// Writes the outputs of four rows.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn store(out: &mut [f32], v: float32x4_t) {
    let out = &mut out[..FOUR];
    // SAFETY: `out` has four floats; the store asks for no alignment.
    unsafe { vst1q_f32(out.as_mut_ptr(), v) }
}

/// Prefetches the `bytes` bytes that lie `ahead` bytes behind `p`; an `ahead` of 0: nothing.
#[inline(always)]
pub(super) fn prefetch(p: *const u8, bytes: usize, ahead: usize) {
    if ahead > 0 {
        for line in (0..bytes).step_by(64) {
            native::prefetch(p.wrapping_add(ahead + line));
        }
    }
}
