//! Parts of all K-quants with eight chains per row. A weight is multiplied with its scale before it meets activations,
//! which are exact words: codes of at most six bits times scales of at most eight. The integer of a chain then is a sum of
//! products with no step between, and one unpacking serves all tokens of a tile.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by row and token alike")]

use std::arch::wasm32::*;

use trine_formats::types::{Part, TypeId, info};

use super::dot::{FOUR, Words, ZERO, add, both, eight, four_words, store, total};
use crate::Isa;
use crate::proof::{Proof, Simd128};
use crate::shared::packed::k_quants::{BLOCK, CHAINS, Q8_K, ROWS};
use crate::shared::packed::{Arranged, Call, Encoding, Layout, Pack};

/// Tokens of a call, and of a turn.
pub(super) const TILE: usize = 16;
const TURN: usize = 4;
/// Vectors of four rows.
pub(super) const FOURS: usize = ROWS / FOUR;

/// Key and bytes of the arranged activations of a block: the quants by chain, as words, four of unit s of chain l at word
/// 32 l + 4 s; the sums of each 16; the scale.
const ACTS: Arranged = Arranged::Q8K(TypeId::Q4_K);
const ACT: usize = 576;
const SUMS: usize = 2 * BLOCK;
const SCALE: usize = SUMS + 32;

pub(super) fn act_bytes(n: usize) -> usize {
    n / BLOCK * ACT
}

fn arrange(_: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), n / BLOCK * Q8_K, "activation row");
    let blocks = act.as_chunks::<Q8_K>().0;
    for (act, out) in blocks.iter().zip(out.as_chunks_mut::<ACT>().0) {
        let q = &act[info::Q8_K.at(Part::Codes)..][..BLOCK];
        for (l, out) in out[..SUMS].as_chunks_mut::<64>().0.iter_mut().enumerate() {
            for (out, q) in out.as_chunks_mut::<2>().0.iter_mut().zip(q.as_chunks::<CHAINS>().0) {
                *out = i16::from(q[l] as i8).to_le_bytes();
            }
        }
        out[SUMS..SCALE].copy_from_slice(&act[info::Q8_K.at(Part::Sums)..][..32]);
        out[SCALE..][..4].copy_from_slice(&act[..4]);
    }
}

/// How the blocks of a type are unpacked.
pub(super) trait Unpack {
    /// The key of the layout, its name and its packing.
    const LAYOUT: Layout;
    /// True if blocks have minima.
    const MINIMA: bool;

    /// Bytes of block b of a group: where its `d` is, and its head and parts.
    fn at(b: usize) -> (usize, usize);

    /// The head of the block for rows `4 r .. 4 r + 4`; `d` is where those of the group begin.
    ///
    /// # Safety
    /// The block is readable.
    unsafe fn head(d: *const u8, block: *const u8, r: usize) -> Head;

    /// The codes of rows `4 r .. 4 r + 4` of part l, unit by unit, as words.
    ///
    /// # Safety
    /// The block is readable.
    unsafe fn codes(block: *const u8, l: usize, r: usize) -> [Words; 8];
}

/// The parts of a block beside its codes, of four rows.
pub(super) struct Head {
    pub d: v128,
    pub dmin: v128,
    /// The scale of each code of a unit.
    pub scales: [Words; 8],
    /// The minimum of each sum of 16.
    pub mins: [Words; 4],
}

/// Bytes `A`, `B` of each dword, each twice: the scales of two pairs of words of each row.
#[inline(always)]
pub(super) fn spread<const A: usize, const B: usize>(v: v128) -> v128 {
    let at = |i: usize| (4 * (i / 4) + if i % 4 < 2 { A } else { B }) as u8;
    let order: [u8; 16] = std::array::from_fn(at);
    // SAFETY: sixteen bytes.
    i8x16_swizzle(v, unsafe { v128_load(order.as_ptr().cast()) })
}

/// Running sums of four rows and one token.
#[derive(Clone, Copy)]
struct Token {
    chains: [v128; CHAINS],
    /// The chain of the minima.
    minus: v128,
}

