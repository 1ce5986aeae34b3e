//! Products of half floats in tiles of AMX, with the bits of a sum in order.
//!
//! The definition adds exact products to an `f64`, column by column. Weights are whole multiples `W` of a unit for each
//! row, activations whole multiples `X` for each token, and tiles of bytes add up `W X` exactly, limb by limb. While no
//! sum on the way exceeds 2^53 in units, the definition rounds nothing, and its result is this very integer.
//!
//! **Bound.** Within a block of columns every sum on the way is at most `|S| + E + |w| |x|`: the sum before it, what
//! the definition may be off by then, and the norms of the block, by Cauchy and Schwarz. Where that exceeds 2^53 for a
//! row and a token, `E` grows by 2^-53 of it for each addition of the block and for the two roundings here. At the end
//! `S - E` and `S + E` round to the same `f32`, or the token is multiplied in order. Nothing is cancelled to the wrong
//! zero: with `E = 0` a sum of nothing is +0 as in the definition, and with `E > 0` zeros differ in sign and are
//! multiplied in order.
//!
//! **Tiles.** Limbs `a` of activations and `b` of weights meet in level `a + b`, a tile of sums of 16 tokens and 16
//! rows. At most four products of bytes are added there in each column of a block, 2^27 in all. While the tiles of one
//! step are multiplied, the levels of the step before become sums.

use std::arch::x86_64::*;

use super::half_levels::{SUMS, columns, round, value};
use super::half_limbs::{self, BLOCK, HALF, Head, LIMBS, Parts, STEP, WEIGHT_LIMBS, Weights};
use crate::arch::packed::half::{self, QUAD};
use crate::arch::x86_64::tiles::{Hardware, ROW, ROWS, TILE, Tiles, Tokens};
use crate::proof::{Amx, Avx512, Proof};
use crate::shared::halves::{LANES, STEPS};
use crate::shared::packed::{Arranged, Call, Layout, spans};
use crate::{AlignedBytes, Isa};

/// Tokens from which on tiles are faster than a sum in order where weights come from memory, which the expansion of a
/// block has to wait for; with weights in the cache six would do. A product of tiles takes as long for one token as for
/// 16.
const FROM: usize = 10;
/// Tokens of a call: many for few expansions, and few enough that their planes stay in the second-level cache.
const TOKENS: usize = 256;

/// Room for the levels of a tile.
const LEVELS: usize = LIMBS + WEIGHT_LIMBS - 1;

/// Every integer up to here is an `f64`; a little less, so that the bound may be rounded.
const EXACT: f64 = (1u64 << 53) as f64 * (1.0 - 1e-9);
/// 2^-53 for each column of a block and each rounding here, and a fifth more for the rounding of the bound itself.
const ERROR: f64 = 1.2 * BLOCK as f64 / (1u64 << 53) as f64;

const F16: Layout = Layout {
    needs: Amx::NEEDS,
    name: "f16 x32 in tiles",
    acts: Arranged::F16WithLimbs,
    act_bytes: |n| Parts::of(n).bytes,
    arrange,
    multiply,
    tile: TOKENS,
    ..half::f16::<Avx512>()
};

pub(super) static LAYOUTS: &[Layout] = &[F16];

fn arrange(isa: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    let _avx512 = Avx512::of(isa);
    half::arrange_f16::<Avx512>(isa, act, n, &mut out[..half::act_bytes_f16(n)]);
    // SAFETY: `_avx512` proves these instructions.
    unsafe { half_limbs::arrange(act, n, out) };
}

fn multiply(call: Call<'_>) {
    let Call { isa, group, acts, n, tokens, ahead, out } = call.check(&F16);
    // SAFETY: `check` has seen the proof of the tiles and compared all lengths.
    unsafe { multiply_in::<Hardware>(isa, group, acts, n, tokens, ahead, out) }
}

/// The layout over tiles in memory.
#[cfg(test)]
pub(super) mod software {
    use super::*;
    use crate::arch::x86_64::tiles::Software;

