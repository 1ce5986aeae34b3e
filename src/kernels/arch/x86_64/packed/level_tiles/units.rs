//! Products of types with a float step for each 32 weights.
//!
//! Two units of a block are multiplied while the chains of the two before advance; the chains of 16 rows and 16 tokens
//! stay in registers from block to block.

use std::arch::x86_64::*;

use super::super::level_bytes::{ACT, SCALE, act_bytes, put, scale_of_unit};
use super::super::level_lookup::Lookup;
use super::super::levels::{Levels, UNITS};
use super::super::zmm::Zmm;
use super::{Product, SIDE, Tiles};
use crate::AlignedBytes;
use crate::arch::x86_64::rows::chains::Acts;
use crate::arch::x86_64::rows::lanes::{Lanes, unroll};
use crate::arch::x86_64::tiles::{self, Tokens};
use crate::shared::packed::k_quants::{BLOCK, ROWS};

/// Bytes of a unit: eight lines of weights.
const UNIT: usize = 8 * tiles::ROW;
/// Where the scales of an expanded block are as floats, those of each unit and those of the block.
const SCALES_AT: usize = UNITS * UNIT;
const D_AT: usize = SCALES_AT + UNITS * 64;
const EXPANDED: usize = D_AT + 64;

pub(super) struct Units;

impl Product for Units {
    const FROM: usize = 32;

    #[inline(always)]
    unsafe fn product<T: Tiles, C: Levels>(group: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
        // SAFETY: the caller has seen to it.
        unsafe { product::<T, C>(group, acts, n, tokens, out) }
    }
}

/// # Safety
/// The processor has AVX-512 with VBMI; the block is readable, `to` has room for its expansion.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi")]
unsafe fn expand<C: Levels>(lookup: Lookup, block: *const u8, to: *mut u8) {
    // SAFETY: as the caller says.
    unsafe {
        for j in 0..UNITS {
            let levels = lookup.unit::<C>(block.add(C::CODES + 64 * C::UNIT_LINES * j));
            for (k, levels) in levels.into_iter().enumerate() {
                _mm512_store_si512(to.add(UNIT * j + tiles::ROW * k).cast(), levels);
            }
            let scale = _mm512_cvtepi32_ps(scale_of_unit::<C>(block, j));
            _mm512_store_ps(to.add(SCALES_AT + 64 * j).cast(), scale);
        }
        _mm512_store_ps(to.add(D_AT).cast(), Zmm::halves(block));
    }
}

/// Integer sums of two units, of the turn in work and of the last, and the products of the scales of a block.
#[repr(C, align(64))]
struct Scratch {
    isums: [[[i32; SIDE * ROWS]; 2]; 2],
    d: [[f32; ROWS]; SIDE],
}

/// # Safety
/// The processor has AVX-512 F and BW, the process [`crate::Level::Amx`] where the tiles are the processor's; lengths
/// are as [`Call::check`] has them.
#[inline(always)]
unsafe fn product<T: Tiles, C: Levels>(group: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
    let tokens = Tokens::new(tokens);
    let acts = Acts { at: acts.as_ptr(), blocks: n / BLOCK, stride: act_bytes(n) };
    let mut expanded = AlignedBytes::scratch(EXPANDED * acts.blocks);
    let expanded = expanded.as_mut_ptr();
    let mut scratch = Scratch { isums: [[[0; SIDE * ROWS]; 2]; 2], d: [[0.0; ROWS]; SIDE] };
    let rows = tokens.rows as u8;
    // SAFETY: the caller has the tiles and says that all lengths fit; every block is expanded before it is multiplied.
    unsafe {
        let lookup = Lookup::new::<C, 0>();
        for b in 0..acts.blocks {
            let block = group.as_ptr().add(C::BYTES_OF_GROUP * b);
            expand::<C>(lookup, block, expanded.add(EXPANDED * b));
        }
        // Two tiles of tokens, two of weights, two of sums; the others are not used.
        let mut m = T::with_shapes([rows, rows, 8, 8, rows, rows, 16, 16], [32, 32, 64, 64, 64, 64, 64, 64]);
        for tile in 0..tokens.tiles {
            // The last tile takes some tokens of the one before again where tokens are no whole tiles.
            let first = tokens.start(tile);
            let acts = Acts { at: acts.at.add(acts.stride * first), ..acts };
            let sums = chains::<T>(&mut m, expanded, acts, tokens.rows, &mut scratch);
            for (t, sums) in sums.into_iter().enumerate().take(tokens.rows) {
                put::<C>(sums, out[ROWS * (first + t)..][..ROWS].as_mut_ptr());
            }
        }
    }
}

