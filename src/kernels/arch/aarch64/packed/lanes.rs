//! Parts of all K-quants with eight chains per row on ARM: four rows are the lanes of a register, and a group's 16 rows
//! are walked four by four within each block.

use std::arch::aarch64::*;

use trine_formats::types::{Part, TypeId, info};

use super::super::dot::load;
use super::{FOUR, store};
use crate::Isa;
use crate::shared::packed::Arranged;
use crate::shared::packed::k_quants::{BLOCK, CHAINS, Q8_K, ROWS};

/// Tokens of a call, whose chains stay in the first-level cache.
pub(super) const TILE: usize = 8;
/// Registers of four rows.
pub(super) const FOURS: usize = ROWS / FOUR;

/// Key and bytes of the arranged activations of a block: the quants by lane, dword s of l at byte 32 l + 4 s; the sums
/// of each 32 as i32; the same as three limbs of a byte each, all upper ones first; the scale.
pub(super) const ACTS: Arranged = Arranged::Q8K(TypeId::Q4_K);
const ACT: usize = 320;
const SUMS: usize = BLOCK;
const LIMBS: usize = SUMS + 32;
const SCALE: usize = LIMBS + 24;

/// Bytes of an arranged row: an odd number of cache lines. Rows of a tile then do not fall on the same few sets of the
/// cache.
pub(super) fn act_bytes(n: usize) -> usize {
    let lines = n / BLOCK * (ACT / 64);
    64 * (lines | 1)
}

pub(super) fn arrange(_: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), n / BLOCK * Q8_K, "activation row");
    let blocks = act.as_chunks::<Q8_K>().0;
    for (act, out) in blocks.iter().zip(out.as_chunks_mut::<ACT>().0) {
        let q = &act[info::Q8_K.at(Part::Codes)..][..BLOCK];
        for (l, out) in out[..BLOCK].as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (out, q) in out.iter_mut().zip(q.as_chunks::<CHAINS>().0) {
                *out = q[l];
            }
        }
        let sums = act[info::Q8_K.at(Part::Sums)..].as_chunks::<4>().0;
        for (s, &[a, b, c, d]) in sums.iter().enumerate() {
            let sum = i32::from(i16::from_le_bytes([a, b])) + i32::from(i16::from_le_bytes([c, d]));
            out[SUMS + 4 * s..][..4].copy_from_slice(&sum.to_le_bytes());
            // All limbs have a sign, by which the rounding makes up for it.
            let upper = (sum + 0x80) >> 8;
            let limbs = [(upper + 0x80) >> 8, upper, sum];
            for (k, limb) in limbs.into_iter().enumerate() {
                out[LIMBS + 8 * k + s] = limb as u8;
            }
        }
        out[SCALE..][..4].copy_from_slice(&act[..4]);
    }
}

/// A block of some tokens' arranged activations. The pointers are to what the caller of a kernel has checked; a call or
/// a comparison here would cost as much as the product.
#[derive(Clone, Copy)]
pub(super) struct Acts {
    at: *const u8,
    stride: usize,
}

impl Acts {
    /// Block `block` of rows that are `stride` bytes apart.
    #[inline(always)]
    pub(super) fn new(rows: &[u8], stride: usize, block: usize) -> Acts {
        Acts { at: rows.as_ptr().wrapping_add(ACT * block), stride }
    }

    #[inline(always)]
    fn of(self, t: usize) -> *const u8 {
        self.at.wrapping_add(self.stride * t)
    }

    /// The scale of token t.
    ///
    /// # Safety
    /// The rows have the block, and token t.
    #[inline(always)]
    pub(super) unsafe fn scale(self, t: usize) -> f32 {
        // SAFETY: a block of activations has a scale.
        unsafe { self.of(t).add(SCALE).cast::<f32>().read_unaligned() }
    }