    const IN_MEMORY: Layout = Layout {
        needs: Avx512::NEEDS,
        name: "f16 x32 in tiles in memory",
        multiply: |call| {
            let Call { isa, group, acts, n, tokens, ahead, out } = call.check(&IN_MEMORY);
            // SAFETY: `check` has seen the proof of AVX-512 and compared all lengths.
            unsafe { multiply_in::<Software>(isa, group, acts, n, tokens, ahead, out) }
        },
        ..F16
    };

    pub(in super::super) static LAYOUTS: &[Layout] = &[IN_MEMORY];
}

/// # Safety
/// The process has the tiles, and AVX-512; lengths as [`Call::check`] has them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn multiply_in<T: Tiles>(
    isa: Isa,
    group: &[u8],
    acts: &[u8],
    n: usize,
    tokens: usize,
    ahead: usize,
    out: &mut [f32],
) {
    let parts = Parts::of(n);
    let in_order = |from: usize, to: usize, out: &mut [f32]| {
        let acts = &acts[from * parts.bytes..to * parts.bytes];
        let out = &mut out[from * LANES..to * LANES];
        half::products_f16(isa, group, acts, parts.bytes, n, ahead, out);
    };
    if tokens < FROM || n == 0 {
        return in_order(0, tokens, out);
    }
    let (head, words) = group.split_at(spans::HEAD);
    let weights = Weights::of(head);
    if weights.limbs > WEIGHT_LIMBS {
        return in_order(0, tokens, out);
    }
    // SAFETY: the caller has the tiles.
    let mut product = unsafe { Product::<T>::new(&weights, words, acts, parts, tokens, out) };
    // SAFETY: the caller has tiles and vectors, and all lengths were compared.
    unsafe {
        match weights.limbs {
            ..=2 => product.run::<2>(),
            _ => product.run::<3>(),
        }
    }
    let open = std::mem::take(&mut product.open);
    drop(product);
    let mut from = 0;
    while let Some(first) = open[from..].iter().position(|open| *open) {
        let first = from + first;
        let more = open[first..].iter().position(|open| !*open);
        from = more.map_or(tokens, |more| first + more);
        in_order(first, from, out);
    }
}

/// Prefetches bytes behind `p`, which need not be there.
#[inline(always)]
fn prefetch(p: *const u8, bytes: std::ops::Range<usize>) {
    for at in bytes.step_by(ROW) {
        // SAFETY: every x86-64 processor has the instruction, which takes any address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.wrapping_add(at).cast()) };
    }
}

/// A tile of levels that has been multiplied.
#[derive(Clone, Copy)]
struct Done {
    levels: *const i32,
    count: usize,
    /// First token.
    token: usize,
    half: usize,
    block: usize,
    /// Sums and errors of the tile.
    sums: *mut f64,
}

struct Product<'a, T> {
    tiles: T,
    weights: &'a Weights,
    words: &'a [u8],
    acts: &'a [u8],
    parts: Parts,
    tokens: Tokens,
    out: &'a mut [f32],
    /// Most limbs of each tile of tokens.
    limbs: Vec<usize>,
    /// Tokens that have to be multiplied in order.
    open: Vec<bool>,
    /// Norms of the rows of a block and of the one before, in whole numbers' units.
    norms: [[[f64; HALF]; 2]; 2],
}

