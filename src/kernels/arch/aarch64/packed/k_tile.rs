//! K-quants with eight chains per row and many tokens: each weight is multiplied by its scale once for all of them.
//!
//! The product of a code and its scale is a byte, or two limbs of a byte each. So the 32 elements that a chain has in a
//! block are one sum of products of bytes, or two of them, and no scale is met again: neither sums of four products nor
//! those of eight stop where a scale ends.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by row, chain and pair alike")]

use std::arch::aarch64::*;

use super::super::dot::{load, multiply};
use super::lanes::{Acts, FOURS, act_bytes};
use super::pair::{Columns, Floats, Pair, Weights};
use super::{FOUR, prefetch, store};
use crate::arch::functions::unsafe_functions;
use crate::shared::packed::k_quants::{BLOCK, CHAINS, ROWS};

/// Tokens of a call, whose chains stay in the first-level cache.
pub(super) const TOKENS: usize = 16;
const PAIRS: usize = TOKENS / 2;

/// A type whose weights are multiplied by their scales.
pub(super) trait Scaled {
    /// The head of four rows of a block.
    type Head;
    /// True if there are two limbs.
    const TWO: bool;
    /// True if there are minima.
    const MINIMA: bool;

    /// Bytes that are read one block after another, of block b: where they start, and how many.
    fn at(b: usize) -> (usize, usize);
    /// Where the part of chain `l` is in block `b` of a group.
    fn part(group: *const u8, b: usize, l: usize) -> *const u8;

    unsafe_functions! { "The processor has NEON.";
        /// The head of block `b` of a group, rows `4 r .. 4 r + 4`.
        head(group: *const u8, b: usize, r: usize) -> Self::Head: "The group has block `b` and rows `4 r .. 4 r + 4`.";
        /// Factors of the sums.
        d(head: &Self::Head) -> float32x4_t;
        /// The minima, units 0 to 3 and 4 to 7 in the bytes of a row, and what their sum is multiplied by.
        minima(head: &Self::Head) -> ([int8x16_t; 2], float32x4_t);
        /// The weights of a part times their scales, unit by unit: the upper limbs, which count for nothing where there
        /// are none, and the lower ones.
        limbs(head: &Self::Head, part: *const u8, r: usize) -> [Weights; 2]: "The part has rows `4 r .. 4 r + 4`.";
        /// Sums of upper limbs, as many times as large as the lower limb makes them.
        raise(sum: int32x4_t) -> int32x4_t;
        /// A sum, which is as many times too large as the weights were made.
        float(sum: int32x4_t) -> float32x4_t;
    }
}

/// Codes times scales as two limbs, the upper of which counts 256.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn limbs(codes: &Weights, scales: &Weights) -> [Weights; 2] {
    let mut limbs = [[vdupq_n_s8(0); 8]; 2];
    for s in 0..8 {
        [limbs[0][s], limbs[1][s]] = multiply(codes[s], scales[s]);
    }
    limbs
}

/// The scales of some groups, one of four to a byte of a row's dword, side by side for each of the 16 bytes that `at`
/// names.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn spread(scales: int8x16_t, at: [u8; 4]) -> int8x16_t {
    let places = vreinterpretq_u8_u32(vdupq_n_u32(u32::from_le_bytes(at)));
    // SAFETY: 16 bytes.
    let rows = vreinterpretq_u8_s8(unsafe { load([0, 4, 8, 12].map(|at| [at; 4]).as_flattened().as_ptr()) });
    vqtbl1q_s8(scales, vaddq_u8(rows, places))
}

