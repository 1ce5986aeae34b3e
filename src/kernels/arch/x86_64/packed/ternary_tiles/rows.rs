//! Products of types with one scale: rows are unpacked from end to end, and sums stay in the tiles all the way.

use std::mem::MaybeUninit;

use super::super::t2::ROWS;
use super::super::ternary_bytes::Codes;
use super::STEP;
use super::machine::Machine;
use super::step::{clear, columns, put_down, shapes};
use crate::AlignedBytes;
use crate::arch::x86_64::tiles::{self, Tokens};

/// Integer sums of a step: two tiles of tokens, each with two of rows.
#[repr(C, align(64))]
struct Sums([[i32; 256]; 4]);

/// # Safety
/// The processor has the machine's instructions; lengths as [`super::check`] has them, and `n` columns in every row.
#[inline(always)]
pub(super) unsafe fn rows<M: Machine, C: Codes>(
    codes: C,
    group: &[u8],
    acts: &[u8],
    n: usize,
    tokens: usize,
    ahead: usize,
    out: &mut [f32],
) {
    let tokens = Tokens::new(tokens);
    let stride = acts.len() / tokens.count;
    let mut weights = AlignedBytes::scratch(ROWS * n);
    let mut isums = MaybeUninit::<Sums>::uninit();
    // SAFETY: the caller has the tiles and says that all lengths fit; scratch memory is written before it is read.
    unsafe {
        let isums = isums.as_mut_ptr().cast::<[i32; 256]>();
        let halves = [weights.as_mut_ptr(), weights.as_mut_ptr().add(16 * n)];
        for unit in 0..n / C::UNIT {
            let from = group.as_ptr().add(unit * C::BYTES);
            for (half, to) in halves.into_iter().enumerate() {
                codes.unpack::<false>(from, half, ahead, to.add(16 * C::UNIT * unit));
            }
        }
        let halves = halves.map(|half| half.cast_const());
        let mut m = M::with_rows(shapes(tokens));
        for tile in (0..tokens.tiles).step_by(2) {
            let pair = tile + 1 < tokens.tiles;
            let act = |tile: usize| acts[tokens.start(tile) * stride..].as_ptr();
            let heads = [act(tile), act(tile + usize::from(pair))];
            let at = |step: usize| {
                (heads.map(|head| head.add(64 + STEP * step)), halves.map(|half| half.add(tiles::TILE * step)))
            };
            if pair {
                clear::<M, true>(&mut m);
                for step in 0..n / STEP {
                    let (q, weights) = at(step);
                    columns::<M, false, true>(&mut m, q, stride, weights);
                }
                put_down::<M, true>(&m, isums);
            } else {
                clear::<M, false>(&mut m);
                for step in 0..n / STEP {
                    let (q, weights) = at(step);
                    columns::<M, false, false>(&mut m, q, stride, weights);
                }
                put_down::<M, false>(&m, isums);
            }
            for part in 0..if pair { 4 } else { 2 } {
                let first = tokens.start(tile + part / 2);
                for t in 0..tokens.rows {
                    let to = out.as_mut_ptr().add((first + t) * ROWS + 16 * (part % 2));
                    let isums = isums.add(part).cast::<i32>().add(16 * t);
                    M::finish(isums, heads[part / 2].add(t * stride), to);
                }
            }
        }
    }
}
