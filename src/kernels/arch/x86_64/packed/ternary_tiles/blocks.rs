//! Products of types with scales: block by block, all tokens over each.

use std::mem::MaybeUninit;

use super::super::PrefetchDistance;
use super::super::t2::{self, Act, ROWS, SCALES};
use super::super::ternary_bytes::{COLUMNS, Codes, HALF};
use super::machine::Machine;
use super::step::{clear, columns, put_down, shapes};
use super::{STEP, STEPS};
use crate::arch::x86_64::tiles::{self, Tokens};

/// Expanded weights of the block in work and of the next, and integer sums of the step in work and of the last.
#[repr(C, align(64))]
struct Scratch {
    weights: [[[u8; HALF]; 2]; 2],
    isums: [[[i32; 256]; 4]; 2],
}

/// A step whose integer sums are known and whose float chains have not advanced yet.
#[derive(Clone, Copy)]
struct Pending<S> {
    isums: *const [i32; 256],
    scales: [S; 2],
    /// The first of one or two tiles of tokens.
    tile: usize,
    pair: bool,
    block: usize,
}

/// Products of types with scales.
struct Blocks<'a> {
    acts: &'a [u8],
    act_bytes: usize,
    n: usize,
    tokens: Tokens,
    /// Prefetch distance behind the codes that are unpacked, bytes.
    ahead: usize,
    out: *mut f32,
    /// Sums of the last tile, where it overlaps the one before: they would be added to twice.
    last: *mut f32,
}

impl Blocks<'_> {
    /// The float chains of tile `part / 2` of a pending step, rows `16 (part % 2)` on.
    ///
    /// # Safety
    /// The processor has the instructions of `M`; the sums and scales of the pending step, and the sums of its tile of
    /// tokens, are there.
    #[inline(always)]
    unsafe fn settle<M: Machine>(&self, pending: &Pending<M::Scales>, part: usize) {
        if part >= 2 && !pending.pair {
            return;
        }
        let (tile, half) = (pending.tile + part / 2, part % 2);
        let first = self.tokens.start(tile);
        // SAFETY: sums of every token of the tile, and the scales of its blocks, are there.
        unsafe {
            let sums = match first == tile * tiles::ROWS {
                true => self.out.add(first * ROWS),
                false => self.last,
            };
            let dy = Act::new(&self.acts[first * self.act_bytes..][..self.act_bytes], self.n).scales.add(pending.block);
            M::settle(
                pending.isums.add(part).cast(),
                pending.scales[half],
                dy,
                self.act_bytes / 4,
                self.tokens.rows,
                sums.add(16 * half),
            );
        }
    }

    /// One step: a pair of tiles of tokens, or one, with one block.
    ///
    /// # Safety
    /// The processor has the instructions of `M` and `C`; the tiles are set up, the tokens of the tiles have block
    /// `block`, `weights` points at its unpacked halves, `isums` has room for the tiles of sums, and pointers of
    /// `pending` and `next` are to what these need.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "what a step is made of")]
    unsafe fn step<M: Machine, C: Codes, const PAIR: bool>(
        &self,
        m: &mut M,
        codes: &C,
        tile: usize,
        block: usize,
        weights: *const [u8; HALF],
        isums: *mut [i32; 256],
        pending: Option<&Pending<M::Scales>>,
        next: Option<(*const u8, *mut [u8; HALF])>,
    ) {
        let q = |tile: usize| {
            let first = self.tokens.start(tile) * self.act_bytes;
            self.acts[first..].as_ptr().wrapping_add(256 * block)
        };
        let q = [q(tile), if PAIR { q(tile + 1) } else { q(tile) }];
        // SAFETY: the block has its codes and activations, the buffers their sizes.
        unsafe {
            clear::<M, PAIR>(m);
            for step in 0..STEPS {
                let q = q.map(|q| q.add(STEP * step));
                let weights = [weights, weights.add(1)].map(|half| half.cast::<u8>().add(tiles::TILE * step));
                columns::<M, true, PAIR>(m, q, self.act_bytes, weights);
                if let Some(pending) = pending {
                    self.settle::<M>(pending, step);
                }
                if let Some((block, to)) = next {
                    unpack_part(codes, block, to, self.ahead, step);
                }
            }
            put_down::<M, PAIR>(m, isums);
        }
    }
}