    /// The quants of chain l of token t.
    ///
    /// # Safety
    /// The rows have the block, and token t; l is less than [`CHAINS`].
    #[inline(always)]
    pub(super) unsafe fn quants(self, t: usize, l: usize) -> [int8x16_t; 2] {
        // SAFETY: a chain has 32 bytes.
        unsafe {
            let q = self.of(t).add(32 * l);
            [load(q), load(q.add(16))]
        }
    }

    /// The limbs of the sums of token t; the last eight bytes mean nothing.
    ///
    /// # Safety
    /// The rows have the block, and token t.
    #[inline(always)]
    pub(super) unsafe fn limbs(self, t: usize) -> [int8x16_t; 2] {
        // SAFETY: a block has 32 bytes from its limbs on.
        unsafe {
            let limbs = self.of(t).add(LIMBS);
            [load(limbs), load(limbs.add(16))]
        }
    }

    /// The sums of token t.
    ///
    /// # Safety
    /// The rows have the block, and token t.
    #[inline(always)]
    pub(super) unsafe fn sums(self, t: usize) -> [int32x4_t; 2] {
        // SAFETY: a block has eight sums.
        unsafe {
            let sums = self.of(t).add(SUMS).cast::<i32>();
            [vld1q_s32(sums), vld1q_s32(sums.add(4))]
        }
    }
}

/// Running sums of four rows and one token.
#[derive(Clone, Copy)]
pub(super) struct Token {
    pub(super) chains: [float32x4_t; CHAINS],
    /// The chain of the minima.
    pub(super) minus: float32x4_t,
}

/// The chains of a tile, all zero.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn start<const T: usize>() -> [[Token; FOURS]; T] {
    let zero = vdupq_n_f32(0.0);
    [[Token { chains: [zero; CHAINS], minus: zero }; FOURS]; T]
}

/// `chain + d * sum`, each operation rounded by itself.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn step(chain: float32x4_t, d: float32x4_t, sum: int32x4_t) -> float32x4_t {
    vaddq_f32(chain, vmulq_f32(d, vcvtq_f32_s32(sum)))
}

/// `minus + chain 0 + chain 1 ...`, in this order, of all rows and as many tokens as there is room for in `out`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn finish(tile: &[[Token; FOURS]], out: &mut [f32]) {
    for (rows, out) in tile.iter().zip(out.chunks_exact_mut(ROWS)) {
        for (token, out) in rows.iter().zip(out.chunks_exact_mut(FOUR)) {
            let sum = token.chains.iter().fold(token.minus, |sum, &chain| vaddq_f32(sum, chain));
            store(out, sum);
        }
    }
}

/// `multiply` of types that are `$bound`: up to `$tile` tokens at a time by `$many`, but no more than `$few` one after
/// another by `$one`. All three take the type `C`.
macro_rules! multiply {
    ($needs:expr, $features:literal, $bound:ident, $layout:ident, $tile:expr, $few:expr, $one:expr, $many:expr) => {
        /// # Safety
        /// The processor has the features; the lengths are those that [`Call::check`] compares.
        #[target_feature(enable = $features)]
        unsafe fn product<C: $bound>(group: &[u8], acts: &[u8], n: usize, ahead: usize, out: &mut [f32]) {
            // SAFETY: this function has the features, and its caller has checked the lengths.
            unsafe {
                if out.len() > $few * ROWS {
                    return $many(group, acts, n, ahead, out);
                }
                for (act, out) in acts.chunks(act_bytes(n)).zip(out.chunks_mut(ROWS)) {
                    $one(group, act, n, ahead, out);
                }
            }
        }

        fn multiply<C: $bound>(call: $crate::shared::packed::Call<'_>) {
            let $crate::shared::packed::Call { group, acts, n, ahead, out, .. } =
                call.check(const { &$layout::<C>($needs, multiply::<C>, $tile) });
            let stride = act_bytes(n);
            for (acts, out) in acts.chunks($tile * stride).zip(out.chunks_mut($tile * ROWS)) {
                // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
                unsafe { product::<C>(group, acts, n, ahead, out) }
            }
        }
    };
}
pub(super) use multiply;