/// Products of the tokens that `out` has room for, [`TOKENS`] at most.
///
/// # Safety
/// The processor has the instructions of `P`; `check` has compared the lengths.
#[inline(always)]
pub(super) unsafe fn tile<P: Pair, C: Scaled>(group: &[u8], acts: &[u8], n: usize, ahead: usize, out: &mut [f32]) {
    let tokens = out.len() / ROWS;
    let pairs = tokens.div_ceil(2);
    // The last token stands for one that is not there.
    let pair = |p: usize| [2 * p, 2 * p + 1].map(|t| t.min(tokens - 1));
    // SAFETY: every block of the group and of the activations is there, as the caller has checked; numbers without a
    // bit are zero.
    unsafe {
        // As bytes: the compiler would store register by register.
        let mut y: [[Columns; CHAINS]; PAIRS] = std::mem::zeroed();
        let mut act_sums: [Columns; PAIRS] = std::mem::zeroed();
        let mut dy = [P::by_token::<0>([vdupq_n_f32(0.0); 2]); PAIRS];
        let mut d: [Floats; PAIRS] = std::mem::zeroed();
        let mut chains: [[[Floats; PAIRS]; CHAINS]; FOURS] = std::mem::zeroed();
        let mut minus: [[Floats; PAIRS]; FOURS] = std::mem::zeroed();
        for b in 0..n / BLOCK {
            let (start, bytes) = C::at(b);
            prefetch(group[start..].as_ptr(), bytes, ahead);
            let acts = Acts::new(acts, act_bytes(n), b);
            for p in 0..pairs {
                let [s, t] = pair(p);
                for l in 0..CHAINS {
                    y[p][l] = P::columns(acts.quants(s, l), acts.quants(t, l));
                }
                dy[p] = P::by_token::<0>([s, t].map(|t| vdupq_n_f32(acts.scale(t))));
                if C::MINIMA {
                    act_sums[p] = P::columns(acts.limbs(s), acts.limbs(t));
                }
            }
            let group = group.as_ptr();
            for r in 0..FOURS {
                let head = C::head(group, b, r);
                let dw = P::by_row(C::d(&head));
                let (mins, dmin) = C::minima(&head);
                let (mins, dmin) = (P::weights(mins), P::by_row(dmin));
                for p in 0..pairs {
                    let dy = dy[p];
                    d[p] = [P::times(dw[0], dy, 0), P::times(dw[1], dy, 1)];
                    if C::MINIMA {
                        let terms = minima::<P>(mins, &act_sums[p]);
                        for i in 0..2 {
                            let term = vmulq_f32(P::times(dmin[i], dy, i), terms[i]);
                            minus[r][p][i] = vsubq_f32(minus[r][p][i], term);
                        }
                    }
                }
                for l in 0..CHAINS {
                    let w = C::limbs(&head, C::part(group, b, l), r).map(|w| P::all_weights(w));
                    // Two at a time: what keeps a loop going would be a tenth of it.
                    let (y, last_y) = y[..pairs].as_chunks::<2>();
                    let (d, last_d) = d[..pairs].as_chunks::<2>();
                    let (chains, last_chain) = chains[r][l][..pairs].as_chunks_mut::<2>();
                    for ((chains, d), y) in chains.iter_mut().zip(d).zip(y) {
                        step::<P, C>(&mut chains[0], &d[0], &w, &y[0][l]);
                        step::<P, C>(&mut chains[1], &d[1], &w, &y[1][l]);
                    }
                    if let ([y], [d], [chain]) = (last_y, last_d, last_chain) {
                        step::<P, C>(chain, d, &w, &y[l]);
                    }
                }
            }
        }
        for r in 0..FOURS {
            for p in 0..pairs {
                let mut sums = minus[r][p];
                for l in 0..CHAINS {
                    for i in 0..2 {
                        sums[i] = vaddq_f32(sums[i], chains[r][l][p][i]);
                    }
                }
                for (i, sum) in P::apart(sums).into_iter().enumerate() {
                    if 2 * p + i < tokens {
                        store(&mut out[ROWS * (2 * p + i) + FOUR * r..], sum);
                    }
                }
            }
        }
    }
}

/// The minima of a block times the sums of two tokens' activations, of which `sums` are the limbs.
///
/// # Safety
/// The processor has the instructions of `P`.
#[inline(always)]
unsafe fn minima<P: Pair>(mins: [int8x16_t; 2], sums: &Columns) -> Floats {
    // SAFETY: the caller's promise.
    unsafe {
        let raise = |sum| vshlq_n_s32::<8>(sum);
        let all = P::add::<0>([vdupq_n_s32(0); 2], mins, sums);
        let all = P::add::<1>(all.map(raise), mins, sums);
        P::add::<2>(all.map(raise), mins, sums).map(|sum| vcvtq_f32_s32(sum))
    }
}

/// Adds the terms of a block to the chains of four rows and two tokens.
///
/// # Safety
/// The processor has the instructions of `P`.
#[inline(always)]
unsafe fn step<P: Pair, C: Scaled>(chain: &mut Floats, d: &Floats, [upper, lower]: &[Weights; 2], y: &Columns) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [vdupq_n_s32(0); 2];
        if C::TWO {
            sums = P::add_all(sums, upper, y).map(|sum| C::raise(sum));
        }
        let sums = P::add_all(sums, lower, y);
        for i in 0..2 {
            chain[i] = vaddq_f32(chain[i], vmulq_f32(d[i], C::float(sums[i])));
        }
    }
}
