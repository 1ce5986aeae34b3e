//! Q6_K, as [`super::k16`] has it.
//!
//! Many tokens share the price of expanding a part to the products of weight and scale, which take 13 bits: two of them
//! to a lane meet two activations of 16 bits, to which those of a token are widened on the way. That is two
//! instructions for four weights instead of three or four.
//!
//! Bytes 0 and 2 of a dword of codes have the places of two scales in a lane, and so have bytes 1 and 3; activations
//! are put into that order as they are widened.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by rows, chain and token alike")]

use std::marker::PhantomData;

use super::chains::{Expands, Lines, MOST, Product, Sums, TILE, Tile, finish_tile, step, vectors};
use super::k16::{CodesOf16, Head, start};
use super::lanes::{Kernel, Lanes, by_tokens, unroll};
use crate::shared::packed::k_quants::of_16::Layout16;
pub(crate) use crate::shared::packed::k_quants::of_16::Q6K;
use crate::shared::packed::k_quants::{CHAINS, ROWS};

impl CodesOf16 for Q6K {
    const LOW: usize = 0;
    const ACT: usize = 576;

    #[inline(always)]
    unsafe fn scales<L: Lanes>(block: *const u8) -> [L::Ints; 4] {
        // SAFETY: the caller has the registers; a block begins with four lines of scales.
        unsafe { [L::load(block), L::load(block.add(64)), L::load(block.add(128)), L::load(block.add(192))] }
    }

    #[inline(always)]
    unsafe fn unpack<L: Lanes>(part: *const u8) -> [L::Ints; 8] {
        // SAFETY: the caller has the registers; a part has six lines.
        unsafe {
            let low6 = L::bytes(0x3F);
            let mut lines = [low6; 6];
            let mut codes = [low6; 8];
            for (k, line) in lines.iter_mut().enumerate() {
                *line = L::load(part.add(64 * k));
                codes[k] = L::and(*line, low6);
            }
            for (unit, lines) in codes[6..].iter_mut().zip(lines.as_chunks::<3>().0) {
                let upper = L::select(L::bytes(0x30), L::shr(lines[0], 2), L::shr(lines[1], 4));
                let all = L::select(L::bytes(0x3C), upper, L::shr(lines[2], 6));
                *unit = L::and(all, low6);
            }
            codes
        }
    }
}

/// The product with expanded parts, of up to [`TILE`] tokens.
pub(crate) struct Expanded<S>(PhantomData<S>);

impl<S: Expands> Kernel for Expanded<S> {
    type Call<'a> = Product<'a, ()>;

    #[inline(always)]
    unsafe fn run(Product { group, acts, out, .. }: Self::Call<'_>) {
        let (tokens, vectors) = (out.len() / ROWS, const { vectors::<S::L>() });
        let (mut first, mut second) = (Tile::<S::L>::new(), Tile::new());
        // The activations of one part or two of each token, in words.
        let mut wide = [[[0; 64]; MOST]; TILE];
        // SAFETY: the caller has the instruction set; block b is there, of all activations too.
        unsafe {
            let mut tiles = [first.start(tokens), second.start(if vectors > 1 { tokens } else { 0 })];
            let mut lines: [Lines<S::L>; 2] = [[[[S::L::dwords(0); MOST]; MOST]; 8]; 2];
            for b in 0..acts.blocks {
                let y = acts.at.add(Q6K::ACT * b);
                let heads: [Head<S::L>; MOST] =
                    [Head::new::<Q6K>(group, b, 0), Head::new::<Q6K>(group, b, vectors - 1)];
                for v in 0..vectors {
                    start(tiles[v], heads[v].d, y, acts.stride);
                }
                for l in (0..CHAINS).step_by(vectors) {
                    for side in 0..vectors {
                        for v in 0..vectors {
                            expand(&heads[v], l + side, &mut lines, [side, v]);
                        }
                        for (t, wide) in wide.iter_mut().take(tokens).enumerate() {
                            S::widen(y.add(acts.stride * t + 32 * (l + side)), &mut wide[side]);
                        }
                    }
                    by_tokens!(t in tokens, S::TOKENS, T => for side in 0..vectors {
                        let (y, stride) = (wide.as_ptr().add(t).cast::<u8>().add(64 * side), const { 64 * MOST });
                        let sums = [[S::L::dwords(0); MOST]; T];
                        let sums = <S as Sums<T>>::add_words(&lines[0], side, y, stride, sums);
                        let sums = <S as Sums<T>>::add_words(&lines[1], side, y.add(32), stride, sums);
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

/// Part `l` of a register of rows: products of bytes 0 and 2 of every dword, then of the others, at most 32 * 128 in
/// magnitude.
///
/// # Safety
/// The processor has the registers; the part is readable.
#[inline(always)]
unsafe fn expand<L: Lanes>(head: &Head<L>, l: usize, to: &mut [Lines<L>; 2], at: [usize; 2]) {
    // SAFETY: the caller's promise.
    unsafe {
        let codes = head.part::<Q6K>(l);
        let excess = L::words(Q6K::OFFSET);
        unroll!(J in [0 1 2 3 4 5 6 7] {
            let lines = &mut to[J / 4];
            let even = L::sub_words(L::and(codes[J], L::words(0xFF)), excess);
            let odd = L::sub_words(L::shr(codes[J], 8), excess);
            lines[2 * (J % 4)][at[0]][at[1]] = L::mul_words(even, head.scales[J]);
            lines[2 * (J % 4) + 1][at[0]][at[1]] = L::mul_words(odd, head.scales[J]);
        });
    }
}
