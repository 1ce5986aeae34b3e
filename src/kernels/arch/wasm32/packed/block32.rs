//! Types with 32-element blocks: the bytes of [`crate::shared::packed::block32`], where 16 of a line are four rows.
//!
//! The eight vectors of codes of four rows and a block are widened once for all tokens of a tile, which are taken four
//! at a time.

use std::arch::wasm32::*;

use super::dot::{FOUR, Sums, Words, ZERO, eight, halves, load, store, total, words};
use crate::Isa;
use crate::proof::{Proof, Simd128};
use crate::shared::packed::block32::{self, Block32, PackedStep, ROWS, layouts_of_block32};
use crate::shared::packed::{Call, Layout};

/// Vectors of four rows in a group.
const FOURS: usize = ROWS / FOUR;
/// Tokens of a call, and of a turn.
const TILE: usize = 32;
const TURN: usize = 4;

/// An arranged block of a token: 32 words, scale f32, start of the sum i32, sum term f32 of Q8_1, 4 bytes of nothing.
const RECORD: usize = 80;
const SCALE: usize = 64;
const START: usize = 68;
const SUM: usize = 72;

/// Bytes of an arranged row.
fn act_bytes(n: usize) -> usize {
    (n / 32 * RECORD).next_multiple_of(64)
}

/// As other processors arrange it, and then the integers as words.
fn arrange<B: Block32>(isa: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    let mut records = vec![0; block32::act_bytes(n)];
    (const { &block32::layout::<B>(Simd128::NEEDS, multiply::<B>) }.arrange)(isa, act, n, &mut records);
    for (from, to) in records.chunks_exact(block32::RECORD).zip(out.chunks_exact_mut(RECORD)) {
        for (&q, word) in from.iter().zip(to[..SCALE].as_chunks_mut::<2>().0) {
            *word = i16::from(q as i8).to_le_bytes();
        }
        to[SCALE..].copy_from_slice(&from[32..]);
    }
}

/// The codes of rows `4 r .. 4 r + 4` of a block: dword k of each in element k.
///
/// # Safety
/// The block is readable.
#[inline(always)]
unsafe fn unpack<B: Block32>(block: *const u8, r: usize) -> [Words; 8] {
    let mut codes = [u8x16_splat(0); 8];
    let nibble = u8x16_splat(15);
    for g in 0..B::LINES {
        // SAFETY: a packed block has `LINES` lines of 64 bytes.
        let line = unsafe { load(block.add(B::LINES_START + 64 * g + 4 * FOUR * r)) };
        if B::LINES == 8 {
            codes[g] = line;
        } else {
            codes[g] = v128_and(line, nibble);
            codes[g + 4] = v128_and(u16x8_shr(line, 4), nibble);
        }
    }
    if let Some(table) = B::TABLE {
        // SAFETY: a table of 16 bytes.
        let table = unsafe { load(table.as_ptr()) };
        for c in &mut codes {
            *c = i8x16_swizzle(table, *c);
        }
    }
    if B::FIFTH_AT.is_some() {
        // SAFETY: a packed block with fifth bits has 64 bytes of them.
        let fifth = unsafe { load(block.add(B::MASKS_START + 4 * FOUR * r)) };
        for (g, c) in codes.iter_mut().enumerate() {
            let place = if g < 4 { u16x8_shl(fifth, 4 - g as u32) } else { u16x8_shr(fifth, g as u32 - 4) };
            *c = v128_or(*c, v128_and(place, u8x16_splat(16)));
        }
    }
    codes.map(words)
}

/// The scales of rows `4 r .. 4 r + 4`.
///
/// # Safety
/// The block is readable.
#[inline(always)]
unsafe fn scales<B: Block32>(block: *const u8, r: usize) -> v128 {
    // SAFETY: a packed block starts with 16 scales of as many bytes.
    unsafe {
        let at = block.add(B::SCALE_BYTES * FOUR * r);
        match B::SCALE_BYTES {
            2 => halves(at),
            4 => load(at),
            // Half of 2^(e - 127) as bits; the two smallest are not normal.
            _ => {
                let half = |e: u8| if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 };
                let [a, b, c, d] = at.cast::<[u8; 4]>().read().map(half);
                u32x4(a, b, c, d)
            }
        }
    }
}

/// `N` tokens, the first of which has its records at `acts`; `sums` are theirs, of rows `4 r .. 4 r + 4`.
///
/// # Safety
/// The block and a record of each token are readable.
#[inline(always)]
unsafe fn step<B: Block32, const N: usize>(
    sums: &mut [[v128; FOURS]; N],
    (block, r): (*const u8, usize),
    w: &[Words; 8],
    acts: [*const u8; N],
) {
    // SAFETY: a record has 32 words, a scale, a start and a sum; the block has the offsets that its type has.
    unsafe {
        let dw = scales::<B>(block, r);
        let isums: [Sums; N] = eight([ZERO; N], w, acts.map(|act| act.cast()));
        for ((sums, isum), act) in sums.iter_mut().zip(isums).zip(acts) {
            let dx = v128_load32_splat(act.add(SCALE).cast());
            let isum = i32x4_add(total(isum), v128_load32_splat(act.add(START).cast()));
            let isum = f32x4_convert_i32x4(isum);
            let term = match B::STEP {
                PackedStep::SumFirst => f32x4_mul(f32x4_mul(isum, dw), dx),
                PackedStep::ScaleFirst => f32x4_mul(f32x4_mul(dw, dx), isum),
                PackedStep::PlusOffset => {
                    let mw = halves(block.add(B::SCALE_BYTES * ROWS + 2 * FOUR * r));
                    let sx = v128_load32_splat(act.add(SUM).cast());
                    f32x4_add(f32x4_mul(f32x4_mul(dw, dx), isum), f32x4_mul(mw, sx))
                }
            };
            sums[r] = f32x4_add(sums[r], term);
        }
    }
}

fn multiply<B: Block32>(call: Call<'_>) {
    let Call { group, acts, n, out, .. } = call.check(const { &layout::<B>() });
    let stride = act_bytes(n);
    for (acts, out) in acts.chunks(TILE * stride).zip(out.chunks_mut(TILE * ROWS)) {
        let mut sums = [[f32x4_splat(0.0); FOURS]; TILE];
        let sums = &mut sums[..out.len() / ROWS];
        for (b, block) in group.chunks_exact(B::PACKED).enumerate() {
            let block = block.as_ptr();
            let record = |t: usize| acts[stride * t + RECORD * b..].as_ptr();
            for r in 0..FOURS {
                // SAFETY: the block is whole, and `check` has compared the lengths: every token has a record of it.
                unsafe {
                    let w = unpack::<B>(block, r);
                    let (turns, rest) = sums.as_chunks_mut::<TURN>();
                    let first = TURN * turns.len();
                    for (i, sums) in turns.iter_mut().enumerate() {
                        step::<B, TURN>(sums, (block, r), &w, std::array::from_fn(|t| record(TURN * i + t)));
                    }
                    for (t, sums) in rest.iter_mut().enumerate() {
                        step::<B, 1>(std::array::from_mut(sums), (block, r), &w, [record(first + t)]);
                    }
                }
            }
        }
        for (&sum, out) in sums.as_flattened().iter().zip(out.chunks_exact_mut(FOUR)) {
            store(out, sum);
        }
    }
}

const fn layout<B: Block32>() -> Layout {
    let layout = block32::layout::<B>(Simd128::NEEDS, multiply::<B>);
    Layout { act_bytes, arrange: arrange::<B>, ..layout }
}

pub(super) static LAYOUTS: &[Layout] = &layouts_of_block32!(layout);
