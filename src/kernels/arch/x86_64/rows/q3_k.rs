//! Q3_K, as [`super::k16`] has it.
//!
//! With few tokens, units 3 to 7 are used as 8 times their codes.
//!
//! With many, a part is expanded to the bytes 128 - weight * scale, which all types of this kind lack by one
//! value when signed but which here fit 0..252. The integer of a chain starts at -128 times the sum of the activations,
//! so that it ends as minus the wanted one; the sign goes to the scale.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by rows, chain and token alike")]

use std::marker::PhantomData;

use super::chains::{Expands, Lines, MOST, Product, Sums, Tile, finish_tile, step, vectors};
use super::k16::{CodesOf16, Head, SCALE, start};
use super::lanes::{Kernel, Lanes, by_tokens, unroll};
use crate::shared::packed::k_quants::of_16::Layout16;
pub(crate) use crate::shared::packed::k_quants::of_16::Q3K;
use crate::shared::packed::k_quants::{BLOCK, CHAINS, ROWS};

/// Where the starts of the integers of the chains are in the arranged activations, i32.
const STARTS: usize = SCALE + 4;

impl CodesOf16 for Q3K {
    const LOW: usize = 3;
    const ACT: usize = 576;

    #[inline]
    fn arrange(block: &mut [u8]) {
        let (quants, rest) = block.split_at_mut(BLOCK);
        let starts = rest[STARTS - BLOCK..].as_chunks_mut::<4>().0;
        for (start, q) in starts.iter_mut().zip(quants.as_chunks::<32>().0) {
            let sum: i32 = q.iter().map(|q| i32::from(*q as i8)).sum();
            *start = (-128 * sum).to_le_bytes();
        }
    }

