//! Q2_K for ARM: the bytes of [`crate::shared::packed::k_quants::q2_k`].
//!
//! Two bits stay where they are in their byte, and the scales of those that lie lower are as many times larger: all
//! sums of a block are 16 times too large, and one shift takes that back.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by token and by group alike")]

use std::arch::aarch64::*;

use super::super::dot::{Dot, halves, load};
use super::{FOUR, prefetch, store};
use crate::proof::{Dotprod, Neon, Proof};
use crate::shared::packed::k_quants::ROWS;
use crate::shared::packed::k_quants::q2_k::{ACT, BYTES, CODES, DMIN, SCALE, SCALES, SUMS, act_bytes, layout};
use crate::shared::packed::{Call, Layout};

/// Tokens whose sums stay in registers beside the codes of a set.
const TILE: usize = 8;
/// Registers of four rows.
const FOURS: usize = ROWS / FOUR;
/// Sets of four groups in a block.
const SETS: usize = 4;

/// The head of a block for rows `4 r .. 4 r + 4`.
struct Head {
    d: float32x4_t,
    dmin: float32x4_t,
    /// Scales of four groups, and above them minima, as the file has them.
    lines: [uint32x4_t; 4],
}

/// The head of a block for rows `4 r .. 4 r + 4`.
///
/// # Safety
/// The block is readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn head(block: *const u8, r: usize) -> Head {
    // SAFETY: a block begins with two half floats of each row, and four lines of scales follow.
    unsafe {
        Head {
            d: halves(block.add(2 * FOUR * r)),
            dmin: halves(block.add(DMIN + 2 * FOUR * r)),
            lines: [0, 1, 2, 3].map(|g| vreinterpretq_u32_s8(load(block.add(SCALES + 64 * g + 4 * FOUR * r)))),
        }
    }
}

/// The groups of a set, four rows of each.
struct Set {
    /// By group and by dword, group p 1, 4, 16 or 1 times too large.
    codes: [[int8x16_t; 4]; 4],
    /// 16, 4, 1 or 16 times too large.
    scales: [int32x4_t; 4],
}

/// Set `set` of rows `4 r .. 4 r + 4`.
///
/// # Safety
/// The block is readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn unpack(block: *const u8, head: &Head, set: usize, r: usize) -> Set {
    let (mut codes, zero) = ([[vdupq_n_s8(0); 4]; 4], vdupq_n_u32(0));
    for c in 0..4 {
        // SAFETY: a set has four lines of codes.
        let line = unsafe { load(block.add(CODES + 64 * (4 * set + c) + 4 * FOUR * r)) };
        codes[0][c] = vandq_s8(line, vdupq_n_s8(0x03));
        codes[1][c] = vandq_s8(line, vdupq_n_s8(0x0C));
        codes[2][c] = vandq_s8(line, vdupq_n_s8(0x30));
        codes[3][c] = vreinterpretq_s8_u8(vshrq_n_u8::<6>(vreinterpretq_u8_s8(line)));
    }
    // The groups of a set are every other one of eight, whose scales are the bytes of two lines.
    let mut lines = [zero; 2];
    for (line, of) in lines.iter_mut().zip(&head.lines[set / 2 * 2..]) {
        *line = match set % 2 {
            0 => *of,
            _ => vshrq_n_u32::<8>(*of),
        };
    }
    let four_bits = |v: uint32x4_t, shift: u32| vreinterpretq_s32_u32(vandq_u32(v, vdupq_n_u32(15 << shift)));
    let scales = [
        four_bits(vshlq_n_u32::<4>(lines[0]), 4),
        four_bits(vshrq_n_u32::<14>(lines[0]), 2),
        four_bits(lines[1], 0),
        four_bits(vshrq_n_u32::<12>(lines[1]), 4),
    ];
    Set { codes, scales }
}

/// `sum` and the groups of a set, each times its scale. `y`: the quants of the first of them.
///
/// # Safety
/// The processor has the instructions of `D`; four groups of 16 quants are readable, 32 bytes apart.
#[inline(always)]
unsafe fn add_set<D: Dot>(mut sum: int32x4_t, set: &Set, y: *const u8) -> int32x4_t {
    for (p, (codes, scale)) in set.codes.iter().zip(set.scales).enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let y = load(y.add(32 * p));
            let mut group = vdupq_n_s32(0);
            group = D::lane::<0>(group, codes[0], y);
            group = D::lane::<1>(group, codes[1], y);
            group = D::lane::<2>(group, codes[2], y);
            group = D::lane::<3>(group, codes[3], y);
            sum = vmlaq_s32(sum, group, scale);
        }
    }
    sum
}