/// The part of a block that is unpacked in a step: a unit of half of the rows, or nothing in every other step where the
/// block is one unit.
///
/// # Safety
/// The processor has the instructions of `C`; `block` points at a block, and `to` has room for its unpacked halves.
#[inline(always)]
unsafe fn unpack_part<C: Codes>(codes: &C, block: *const u8, to: *mut [u8; HALF], ahead: usize, part: usize) {
    let (half, unit) = (part / 2, part % 2);
    if unit < COLUMNS / C::UNIT {
        // SAFETY: the block has its units, each half of the result 64 lines.
        unsafe {
            let from = block.add(SCALES + unit * C::BYTES);
            let to = to.add(half).cast::<u8>().add(16 * C::UNIT * unit);
            codes.unpack::<true>(from, half, ahead, to);
        }
    }
}

/// # Safety
/// The processor has the machine's instructions; lengths as [`super::check`] has them.
#[inline(always)]
pub(super) unsafe fn blocks<M: Machine, C: Codes>(
    codes: C,
    group: &[u8],
    acts: &[u8],
    n: usize,
    tokens: usize,
    ahead: usize,
    out: &mut [f32],
) {
    let tokens = Tokens::new(tokens);
    let mut scratch = MaybeUninit::<Scratch>::uninit();
    let mut last = [0f32; tiles::ROWS * ROWS];
    out.fill(0.0);
    let product = Blocks {
        acts,
        act_bytes: t2::act_bytes_q8_k(n),
        n,
        tokens,
        ahead,
        out: out.as_mut_ptr(),
        last: last.as_mut_ptr(),
    };
    let block_bytes = C::BLOCK;
    let count = group.len() / block_bytes;
    let mut pending: Option<Pending<M::Scales>> = None;
    // SAFETY: the caller has the tiles and says that all lengths fit; scratch memory is written before it is read.
    unsafe {
        let (weights, isums) = {
            let scratch = scratch.as_mut_ptr();
            (
                (&raw mut (*scratch).weights).cast::<[[u8; HALF]; 2]>(),
                (&raw mut (*scratch).isums).cast::<[[i32; 256]; 4]>(),
            )
        };
        let mut m = M::with_rows(shapes(tokens));
        for part in 0..STEPS.min(4 * count) {
            unpack_part(&codes, group.as_ptr(), weights.cast(), ahead, part);
        }
        let mut turn = 0;
        for b in 0..count {
            let block = group.as_ptr().add(b * block_bytes);
            ahead.line(block);
            let scales = [M::scales(block), M::scales(block.add(SCALES / 2))];
            let here = weights.add(b % 2).cast::<[u8; HALF]>();
            let mut next = (b + 1 < count).then(|| (block.add(block_bytes), weights.add((b + 1) % 2).cast()));
            for tile in (0..tokens.tiles).step_by(2) {
                let pair = tile + 1 < tokens.tiles;
                let isums = isums.add(turn % 2).cast::<[i32; 256]>();
                let (before, after) = (pending.as_ref(), next.take());
                if pair {
                    product.step::<M, C, true>(&mut m, &codes, tile, b, here, isums, before, after);
                } else {
                    product.step::<M, C, false>(&mut m, &codes, tile, b, here, isums, before, after);
                }
                pending = Some(Pending { isums, scales, tile, pair, block: b });
                turn += 1;
            }
        }
        for part in 0..4 {
            if let Some(pending) = &pending {
                product.settle::<M>(pending, part);
            }
        }
    }
    let first = tokens.start(tokens.tiles - 1);
    if first != (tokens.tiles - 1) * tiles::ROWS {
        out[first * ROWS..].copy_from_slice(&last);
    }
}
