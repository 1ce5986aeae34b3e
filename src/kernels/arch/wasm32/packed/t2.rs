//! 2-bit ternary codes: the bytes of [`crate::shared::packed::t2`], 16 of them being dword c of four rows.
//!
//! With one token the four planes of a byte are multiplied where they lie but for the uppermost: sums of planes 1 and 2
//! are 4 and 16 times as large. With more, the words of four rows and a unit are unpacked once for all of them.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by row and token alike")]

use std::arch::wasm32::*;

use trine_formats::types::{Part, info};

use super::dot::{FOUR, Sums, Words, ZERO, add, eight, four_words, halves, load, store, total, words};
use crate::Isa;
use crate::proof::{Proof, Simd128};
use crate::shared::packed::t2::{BLOCK, ROWS, SCALES, UNIT, UNIT_BYTES, layouts};
use crate::shared::packed::{Call, Layout, dword};
use crate::shared::ternary;

/// Tokens of a call, and of a turn.
const TILE: usize = 16;
const TURN: usize = 4;
/// Bytes from a chunk of a unit to the next.
const CHUNK: usize = 4 * ROWS;
/// Chunks of a unit.
const CHUNKS: usize = 8;
/// Vectors of four rows.
const FOURS: usize = ROWS / FOUR;
/// Columns of a block with scales, and bytes of a Q8_K block.
const COLUMNS: usize = 2 * UNIT;
const Q8_K: usize = info::Q8_K.bytes;

/// An arranged block of a token: 256 words, the scale, the sum of the words.
const ACT: usize = 576;
const ACT_SCALE: usize = 512;
const ACT_SUM: usize = 516;
/// Bytes before the words of a whole row: the scale and the sum.
const HEAD: usize = 64;

fn act_bytes_q8_k(n: usize) -> usize {
    n / COLUMNS * ACT
}

fn arrange_q8_k(_: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), n / COLUMNS * Q8_K, "activation row");
    for (act, out) in act.as_chunks::<Q8_K>().0.iter().zip(out.as_chunks_mut::<ACT>().0) {
        let (codes, sums) = act.split_at(info::Q8_K.at(Part::Sums));
        widen(&codes[info::Q8_K.at(Part::Codes)..], &mut out[..ACT_SCALE]);
        out[ACT_SCALE..][..4].copy_from_slice(&act[..4]);
        let sum: i32 = sums.as_chunks::<2>().0.iter().map(|s| i32::from(i16::from_le_bytes(*s))).sum();
        out[ACT_SUM..][..4].copy_from_slice(&sum.to_le_bytes());
    }
}

fn act_bytes_int8(n: usize) -> usize {
    HEAD + 2 * n.next_multiple_of(UNIT)
}

fn arrange_int8(_: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), ternary::act_bytes(n), "activation row");
    out[..8].copy_from_slice(&act[..8]);
    let (q, padding) = out[HEAD..].split_at_mut(2 * (act.len() - 8));
    widen(&act[8..], q);
    padding.fill(0);
}

/// Bytes with a sign to words.
fn widen(bytes: &[u8], out: &mut [u8]) {
    for (&q, out) in bytes.iter().zip(out.as_chunks_mut::<2>().0) {
        *out = i16::from(q as i8).to_le_bytes();
    }
}

/// The first of the words of a unit that plane `s` meets.
const fn place<const REVERSED: bool>(s: usize) -> usize {
    if REVERSED { 32 * (3 - s) } else { 32 * s }
}

/// Sums of planes 0 and 3, 1 and 2 of one token, the latter 4 and 16 times as large.
type Planes = [Sums; 3];

/// The sum over planes; the shifts are exact.
#[inline(always)]
fn join(sums: &Planes) -> v128 {
    let [plain, fourfold, sixteenfold] = sums.map(total);
    i32x4_add(plain, i32x4_add(i32x4_shr(fourfold, 2), i32x4_shr(sixteenfold, 4)))
}

