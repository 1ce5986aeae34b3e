//! Types with 32-element blocks and many tokens: four rows times up to [`PAIRS`] pairs of tokens, whose sums stay in
//! registers.
//!
//! Some blocks are walked for four rows, then again for the next four, so that the rows, of which only a part of each
//! line of the cache is read at a time, come from the first-level cache but once. For them the activations of each pair
//! are put side by side before.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by row and by pair alike")]

use std::arch::aarch64::*;
use std::mem::MaybeUninit;

use super::super::dot::load;
use super::block32_parts::{offsets, scales, unpack};
use super::pair::{Columns, Floats, Pair, Two};
use super::{FOUR, prefetch, store};
use crate::shared::packed::block32::{Block32, PackedStep, RECORD, ROWS};

/// Pairs whose sums stay in registers beside the weights of four rows.
pub(super) const PAIRS: usize = 4;
/// Blocks whose activations are put side by side at a time.
const BLOCKS: usize = 8;
/// Registers of four rows in a group.
const FOURS: usize = ROWS / FOUR;

/// A block of a pair's activations.
struct Act<P: Pair> {
    y: Columns,
    scales: P::Token,
    /// Initial values of the integer sums.
    starts: [int32x4_t; 2],
    /// Factors of the offsets.
    sums: P::Token,
}

/// Block `b` of two tokens' rows of records.
///
/// # Safety
/// The processor has the instructions of `P`; the records are readable.
#[inline(always)]
unsafe fn act<P: Pair, B: Block32>(rows: Two<*const u8>, b: usize) -> Act<P> {
    // SAFETY: a record has 32 activations, and 16 bytes of a scale, a start and a sum.
    unsafe {
        let [first, second] = rows.map(|row| row.add(RECORD * b));
        let columns = |record: *const u8| [load(record), load(record.add(16))];
        let rest = [first, second].map(|record| load(record.add(32)));
        let floats = rest.map(|v| vreinterpretq_f32_s8(v));
        Act {
            y: P::columns(columns(first), columns(second)),
            scales: P::by_token::<0>(floats),
            starts: P::starts::<1>(rest.map(|v| vreinterpretq_s32_s8(v))),
            sums: P::by_token::<2>(if B::OFFSETS > 0 { floats } else { [vdupq_n_f32(0.0); 2] }),
        }
    }
}

/// Products of the tokens that `out` has room for, `N` pairs at most, whose arranged rows are `stride` bytes apart.
///
/// # Safety
/// The processor has the instructions of `P`; `check` has compared the lengths.
#[inline(always)]
pub(super) unsafe fn tile<P: Pair, B: Block32, const N: usize>(
    group: &[u8],
    acts: &[u8],
    stride: usize,
    ahead: usize,
    out: &mut [f32],
) {
    let tokens = out.len() / ROWS;
    // The last token stands for one that is not there.
    let pairs: [Two<*const u8>; N] =
        std::array::from_fn(|p| [2 * p, 2 * p + 1].map(|t| acts[stride * t.min(tokens - 1)..].as_ptr()));
    // SAFETY: blocks of the group and records of the tokens are there, as the caller has checked.
    unsafe {
        let zero = vdupq_n_f32(0.0);
        // What is not filled below is not read.
        let mut y = [const { [const { MaybeUninit::<Act<P>>::uninit() }; N] }; BLOCKS];
        let mut totals = [[[zero; 2]; N]; FOURS];
        for (i, blocks) in group.chunks(BLOCKS * B::PACKED).enumerate() {
            let count = blocks.len() / B::PACKED;
            prefetch(blocks.as_ptr(), blocks.len(), ahead);
            for b in 0..count {
                for p in 0..N {
                    y[b][p].write(act::<P, B>(pairs[p], BLOCKS * i + b));
                }
            }
            for r in 0..FOURS {
                let mut sums = totals[r];
                for b in 0..count {
                    let block = blocks.as_ptr().add(B::PACKED * b);
                    step::<P, B, N>(&mut sums, block, r, y[b].each_ref().map(|y| y.assume_init_ref()));
                }
                totals[r] = sums;
            }
        }
        for (r, sums) in totals.iter().enumerate() {
            for p in 0..N {
                for (i, sum) in P::apart(sums[p]).into_iter().enumerate() {
                    if 2 * p + i < tokens {
                        store(&mut out[ROWS * (2 * p + i) + FOUR * r..], sum);
                    }
                }
            }
        }
    }
}

/// Adds the terms of a block to the sums of rows `4 r .. 4 r + 4`.
///
/// # Safety
/// The processor has the instructions of `P`; the block is readable.
#[inline(always)]
unsafe fn step<P: Pair, B: Block32, const N: usize>(
    sums: &mut [Floats; N],
    block: *const u8,
    r: usize,
    y: [&Act<P>; N],
) {
    // SAFETY: the caller's promise; a block has the offsets that its type has.
    unsafe {
        let w = P::all_weights(unpack::<B>(block, r));
        let dw = P::by_row(scales::<B>(block, r));
        let mw = P::by_row(offsets::<B>(block, r));
        unrolled!(p in 0..N {
            let act = y[p];
            let isums = P::add_all(act.starts, &w, &act.y);
            for i in 0..2 {
                let isum = vcvtq_f32_s32(isums[i]);
                let term = match B::STEP {
                    PackedStep::SumFirst => P::times(vmulq_f32(isum, dw[i]), act.scales, i),
                    PackedStep::ScaleFirst => vmulq_f32(P::times(dw[i], act.scales, i), isum),
                    PackedStep::PlusOffset => {
                        let product = vmulq_f32(P::times(dw[i], act.scales, i), isum);
                        vaddq_f32(product, P::times(mw[i], act.sums, i))
                    }
                };
                sums[p][i] = vaddq_f32(sums[p][i], term);
            }
        });
    }
}
