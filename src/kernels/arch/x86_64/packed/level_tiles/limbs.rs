//! Products of types whose scales are all in the integer of a block: block by block, all tokens over each.
//!
//! The expanded weights of a block, 8 KB, stay in the first-level cache. While the tiles of one step are multiplied,
//! the float chains of the step before advance and a part of the next block is expanded.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::super::level_bytes::{ACT, SCALE, act_bytes, put};
use super::super::level_lookup::Lookup;
use super::super::levels::Levels;
use super::super::ternary_tiles::step::{clear, columns, put_down, shapes};
use super::super::zmm::Zmm;
use super::{Product, Tiles};
use crate::arch::x86_64::rows::chains::Acts;
use crate::arch::x86_64::rows::lanes::Lanes;
use crate::arch::x86_64::tiles::{self, Tokens};
use crate::shared::packed::k_quants::{BLOCK, ROWS};

/// Steps of 64 weights in a block, a tile each.
const STEPS: usize = BLOCK / tiles::ROW;
/// Bytes of one limb of a block.
const LIMB: usize = STEPS * tiles::TILE;

pub(super) struct Limbs;

impl Product for Limbs {
    const FROM: usize = 12;

    #[inline(always)]
    unsafe fn product<T: Tiles, C: Levels>(group: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
        // SAFETY: the caller has seen to it.
        unsafe { product::<T, C>(group, acts, n, tokens, out) }
    }
}

/// Expanded weights of the block in work and of the next, lower limbs first, and the integer sums of the step in work
/// and of the last: lower and upper of a tile of tokens, and of the next.
#[repr(C, align(64))]
struct Scratch {
    weights: [[[u8; LIMB]; 2]; 2],
    isums: [[[i32; 256]; 4]; 2],
}

/// Expands units `2 part` and `2 part + 1` of a block to their places in both limbs.
///
/// # Safety
/// The processor has AVX-512 with VBMI; the block is readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn expand<C: Levels>(lookup: Lookup, block: *const u8, to: *mut [u8; LIMB], part: usize) {
    let lower_byte = _mm512_set1_epi16(0x00FF);
    let half = _mm512_set1_epi16(128);
    // SAFETY: the block has its scales and units, each limb two dozen lines for every part.
    unsafe {
        let (lower, upper) = (to.cast::<u8>(), to.add(1).cast::<u8>());
        for j in [2 * part, 2 * part + 1] {
            let levels = lookup.unit::<C>(block.add(C::CODES + 64 * C::UNIT_LINES * j));
            let scales = scales_of_unit::<C>(block, j);
            for (k, levels) in levels.into_iter().enumerate() {
                // `maddubs` multiplies a byte with the scale and its neighbour with zero.
                let scale = scales[k / 4];
                let even = _mm512_maddubs_epi16(scale, levels);
                let odd = _mm512_maddubs_epi16(_mm512_slli_epi16::<8>(scale), levels);
                let join = |even, odd| _mm512_ternarylogic_epi32::<0xCA>(lower_byte, even, odd);
                let line = 64 * (8 * j + k);
                let low = join(even, _mm512_slli_epi16::<8>(odd));
                _mm512_store_si512(lower.add(line).cast(), low);
                // What the lower limb is as a byte with a sign is taken from the product: upper limbs are rounded.
                let (even, odd) = (_mm512_add_epi16(even, half), _mm512_add_epi16(odd, half));
                let high = join(_mm512_srli_epi16::<8>(even), odd);
                _mm512_store_si512(upper.add(line).cast(), high);
            }
        }
    }
}

/// The scales of the two halves of unit `j`, each at bytes 0 and 2 of its row's dword, zeros beside it.
///
/// # Safety
/// The processor has AVX-512; the block is readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn scales_of_unit<C: Levels>(block: *const u8, j: usize) -> [__m512i; 2] {
    let (line, bytes) = match C::OF_16 {
        true => (j / 2, [2 * (j % 2), 2 * (j % 2) + 1]),
        false => (j / 4, [j % 4; 2]),
    };
    // SAFETY: the caller's block has this line.
    let line = unsafe { Zmm::load(block.add(C::SCALES + 64 * line)) };
    const NONE: i32 = 0x8000_8000u32.cast_signed();
    const DWORD: i32 = 0x0004_0004;
    let first = _mm_setr_epi32(NONE, NONE + DWORD, NONE + 2 * DWORD, NONE + 3 * DWORD);
    let first = _mm512_broadcast_i32x4(first);
    bytes.map(|byte| {
        let byte = _mm512_set1_epi32(byte as i32 * 0x0001_0001);
        _mm512_shuffle_epi8(line, _mm512_add_epi32(first, byte))
    })
}

/// A step whose integer sums are known and whose float chains have not advanced yet.
#[derive(Clone, Copy)]
struct Pending {
    isums: *const [i32; 256],
    /// The packed block, which begins with the scales of its rows.
    block: *const u8,
    /// Its number.
    b: usize,
    /// The first of one or two tiles of tokens.
    tile: usize,
    pair: bool,
}

/// Where products get their tokens and put their sums.
struct Sums {
    acts: Acts,
    tokens: Tokens,
    out: *mut f32,
    /// Sums of the last tile, where it overlaps the one before: they would be added to twice.
    last: *mut f32,
}

