//! K-quants with eight chains per row and one token, where there is `SDOT`.
//!
//! The sums of products that are to be multiplied by scales are all added to one register. After each addition it is
//! multiplied by what its scale exceeds the next by (summation by parts: of sums s, scales c and partial sums p, the
//! sum of c s is that of p times the difference of c and the next). So no sum has to begin at zero.

use std::arch::aarch64::*;

use super::k_tile::Scaled;
use super::lanes::{Acts, act_bytes, finish, start};
use super::prefetch;
use crate::shared::packed::k_quants::{BLOCK, CHAINS};

/// GEMV kernel of a type: products of one token.
pub(super) trait Once: Scaled {
    /// Scales of four rows of a block, as products take them.
    type Scales;
    /// Most tokens that take fewer instructions one after another than as a tile.
    const FEW: usize = 1;
    /// True if chains are taken without a loop. Where scales need half of the registers, the compiler would put them in
    /// memory.
    const UNROLLED: bool = true;

    /// Scales of rows `4 r .. 4 r + 4` of block `b`, and the factors of the rows' sums.
    ///
    /// # Safety
    /// The processor has `SDOT`; the group has block `b` and rows `4 r .. 4 r + 4`.
    unsafe fn scales(group: *const u8, b: usize, r: usize) -> (Self::Scales, float32x4_t);
    /// `minus`, less the minima times the sums of the activations.
    ///
    /// # Safety
    /// The processor has `SDOT`; the activations of the block are readable.
    unsafe fn subtract(scales: &Self::Scales, minus: float32x4_t, act: Acts) -> float32x4_t;
    /// The integer of a chain, of which `y` are the activations.
    ///
    /// # Safety
    /// The processor has `SDOT`; the part has rows `4 r .. 4 r + 4`.
    unsafe fn chain(scales: &Self::Scales, part: *const u8, r: usize, y: [int8x16_t; 2]) -> float32x4_t;
}

/// One token.
///
/// # Safety
/// The processor has `SDOT`; `check` has compared the lengths.
#[inline(always)]
pub(super) unsafe fn one<C: Once>(group: &[u8], act: &[u8], n: usize, ahead: usize, out: &mut [f32]) {
    // SAFETY: every block of the group and of the activations is there, as the caller has checked.
    unsafe {
        let mut tile = start::<1>();
        for b in 0..n / BLOCK {
            let act = Acts::new(act, act_bytes(n), b);
            let (start, bytes) = C::at(b);
            prefetch(group[start..].as_ptr(), bytes, ahead);
            for (r, token) in tile[0].iter_mut().enumerate() {
                let group = group.as_ptr();
                let (scales, d) = C::scales(group, b, r);
                let d = vmulq_n_f32(d, act.scale(0));
                token.minus = C::subtract(&scales, token.minus, act);
                let mut add = |l: usize| {
                    let sum = C::chain(&scales, C::part(group, b, l), r, act.quants(0, l));
                    token.chains[l] = vaddq_f32(token.chains[l], vmulq_f32(d, sum));
                };
                if C::UNROLLED {
                    unrolled!(l in 0..CHAINS { add(l) });
                } else {
                    (0..CHAINS).for_each(add);
                }
            }
        }
        finish(&tile, out);
    }
}