impl<'a, T: Tiles> Product<'a, T> {
    /// # Safety
    /// The process has the tiles.
    unsafe fn new(
        weights: &'a Weights,
        words: &'a [u8],
        acts: &'a [u8],
        parts: Parts,
        tokens: usize,
        out: &'a mut [f32],
    ) -> Self {
        // SAFETY: every token has a head.
        let limbs = |t: usize| unsafe { Head::load(acts.as_ptr().add(t * parts.bytes + parts.head)).limbs };
        let limbs: Vec<usize> = (0..tokens).map(limbs).collect();
        let tokens = Tokens::new(tokens);
        let most = |tile: usize| {
            let tile = &limbs[tokens.start(tile)..][..tokens.rows];
            let fitting = tile.iter().filter(|&&limbs| limbs <= LIMBS);
            fitting.copied().max().unwrap_or(0)
        };
        let rows = tokens.rows as u8;
        // The last is a level where there are seven limbs, and weights where these have two.
        let last = if weights.limbs > 2 { rows } else { ROWS as u8 };
        let shapes = [rows, ROWS as u8, rows, rows, rows, rows, rows, last];
        Product {
            // SAFETY: the caller has them.
            tiles: unsafe { T::with_rows(shapes) },
            weights,
            words,
            acts,
            parts,
            tokens,
            out,
            limbs: (0..tokens.tiles).map(most).collect(),
            open: limbs.iter().map(|&limbs| limbs > LIMBS).collect(),
            norms: [[[0.0; HALF]; 2]; 2],
        }
    }