    #[inline(always)]
    unsafe fn scales<L: Lanes>(block: *const u8) -> [L::Ints; 4] {
        // SAFETY: the caller has the registers; a block begins with three lines of scales.
        unsafe {
            let [a, b, c] = [L::load(block), L::load(block.add(64)), L::load(block.add(128))];
            [
                scale::<L>(a, L::shl(c, 4)),
                scale::<L>(b, L::shl(c, 2)),
                scale::<L>(L::shr(a, 4), c),
                scale::<L>(L::shr(b, 4), L::shr(c, 2)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(part: *const u8) -> [L::Ints; 8] {
        // SAFETY: the caller has the registers; a part has three lines.
        unsafe {
            let [a, b, c] = [L::load(part), L::load(part.add(64)), L::load(part.add(128))];
            let (low, high) = (L::bytes(0x07), L::bytes(0x38));
            let [six, seven] = rest::<L>([L::shr(a, 2), L::shr(b, 4), L::shr(b, 1), L::shr(c, 3)], 3);
            [
                L::and(a, low),
                L::and(b, low),
                L::and(c, low),
                L::and(a, high),
                L::and(b, high),
                L::and(c, high),
                L::and(six, high),
                L::and(seven, high),
            ]
        }
    }
}

/// `(low & 15 | high & 0x30) - 32` of bytes.
///
/// # Safety
/// The processor has the registers.
#[inline(always)]
unsafe fn scale<L: Lanes>(low: L::Ints, high: L::Ints) -> L::Ints {
    // SAFETY: the caller's promise.
    unsafe {
        let code = L::or(L::and(low, L::bytes(15)), L::and(high, L::bytes(0x30)));
        L::sub_bytes(code, L::bytes(32))
    }
}

/// Units 6 and 7, their lowest bit at bit `at`, and other bits around them. The lines: 0, 1, 1 and 2, shifted so that
/// the bits are in place.
///
/// # Safety
/// The processor has the registers.
#[inline(always)]
unsafe fn rest<L: Lanes>([a6, b6, b7, c7]: [L::Ints; 4], at: u32) -> [L::Ints; 2] {
    // SAFETY: the caller's promise.
    unsafe { [L::select(L::bytes(0b110 << at), a6, b6), L::select(L::bytes(0b100 << at), b7, c7)] }
}

/// Expanded code 0: 128 + 4 * scale, in both bytes of the scale.
///
/// # Safety
/// The processor has the registers.
#[inline(always)]
unsafe fn zeros<L: Lanes>(scales: &[L::Ints; 8]) -> [L::Ints; 8] {
    let mut zeros = *scales;
    for zero in &mut zeros {
        // SAFETY: the caller's promise.
        *zero = unsafe {
            let twice = L::shuffle(L::add_words(*zero, *zero), [0, 0, 2, 2]);
            L::add_bytes(L::add_bytes(twice, twice), L::bytes(128))
        };
    }
    zeros
}

/// The bytes 128 - weight * scale of a part of register v of the rows, to the lines of `side`.
///
/// # Safety
/// The processor has the registers; the rows of the part's lines are readable.
#[inline(always)]
unsafe fn expand<L: Lanes>(part: *const u8, head: &Head<L>, zeros: &[L::Ints; 8], to: &mut Lines<L>, at: [usize; 2]) {
    // SAFETY: the caller's promise; a part has three lines.
    unsafe {
        let [a, b, c] = [L::load(part), L::load(part.add(64)), L::load(part.add(128))];
        let [six, seven] = rest::<L>([L::shr(a, 5), L::shr(b, 7), L::shr(b, 4), L::shr(c, 6)], 0);
        let codes = [a, b, c, L::shr(a, 3), L::shr(b, 3), L::shr(c, 3), six, seven];
        unroll!(J in [0 1 2 3 4 5 6 7] {
            // All modulo 256. Even bytes and odd bytes apart, or the product of one would carry into the other.
            let even = L::mul_words(L::and(codes[J], L::words(0x0007)), head.scales[J]);
            let odd = L::mul_words(L::and(codes[J], L::words(0x0700)), head.scales[J]);
            let product = L::select(L::words(0x00FF), even, odd);
            to[J][at[0]][at[1]] = L::sub_bytes(zeros[J], product);
        });
    }
}

/// The product with expanded parts, of up to [`super::chains::TILE`] tokens.
pub(crate) struct Expanded<S>(PhantomData<S>);

impl<S: Expands> Kernel for Expanded<S> {
    type Call<'a> = Product<'a, ()>;

    #[inline(always)]
    unsafe fn run(Product { group, acts, out, .. }: Self::Call<'_>) {
        let (tokens, vectors) = (out.len() / ROWS, const { vectors::<S::L>() });
        let (mut first, mut second) = (Tile::<S::L>::new(), Tile::new());
        // SAFETY: the caller has the instruction set; block b is there, of all activations too.
        unsafe {
            let mut tiles = [first.start(tokens), second.start(if vectors > 1 { tokens } else { 0 })];
            let mut lines: Lines<S::L> = [[[S::L::dwords(0); MOST]; MOST]; 8];
            for b in 0..acts.blocks {
                let y = acts.at.add(Q3K::ACT * b);
                let heads: [Head<S::L>; MOST] =
                    [Head::new::<Q3K>(group, b, 0), Head::new::<Q3K>(group, b, vectors - 1)];
                for v in 0..vectors {
                    start(tiles[v], S::L::sub(S::L::float(-0.0), heads[v].d), y, acts.stride);
                }
                let zeros = [zeros::<S::L>(&heads[0].scales), zeros::<S::L>(&heads[vectors - 1].scales)];
                for l in (0..CHAINS).step_by(vectors) {
                    for side in 0..vectors {
                        for v in 0..vectors {
                            let part = heads[v].parts.add(64 * Q3K::PART_LINES * (l + side));
                            expand(part, &heads[v], &zeros[v], &mut lines, [side, v]);
                        }
                    }
                    by_tokens!(t in tokens, S::TOKENS, T => for side in 0..vectors {
                        let y = y.add(acts.stride * t);
                        let mut starts = [[S::L::dwords(0); MOST]; T];
                        for (i, start) in starts.iter_mut().enumerate() {
                            *start = [S::L::broadcast(y.add(acts.stride * i + STARTS + 4 * (l + side))); MOST];
                        }
                        let quants = y.add(32 * (l + side));
                        let sums = <S as Sums<T>>::add_bytes(&lines, side, quants, acts.stride, starts);
                        step::<S::L, T>(&mut tiles, t, l + side, sums);
                    });
                }
            }
            for v in 0..vectors {
                finish_tile(tiles[v], v, out);
            }
        }
    }
}