/// The sums of 16 rows and a tile of tokens over all blocks.
///
/// # Safety
/// The processor has AVX-512 F and BW, the process [`crate::Level::Amx`] where the tiles are the processor's; the tiles
/// have the shapes that [`product`] sets up, `expanded` points at all expanded blocks, and `rows` tokens have the
/// activations of all of them.
#[inline(always)]
unsafe fn chains<T: Tiles>(
    m: &mut T,
    expanded: *const u8,
    acts: Acts,
    rows: usize,
    scratch: &mut Scratch,
) -> [__m512; SIDE] {
    // SAFETY: the caller has the tiles, expanded blocks and activations.
    unsafe {
        let mut sums = [_mm512_setzero_ps(); SIDE];
        let turns = acts.blocks * (UNITS / 2);
        for turn in 0..=turns {
            if turn < turns {
                let (b, j) = (turn / (UNITS / 2), 2 * (turn % (UNITS / 2)));
                let q = acts.at.add(ACT * b + 32 * j);
                let weights = expanded.add(EXPANDED * b + UNIT * j);
                m.clear::<4>();
                m.load::<0>(q, acts.stride);
                m.load::<2>(weights, tiles::ROW);
                m.dot_signed::<4, 0, 2>();
                m.clear::<5>();
                m.load::<1>(q.add(32), acts.stride);
                m.load::<3>(weights.add(UNIT), tiles::ROW);
                m.dot_signed::<5, 1, 3>();
            }
            if turn > 0 {
                let before = turn - 1;
                let (b, j) = (before / (UNITS / 2), 2 * (before % (UNITS / 2)));
                let block = expanded.add(EXPANDED * b);
                if j == 0 {
                    multiply_scales(block, acts.at.add(ACT * b), acts.stride, rows, scratch);
                }
                let isums = &scratch.isums[before % 2];
                settle(&mut sums, &isums[0], &scratch.d, block.add(SCALES_AT + 64 * j));
                settle(&mut sums, &isums[1], &scratch.d, block.add(SCALES_AT + 64 * (j + 1)));
            }
            if turn < turns {
                let [first, second] = &mut scratch.isums[turn % 2];
                m.store::<4>(first.as_mut_ptr());
                m.store::<5>(second.as_mut_ptr());
            }
        }
        sums
    }
}

/// The products of a block's scales and those of `rows` tokens, whose activations of it are at `y`.
///
/// # Safety
/// The processor has AVX-512 F; `block` points at an expanded block, and each of `rows` tokens has the activations of
/// the block at `y`, `stride` bytes apart.
#[inline(always)]
unsafe fn multiply_scales(block: *const u8, y: *const u8, stride: usize, rows: usize, scratch: &mut Scratch) {
    // SAFETY: the caller has an expanded block and its activations.
    unsafe {
        let d = _mm512_load_ps(block.add(D_AT).cast());
        for (t, to) in scratch.d.iter_mut().enumerate().take(rows) {
            let dy = _mm512_castsi512_ps(Zmm::broadcast(y.add(stride * t + SCALE)));
            _mm512_store_ps(to.as_mut_ptr(), _mm512_mul_ps(d, dy));
        }
    }
}

/// `sums + (d * scales) * isums` for 16 tokens; those that are not there have sums that nobody looks at.
///
/// # Safety
/// The processor has AVX-512 F; `unit_scales` points at 16 floats, aligned to 64 bytes.
#[inline(always)]
unsafe fn settle(
    sums: &mut [__m512; SIDE],
    isums: &[i32; SIDE * ROWS],
    d: &[[f32; ROWS]; SIDE],
    unit_scales: *const u8,
) {
    // SAFETY: the caller has the scales of a unit.
    unsafe {
        let scales = _mm512_load_ps(unit_scales.cast());
        unroll!(T in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
            let isum = _mm512_load_si512(isums.as_ptr().add(ROWS * T).cast());
            let d = _mm512_mul_ps(_mm512_load_ps(d[T].as_ptr()), scales);
            sums[T] = Zmm::step(sums[T], d, isum);
        });
    }
}