/// The sums of some tokens with the words of a part. `at(t)` has those of token t.
#[inline(always)]
fn turns(tokens: usize, w: &[Words; 8], at: impl Fn(usize) -> *const i16, mut put: impl FnMut(usize, v128)) {
    let mut t = 0;
    // SAFETY: 32 words of each token are where `at` says.
    unsafe {
        while t + TURN <= tokens {
            let sums = eight([ZERO; TURN], w, std::array::from_fn(|i| at(t + i)));
            sums.into_iter().enumerate().for_each(|(i, sums)| put(t + i, total(sums)));
            t += TURN;
        }
        while t < tokens {
            let [sums] = eight([ZERO], w, [at(t)]);
            put(t, total(sums));
            t += 1;
        }
    }
}

/// Up to [`TILE`] tokens, for which `out` has room.
///
/// # Safety
/// [`Call::check`] has compared the lengths.
unsafe fn tile<C: Unpack>(group: &[u8], acts: &[u8], n: usize, out: &mut [f32]) {
    let tokens = out.len() / ROWS;
    let zero = f32x4_splat(0.0);
    let mut tile = [[Token { chains: [zero; CHAINS], minus: zero }; FOURS]; TILE];
    let mut d = [zero; TILE];
    for b in 0..n / BLOCK {
        let act = |t: usize| acts[act_bytes(n) * t + ACT * b..].as_ptr();
        let (d_at, block) = C::at(b);
        for r in 0..FOURS {
            // SAFETY: the block is there, as the caller has checked.
            let (head, block) = unsafe {
                let block = group.as_ptr().add(block);
                (C::head(group.as_ptr().add(d_at), block, r), block)
            };
            for t in 0..tokens {
                // SAFETY: the activations have the block, as the caller has checked.
                unsafe {
                    let dy = v128_load32_splat(act(t).add(SCALE).cast());
                    d[t] = f32x4_mul(head.d, dy);
                    if C::MINIMA {
                        let sums = act(t).add(SUMS).cast::<i16>();
                        let mut sum = ZERO;
                        for (s, mins) in head.mins.iter().enumerate() {
                            sum = add(sum, *mins, four_words(sums.add(FOUR * s)));
                        }
                        let sum = f32x4_convert_i32x4(total(sum));
                        let minus = f32x4_mul(f32x4_mul(head.dmin, dy), sum);
                        tile[t][r].minus = f32x4_sub(tile[t][r].minus, minus);
                    }
                }
            }
            for l in 0..CHAINS {
                // SAFETY: a block has eight parts.
                let codes = unsafe { C::codes(block, l, r) };
                let mut w = codes;
                for (w, scale) in w.iter_mut().zip(head.scales) {
                    *w = both(*w, scale, |a, b| i16x8_mul(a, b));
                }
                let quants = |t: usize| act(t).wrapping_add(64 * l).cast::<i16>();
                turns(tokens, &w, quants, |t, sum| {
                    let chain = &mut tile[t][r].chains[l];
                    *chain = f32x4_add(*chain, f32x4_mul(d[t], f32x4_convert_i32x4(sum)));
                });
            }
        }
    }
    for (rows, out) in tile.iter().zip(out.chunks_exact_mut(ROWS)) {
        for (token, out) in rows.iter().zip(out.chunks_exact_mut(FOUR)) {
            store(out, token.chains.iter().fold(token.minus, |sum, &chain| f32x4_add(sum, chain)));
        }
    }
}

fn multiply<C: Unpack>(call: Call<'_>) {
    let Call { group, acts, n, out, .. } = call.check(const { &C::LAYOUT });
    for (acts, out) in acts.chunks(TILE * act_bytes(n).max(1)).zip(out.chunks_mut(TILE * ROWS)) {
        // SAFETY: `check` has compared all lengths.
        unsafe { tile::<C>(group, acts, n, out) }
    }
}

/// The layout of a type.
pub(super) const fn layout<C: Unpack>(
    types: &'static [TypeId],
    name: &'static str,
    group_bytes: fn(usize) -> usize,
    pack: Pack,
) -> Layout {
    Layout {
        types,
        needs: Simd128::NEEDS,
        name,
        dense: false,
        rows: ROWS,
        encoding: Encoding::Type(TypeId::Q8_K),
        group_bytes,
        pack,
        acts: ACTS,
        act_bytes,
        arrange,
        multiply: multiply::<C>,
        tile: TILE,
    }
}