/// Adds a unit of four rows, whose first code bytes are at `w`, for one token.
///
/// # Safety
/// The unit and its words at `q` are readable.
#[inline(always)]
unsafe fn add_unit<const REVERSED: bool>(sums: &mut Planes, w: *const u8, q: *const i16) {
    let masked = |x: Words, mask: u16| x.map(|x| v128_and(x, u16x8_splat(mask)));
    for c in 0..CHUNKS {
        // SAFETY: a unit has eight chunks, and four words of each plane for each.
        unsafe {
            let x = words(load(w.add(CHUNK * c)));
            let q = |s: usize| four_words(q.add(place::<REVERSED>(s) + 4 * c));
            sums[0] = add(sums[0], masked(x, 3), q(0));
            sums[1] = add(sums[1], masked(x, 3 << 2), q(1));
            sums[2] = add(sums[2], masked(x, 3 << 4), q(2));
            sums[0] = add(sums[0], x.map(|x| u16x8_shr(x, 6)), q(3));
        }
    }
}

/// The codes of a unit of four rows as words, plane by plane.
///
/// # Safety
/// The unit is readable.
#[inline(always)]
unsafe fn unpack(w: *const u8) -> [[Words; CHUNKS]; 4] {
    let mut planes = [[ZERO; CHUNKS]; 4];
    for c in 0..CHUNKS {
        // SAFETY: a unit has eight chunks.
        let x = words(unsafe { load(w.add(CHUNK * c)) });
        for (s, plane) in planes.iter_mut().enumerate() {
            plane[c] = x.map(|x| v128_and(u16x8_shr(x, 2 * s as u32), u16x8_splat(3)));
        }
    }
    planes
}

/// The sums of some tokens with a unit. `at(t)` has the words of token t.
#[inline(always)]
fn turns<const REVERSED: bool>(sums: &mut [Sums], planes: &[[Words; CHUNKS]; 4], at: impl Fn(usize) -> *const i16) {
    let (fours, rest) = sums.as_chunks_mut::<TURN>();
    let first = TURN * fours.len();
    for (s, plane) in planes.iter().enumerate() {
        // SAFETY: 32 words of each token are where `at` and the plane say.
        unsafe {
            for (i, sums) in fours.iter_mut().enumerate() {
                let acts = std::array::from_fn(|t| at(TURN * i + t).add(place::<REVERSED>(s)));
                *sums = eight(*sums, plane, acts);
            }
            for (t, sums) in rest.iter_mut().enumerate() {
                [*sums] = eight([*sums], plane, [at(first + t).add(place::<REVERSED>(s))]);
            }
        }
    }
}

/// `sum + isum * (dy * dw)`, every operation rounded by itself. `act`: a token's block.
///
/// # Safety
/// The block is readable.
#[inline(always)]
unsafe fn block_step(sum: v128, isum: v128, act: *const u8, dw: v128) -> v128 {
    // SAFETY: a block has a scale and a sum.
    let (dy, start) =
        unsafe { (v128_load32_splat(act.add(ACT_SCALE).cast()), v128_load32_splat(act.add(ACT_SUM).cast())) };
    let isum = f32x4_convert_i32x4(i32x4_sub(isum, start));
    f32x4_add(sum, f32x4_mul(isum, f32x4_mul(dy, dw)))
}