impl Sums {
    /// Advances the chains of half of a tile's tokens: of tile `part / 2` of a pending step.
    ///
    /// # Safety
    /// The processor has AVX-512; the sums of the step are readable, those of the tokens writable.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn settle(&self, pending: &Pending, part: usize) {
        if part >= 2 && !pending.pair {
            return;
        }
        let tile = pending.tile + part / 2;
        let first = self.tokens.start(tile);
        // SAFETY: as the caller says.
        unsafe {
            let sums = match first == tile * tiles::ROWS {
                true => self.out.add(first * ROWS),
                false => self.last,
            };
            let acts = self.acts.at.add(self.acts.stride * first + ACT * pending.b);
            let isums = pending.isums.add(part / 2 * 2).cast::<i32>();
            let d = Zmm::halves(pending.block);
            let from = 8 * (part % 2);
            for t in from..self.tokens.rows.min(from + 8) {
                let lower = _mm512_load_si512(isums.add(ROWS * t).cast());
                let upper = _mm512_load_si512(isums.add(256 + ROWS * t).cast());
                let isum = _mm512_add_epi32(lower, _mm512_slli_epi32::<8>(upper));
                let dy = Zmm::broadcast(acts.add(self.acts.stride * t + SCALE));
                let d = _mm512_mul_ps(d, _mm512_castsi512_ps(dy));
                let sum = sums.add(ROWS * t);
                _mm512_storeu_ps(sum, Zmm::step(_mm512_loadu_ps(sum), d, isum));
            }
        }
    }
}

/// One step: a pair of tiles of tokens, or one, with one block.
///
/// # Safety
/// The processor has AVX-512 F and BW, the process [`crate::Level::Amx`] where the tiles are the processor's; the tiles
/// are set up, `q` points at the block's activations of each token, `stride` bytes apart, `weights` at its expanded
/// limbs, and `isums` has room for the tiles of sums.
#[inline(always)]
unsafe fn multiply<T: Tiles, const PAIR: bool>(
    m: &mut T,
    q: [*const u8; 2],
    stride: usize,
    weights: *const [u8; LIMB],
    isums: *mut [i32; 256],
    mut beside: impl FnMut(usize),
) {
    // SAFETY: the caller has the block of all tokens, its expanded weights and room for the sums.
    unsafe {
        clear::<T, PAIR>(m);
        for step in 0..STEPS {
            let q = q.map(|q| q.add(tiles::ROW * step));
            let limbs = [weights, weights.add(1)].map(|limb| limb.cast::<u8>().add(tiles::TILE * step));
            columns::<T, true, PAIR>(m, q, stride, limbs);
            beside(step);
        }
        put_down::<T, PAIR>(m, isums);
    }
}

/// # Safety
/// The processor has AVX-512 F and BW, the process [`crate::Level::Amx`] where the tiles are the processor's; lengths
/// are as [`Call::check`] has them, and there are at least 16 tokens.
#[inline(always)]
unsafe fn product<T: Tiles, C: Levels>(group: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
    let tokens = Tokens::new(tokens);
    let mut scratch = MaybeUninit::<Scratch>::uninit();
    let mut last = [0f32; tiles::ROWS * ROWS];
    out.fill(0.0);
    let sums = Sums {
        acts: Acts { at: acts.as_ptr(), blocks: n / BLOCK, stride: act_bytes(n) },
        tokens,
        out: out.as_mut_ptr(),
        last: last.as_mut_ptr(),
    };
    let (blocks, stride) = (sums.acts.blocks, sums.acts.stride);
    let mut pending: Option<Pending> = None;
    // SAFETY: the caller has the tiles and says that all lengths fit; scratch memory is written before it is read.
    unsafe {
        let lookup = Lookup::new::<C, 0>();
        let scratch = scratch.as_mut_ptr();
        let weights = (&raw mut (*scratch).weights).cast::<[[u8; LIMB]; 2]>();
        let isums = (&raw mut (*scratch).isums).cast::<[[i32; 256]; 4]>();
        let mut m = T::with_rows(shapes(tokens));
        for part in 0..STEPS.min(STEPS * blocks) {
            expand::<C>(lookup, group.as_ptr(), weights.cast(), part);
        }
        let mut turn = 0;
        for b in 0..blocks {
            let block = group.as_ptr().add(C::BYTES_OF_GROUP * b);
            let here = weights.add(b % 2).cast::<[u8; LIMB]>().cast_const();
            let next = weights.add((b + 1) % 2).cast::<[u8; LIMB]>();
            for tile in (0..tokens.tiles).step_by(2) {
                let pair = tile + 1 < tokens.tiles;
                let q = |tile: usize| {
                    let first = tokens.start(tile.min(tokens.tiles - 1));
                    sums.acts.at.add(stride * first + ACT * b)
                };
                let q = [q(tile), q(tile + 1)];
                let isums = isums.add(turn % 2).cast::<[i32; 256]>();
                let expands = tile == 0 && b + 1 < blocks;
                let beside = |part: usize| {
                    if let Some(pending) = &pending {
                        sums.settle(pending, part);
                    }
                    if expands {
                        expand::<C>(lookup, block.add(C::BYTES_OF_GROUP), next, part);
                    }
                };
                if pair {
                    multiply::<T, true>(&mut m, q, stride, here, isums, beside);
                } else {
                    multiply::<T, false>(&mut m, q, stride, here, isums, beside);
                }
                pending = Some(Pending { isums, block, b, tile, pair });
                turn += 1;
            }
        }
        for part in 0..STEPS {
            if let Some(pending) = &pending {
                sums.settle(pending, part);
            }
        }
    }
    let first = tokens.start(tokens.tiles - 1);
    if first != (tokens.tiles - 1) * tiles::ROWS {
        out[first * ROWS..].copy_from_slice(&last);
    }
    for out in out.chunks_exact_mut(ROWS) {
        // SAFETY: 16 floats.
        unsafe { put::<C>(_mm512_loadu_ps(out.as_ptr()), out.as_mut_ptr()) }
    }
}