    /// All products, of weights with `W` limbs.
    ///
    /// # Safety
    /// AVX-512, and lengths as [`Call::check`] has them.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn run<const W: usize>(&mut self) {
        let tiles = self.tokens.tiles;
        let levels_bytes = 2 * LEVELS * SUMS * 4;
        let planes_bytes = 2 * BLOCK / STEP * W * TILE;
        let mut scratch = AlignedBytes::scratch(levels_bytes + planes_bytes + tiles * 2 * 2 * SUMS * 8);
        let (levels, rest) = scratch.split_at_mut(levels_bytes);
        let (planes, sums) = rest.split_at_mut(planes_bytes);
        let (planes, levels) = (planes.as_mut_ptr(), levels.as_mut_ptr().cast::<i32>());
        let sums = sums.as_mut_ptr().cast::<f64>();
        let mut done: Option<Done> = None;
        let mut turn = 0;
        for (block, words) in self.words.chunks(BLOCK / STEPS * QUAD).enumerate() {
            let steps = words.len().div_ceil(STEP / STEPS * QUAD);
            // SAFETY: the planes have room for a block, the pointers stay within what was counted above, tokens have
            // planes of all columns in whole steps, and the caller has AVX-512.
            unsafe {
                self.weights.expand::<W>(words, planes, &mut self.norms[block % 2]);
                for tile in 0..tiles {
                    // Without a token that has planes all are left to the sum in order.
                    if self.limbs[tile] == 0 {
                        continue;
                    }
                    let token = self.tokens.start(tile);
                    let acts = self.acts.as_ptr().add(token * self.parts.bytes + self.parts.planes);
                    let acts = acts.add(block * BLOCK * LIMBS);
                    for half in 0..2 {
                        let weights = planes.add(half * steps * W * TILE);
                        let next = Done {
                            levels: levels.add(turn * LEVELS * SUMS),
                            count: W - 1 + self.limbs[tile].max(3),
                            token,
                            half,
                            block,
                            sums: sums.add((2 * tile + half) * 2 * SUMS),
                        };
                        // The part of the next block's words, or of the next group's, that is prefetched meanwhile.
                        let part = |i: usize| words.len() / ROW * i / (2 * tiles) * ROW;
                        let (from, to) = (part(2 * tile + half), part(2 * tile + half + 1));
                        let coming = (words.as_ptr().wrapping_add(words.len() + from), to - from);
                        match self.limbs[tile] {
                            4 => self.tile::<W, 4>(steps, acts, weights, coming, (done, next)),
                            _ => self.tile::<W, 3>(steps, acts, weights, coming, (done, next)),
                        }
                        done = Some(next);
                        turn ^= 1;
                    }
                }
            }
        }
        if let Some(done) = done {
            // SAFETY: levels and sums of a tile as before.
            unsafe { self.settle(done, 0, self.tokens.rows) };
        }
    }

    /// One tile of levels over all steps of a block, to `next`; `done` is settled meanwhile, and `coming` prefetched.
    ///
    /// # Safety
    /// AVX-512; planes of `steps` steps, and room for levels and sums.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn tile<const W: usize, const X: usize>(
        &mut self,
        steps: usize,
        acts: *const u8,
        weights: *const u8,
        coming: (*const u8, usize),
        (done, next): (Option<Done>, Done),
    ) {
        // SAFETY: the caller has the planes and the room.
        unsafe {
            let t = &mut self.tiles;
            t.clear::<2>();
            t.clear::<3>();
            t.clear::<4>();
            t.clear::<5>();
            t.clear::<6>();
            if W + X == 7 {
                t.clear::<7>();
            }
            let mut settled = 0;
            for step in 0..steps {
                let acts = acts.add(step * LIMBS * STEP);
                let weights = weights.add(step * W * TILE);
                let part = |i: usize| coming.1 / ROW * i / steps * ROW;
                prefetch(coming.0, part(step)..part(step + 1));
                columns::<T, W, X>(&mut self.tiles, acts, self.parts.bytes, weights);
                if let Some(done) = done {
                    let to = (step + 1) * self.tokens.rows / steps;
                    self.settle(done, settled, to);
                    settled = to;
                }
            }
            let t = &mut self.tiles;
            let to = next.levels.cast_mut();
            t.store::<2>(to);
            t.store::<3>(to.add(SUMS));
            t.store::<4>(to.add(2 * SUMS));
            t.store::<5>(to.add(3 * SUMS));
            if W + X > 5 {
                t.store::<6>(to.add(4 * SUMS));
            }
            if W + X > 6 {
                t.store::<7>(to.add(5 * SUMS));
            }
        }
    }

    /// Adds the levels of tokens `from..to` of a tile to the sums; after the last block, rounds these to outputs.
    ///
    /// # Safety
    /// AVX-512; levels and sums of a tile.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn settle(&mut self, done: Done, from: usize, to: usize) {
        let last = (done.block + 1) * BLOCK / STEPS * QUAD >= self.words.len();
        let norms = &self.norms[done.block % 2][done.half];
        for row in from..to {
            let token = done.token + row;
            // SAFETY: a token with its parts, eight sums of each quarter of the tile's row, and the output of a token.
            unsafe {
                let act = self.acts.as_ptr().add(token * self.parts.bytes);
                let norm = act.add(self.parts.norms + 8 * done.block).cast::<f64>();
                let norm = _mm512_set1_pd(norm.read_unaligned());
                let (mut sums, mut errors) = ([_mm512_setzero_pd(); 2], [_mm512_setzero_pd(); 2]);
                for i in 0..2 {
                    let at = HALF * row + 8 * i;
                    let value = match done.count {
                        4 => value::<4>(done.levels.add(at)),
                        5 => value::<5>(done.levels.add(at)),
                        _ => value::<6>(done.levels.add(at)),
                    };
                    if done.block > 0 {
                        sums[i] = _mm512_load_pd(done.sums.add(at));
                        errors[i] = _mm512_load_pd(done.sums.add(SUMS + at));
                    }
                    let before = _mm512_add_pd(_mm512_abs_pd(sums[i]), errors[i]);
                    let norms = _mm512_loadu_pd(norms.as_ptr().add(8 * i));
                    let bound = _mm512_fmadd_pd(norm, norms, before);
                    let rounded = _mm512_cmp_pd_mask::<_CMP_GT_OQ>(bound, _mm512_set1_pd(EXACT));
                    let error = _mm512_set1_pd(ERROR);
                    errors[i] = _mm512_mask3_fmadd_pd(bound, error, errors[i], rounded);
                    sums[i] = _mm512_add_pd(sums[i], value);
                    if !last {
                        _mm512_store_pd(done.sums.add(at), sums[i]);
                        _mm512_store_pd(done.sums.add(SUMS + at), errors[i]);
                    }
                }
                if last {
                    let unit = Head::load(act.add(self.parts.head)).unit;
                    let units = &self.weights.units[done.half];
                    let out = &mut self.out[token * LANES + done.half * HALF..][..HALF];
                    if !round(sums, errors, unit, units, out) {
                        self.open[token] = true;
                    }
                }
            }
        }
    }
}