/// Blocks with scales, as in TQ2_0.
fn multiply_blocks(call: Call<'_>) {
    let Call { group, acts, n, out, .. } = call.check(&LAYOUTS[0]);
    let stride = act_bytes_q8_k(n);
    for (acts, out) in acts.chunks(TILE * stride.max(1)).zip(out.chunks_mut(TILE * ROWS)) {
        let tokens = out.len() / ROWS;
        let mut sums = [[f32x4_splat(0.0); FOURS]; TILE];
        for (b, block) in group.chunks_exact(BLOCK).enumerate() {
            let block = block.as_ptr();
            let act = |t: usize| acts[stride * t + ACT * b..].as_ptr();
            for r in 0..FOURS {
                // SAFETY: the block is whole, and `check` has compared the lengths: every token has its activations.
                unsafe {
                    let dw = halves(block.add(2 * FOUR * r));
                    let unit = |u: usize| block.add(SCALES + UNIT_BYTES * u + 4 * FOUR * r);
                    if tokens == 1 {
                        let mut isum = [ZERO; 3];
                        for u in 0..2 {
                            add_unit::<false>(&mut isum, unit(u), act(0).cast::<i16>().add(UNIT * u));
                        }
                        sums[0][r] = block_step(sums[0][r], join(&isum), act(0), dw);
                        continue;
                    }
                    let mut isums = [ZERO; TILE];
                    for u in 0..2 {
                        let at = |t: usize| act(t).cast::<i16>().add(UNIT * u);
                        turns::<false>(&mut isums[..tokens], &unpack(unit(u)), at);
                    }
                    for t in 0..tokens {
                        sums[t][r] = block_step(sums[t][r], total(isums[t]), act(t), dw);
                    }
                }
            }
        }
        for (&sum, out) in sums.as_flattened().iter().zip(out.chunks_exact_mut(FOUR)) {
            store(out, sum);
        }
    }
}

/// `((f32) D - (f32) S) / a` of four rows and one token.
#[inline(always)]
fn row_step(d: v128, act: &[u8]) -> v128 {
    let a = f32::from_le_bytes(dword(act, 0));
    let sum = i32::from_le_bytes(dword(act, 1)) as f32;
    f32x4_div(f32x4_sub(f32x4_convert_i32x4(d), f32x4_splat(sum)), f32x4_splat(a))
}

/// Units whose sixteenfold sums fit 32 bits, by far, and whose activations stay in the first-level cache.
const SEGMENT: usize = 32;

/// Rows without block scales.
fn multiply_rows(call: Call<'_>) {
    let Call { group, acts, n, out, .. } = call.check(&LAYOUTS[3]);
    let stride = act_bytes_int8(n);
    for (acts, out) in acts.chunks(TILE * stride).zip(out.chunks_mut(TILE * ROWS)) {
        let tokens = out.len() / ROWS;
        let mut sums = [[i32x4(0, 0, 0, 0); FOURS]; TILE];
        for (i, units) in group.chunks(SEGMENT * UNIT_BYTES).enumerate() {
            for r in 0..FOURS {
                let (mut planes, mut isums) = ([ZERO; 3], [ZERO; TILE]);
                for (u, unit) in units.chunks_exact(UNIT_BYTES).enumerate() {
                    let w = unit[4 * FOUR * r..].as_ptr();
                    let act =
                        |t: usize| acts[stride * t + HEAD + 2 * UNIT * (SEGMENT * i + u)..].as_ptr().cast::<i16>();
                    // SAFETY: the unit is whole, and `check` has compared the lengths: every token has its words.
                    unsafe {
                        match tokens {
                            1 => add_unit::<true>(&mut planes, w, act(0)),
                            _ => turns::<true>(&mut isums[..tokens], &unpack(w), act),
                        }
                    }
                }
                for t in 0..tokens {
                    let sum = if tokens == 1 { join(&planes) } else { total(isums[t]) };
                    sums[t][r] = i32x4_add(sums[t][r], sum);
                }
            }
        }
        for (t, out) in out.chunks_exact_mut(ROWS).enumerate() {
            for (&d, out) in sums[t].iter().zip(out.chunks_exact_mut(FOUR)) {
                store(out, row_step(d, &acts[stride * t..]));
            }
        }
    }
}

/// The shared layouts, with activations as words.
const fn arranged() -> [Layout; 6] {
    let mut all = layouts(Simd128::NEEDS, multiply_blocks, multiply_rows, TILE);
    let mut i = 0;
    while i < all.len() {
        let whole_rows = i == 2 || i == 3;
        all[i].act_bytes = if whole_rows { act_bytes_int8 } else { act_bytes_q8_k };
        all[i].arrange = if whole_rows { arrange_int8 } else { arrange_q8_k };
        i += 1;
    }
    all
}

pub(super) static LAYOUTS: &[Layout] = &arranged();