/// Sums of groups of activations times the minima of four rows.
///
/// # Safety
/// A block of activations is readable at `y`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn minima(head: &Head, y: *const u8) -> int32x4_t {
    let mut sums = [vdupq_n_s32(0); 2];
    for (g, line) in head.lines.iter().enumerate() {
        // Groups 0 and 2 of the line in the even bytes of a row, 1 and 3 in the odd ones.
        let words = vreinterpretq_u16_u32(*line);
        let even = vandq_u16(vshrq_n_u16::<4>(words), vdupq_n_u16(15));
        let odd = vshrq_n_u16::<12>(words);
        for (k, mins) in [even, odd].into_iter().enumerate() {
            let mins = vreinterpretq_s16_u16(mins);
            // SAFETY: the activations have two sums for each two groups.
            let of = unsafe { vld1q_dup_s32(y.add(SUMS + 8 * g + 4 * k).cast()) };
            let of = vreinterpretq_s16_s32(of);
            sums[0] = vmlal_s16(sums[0], vget_low_s16(mins), vget_low_s16(of));
            sums[1] = vmlal_high_s16(sums[1], mins, of);
        }
    }
    vpaddq_s32(sums[0], sums[1])
}

/// `chain + ((yd * d) * scaled - (yd * dmin) * minima)`, each operation rounded by itself; `scaled` is 16 times too
/// large.
///
/// # Safety
/// A block of activations is readable at `y`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn step(chain: float32x4_t, head: &Head, y: *const u8, scaled: int32x4_t) -> float32x4_t {
    // SAFETY: the caller's promise.
    let (minima, dy) = unsafe { (minima(head, y), vld1q_dup_f32(y.add(SCALE).cast())) };
    let scaled = vcvtq_f32_s32(vshrq_n_s32::<4>(scaled));
    let plus = vmulq_f32(vmulq_f32(dy, head.d), scaled);
    let minus = vmulq_f32(vmulq_f32(dy, head.dmin), vcvtq_f32_s32(minima));
    vaddq_f32(chain, vsubq_f32(plus, minus))
}

/// The product with T tokens.
///
/// # Safety
/// The processor has the instructions of `D`; `check` has compared the lengths.
#[inline(always)]
unsafe fn tile<D: Dot, const T: usize>(group: &[u8], acts: *const u8, stride: usize, ahead: usize, out: &mut [f32]) {
    // SAFETY: every block of the group and of the activations of T tokens is there, as the caller has checked.
    unsafe {
        let mut chains = [[vdupq_n_f32(0.0); FOURS]; T];
        for (b, block) in group.as_chunks::<BYTES>().0.iter().enumerate() {
            prefetch(block.as_ptr(), BYTES, ahead);
            let (block, acts) = (block.as_ptr(), acts.add(ACT * b));
            for r in 0..FOURS {
                let head = head(block, r);
                let mut sums = [vdupq_n_s32(0); T];
                for set in 0..SETS {
                    let groups = unpack(block, &head, set, r);
                    let first = 128 * (set / 2) + 16 * (set % 2);
                    for t in 0..T {
                        sums[t] = add_set::<D>(sums[t], &groups, acts.add(stride * t + first));
                    }
                }
                for t in 0..T {
                    chains[t][r] = step(chains[t][r], &head, acts.add(stride * t), sums[t]);
                }
            }
        }
        for (chain, out) in chains.as_flattened().iter().zip(out.chunks_exact_mut(FOUR)) {
            store(out, *chain);
        }
    }
}

/// The layout with the kernels of one instruction set.
macro_rules! layouts {
    ($module:ident, $dot:ident, $features:literal) => {
        pub(super) mod $module {
            use super::*;

            /// # Safety
            /// The processor has the features; the group is whole blocks, and each token of `out` has their activations
            /// at `acts`, `stride` bytes after those of the token before.
            #[target_feature(enable = $features)]
            unsafe fn product(group: &[u8], acts: *const u8, stride: usize, ahead: usize, out: &mut [f32]) {
                // SAFETY: this function has the features, and its caller has checked the lengths.
                unsafe {
                    match out.len() / ROWS {
                        0 => {}
                        1 => tile::<$dot, 1>(group, acts, stride, ahead, out),
                        2 => tile::<$dot, 2>(group, acts, stride, ahead, out),
                        3 => tile::<$dot, 3>(group, acts, stride, ahead, out),
                        4 => tile::<$dot, 4>(group, acts, stride, ahead, out),
                        5 => tile::<$dot, 5>(group, acts, stride, ahead, out),
                        6 => tile::<$dot, 6>(group, acts, stride, ahead, out),
                        7 => tile::<$dot, 7>(group, acts, stride, ahead, out),
                        _ => tile::<$dot, TILE>(group, acts, stride, ahead, out),
                    }
                }
            }

            fn multiply(call: Call<'_>) {
                let Call { group, acts, n, ahead, out, .. } = call.check(&LAYOUTS[0]);
                let stride = act_bytes(n);
                for (acts, out) in acts.chunks(TILE * stride).zip(out.chunks_mut(TILE * ROWS)) {
                    // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
                    unsafe { product(group, acts.as_ptr(), stride, ahead, out) }
                }
            }

            pub(in super::super) static LAYOUTS: &[Layout] = &[layout($dot::NEEDS, multiply, TILE)];
        }
    };
}

layouts!(neon, Neon, "neon");
layouts!(dotprod, Dotprod, "neon,dotprod");
