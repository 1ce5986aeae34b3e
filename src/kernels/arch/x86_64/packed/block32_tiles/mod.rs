//! Types with 32-element blocks for AMX: the bytes of [`crate::shared::packed::block32`], expanded to weights with a sign.
//!
//! A block is half a tile deep: 16 tokens of 32 bytes as they lie in memory, times eight lines of 16 rows. Every block
//! has its scales, so its sums leave the tiles at once, which takes longer than the products. The float chains of 16
//! rows and 16 tokens stay in registers from block to block, and two blocks are multiplied while the chains of the two
//! before advance.
//!
//! Sixteen rows are expanded at a time, to lines of tiles with their scales behind them, and all tokens run over them.

use std::arch::asm;
use std::arch::x86_64::*;

use super::zmm::Zmm;
use crate::AlignedBytes;
use crate::arch::x86_64::ahead::NoPrefetch;
use crate::arch::x86_64::rows::block32::{Codes, Head, multiply as by_vectors, unpack};
use crate::arch::x86_64::rows::lanes::unroll;
#[cfg(test)]
use crate::arch::x86_64::tiles::Software;
use crate::arch::x86_64::tiles::{self, Hardware, Tiles, Tokens};
use crate::proof::{Amx, Avx512, Proof};
use crate::shared::packed::block32::{self, Block32, PackedStep, RECORD, ROWS, layouts_of_block32};
use crate::shared::packed::{Call, Layout};

/// Tokens from which on tiles are faster than vectors.
const FROM: usize = 32;
/// Tokens behind the last whole tile that vectors take.
const REST: usize = 8;
/// Tokens of a call, over which the expansion is spread.
const TILE: usize = 256;
/// Tokens, and rows, of a tile.
const SIDE: usize = tiles::ROWS;
/// Lines of weights of an expanded block of 16 rows, its scales and its offsets as floats.
const CODES: usize = 8 * tiles::ROW;
const SCALES_AT: usize = CODES;
const OFFSETS_AT: usize = SCALES_AT + 64;
const EXPANDED: usize = OFFSETS_AT + 64;

const fn layout<B: Block32>() -> Layout {
    Layout { tile: TILE, ..block32::layout::<B>(Amx::NEEDS, multiply::<B>) }
}

pub(super) static LAYOUTS: &[Layout] = &layouts_of_block32!(layout);

fn multiply<B: Block32>(call: Call<'_>) {
    if call.tokens < FROM {
        return by_vectors::<Avx512, B>(call);
    }
    let Call { isa, group, acts, n, tokens, out, .. } = call.check(const { &layout::<B>() });
    let whole = Tokens::in_tiles(tokens, REST);
    let (acts, rest) = acts.split_at(acts.len() / tokens * whole);
    let (out, out_of_rest) = out.split_at_mut(ROWS * whole);
    // SAFETY: `check` has seen the proof of the tiles and compared all lengths.
    unsafe { hardware::<B>(group, acts, whole, out) }
    if whole < tokens {
        by_vectors::<Avx512, B>(Call { isa, group, acts: rest, n, tokens: tokens - whole, ahead: 0, out: out_of_rest });
    }
}

/// # Safety
/// [`crate::Level::Amx`]; lengths as [`Call::check`] has them, at least 16 tokens.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn hardware<B: Block32>(group: &[u8], acts: &[u8], tokens: usize, out: &mut [f32]) {
    // SAFETY: the caller has seen to it.
    unsafe { product::<Hardware, B>(group, acts, tokens, out) }
}

/// Tiles, and what is done to their bytes and sums by vectors of 16 rows.
trait Machine: Tiles {
    /// Float sums of 16 rows.
    type Sums: Copy;

    /// Zeros.
    ///
    /// # Safety
    /// The processor has AVX-512 F.
    unsafe fn zeros() -> Self::Sums;
    /// A packed block to one expanded block for each 16 rows, `stride` bytes apart.
    ///
    /// # Safety
    /// The processor has AVX-512 F and BW; `block` points at a packed block, and `to` has room for the expanded ones.
    unsafe fn expand<B: Block32>(block: *const u8, to: *mut u8, stride: usize);
    /// Adds the terms of a block: integer sums of 16 tokens at `isums`, and their records from `record` on every
    /// `stride` bytes.
    ///
    /// # Safety
    /// The processor has AVX-512 F; `isums` points at 16 times 16 sums, `expanded` at an expanded block, and 16 records
    /// are readable.
    unsafe fn settle<B: Block32>(
        sums: &mut [Self::Sums; SIDE],
        isums: *const i32,
        expanded: *const u8,
        record: *const u8,
        stride: usize,
    );
    /// Writes the sums of a token.
    ///
    /// # Safety
    /// The processor has AVX-512 F; `out` has room for 16 floats.
    unsafe fn put(sums: Self::Sums, out: *mut f32);
}

impl Machine for Hardware {
    type Sums = __m512;

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn zeros() -> __m512 {
        _mm512_setzero_ps()
    }
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn expand<B: Block32>(block: *const u8, to: *mut u8, stride: usize) {
        // SAFETY: a packed block, and room for its expansion.
        unsafe {
            let mut codes: Codes<Zmm> = [[_mm512_setzero_si512(); 4]; 8];
            unpack::<Avx512, B>(block, NoPrefetch, &mut codes);
            let head = Head::<Zmm>::new::<B>(block, 0);
            for v in 0..ROWS / SIDE {
                let to = to.add(stride * v);
                for (k, codes) in codes.iter().enumerate() {
                    let weights = _mm512_sub_epi8(codes[v], _mm512_set1_epi8(B::BIAS as i8));
                    _mm512_store_si512(to.add(tiles::ROW * k).cast(), weights);
                }
                _mm512_store_ps(to.add(SCALES_AT).cast(), head.scales[v]);
                _mm512_store_ps(to.add(OFFSETS_AT).cast(), head.offsets[v]);
            }
        }
    }
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn settle<B: Block32>(
        sums: &mut [__m512; SIDE],
        isums: *const i32,
        expanded: *const u8,
        record: *const u8,
        stride: usize,
    ) {
        // SAFETY: an expanded block, 16 sums of 16 rows and as many records.
        unsafe {
            let dw = _mm512_load_ps(expanded.add(SCALES_AT).cast());
            let mw = _mm512_load_ps(expanded.add(OFFSETS_AT).cast());
            let mut record = record;
            unroll!(FOUR in [0 1 2 3] {
                unroll!(I in [0 1 2 3] {
                    let token = 4 * FOUR + I;
                    let isum = _mm512_load_si512(isums.add(SIDE * token).cast());
                    let isum = _mm512_cvtepi32_ps(isum);
                    let float = |at: usize| {
                        let at = record.add(stride * I + at);
                        _mm512_set1_ps(at.cast::<f32>().read_unaligned())
                    };
                    let dx = float(32);
                    let term = match B::STEP {
                        PackedStep::SumFirst => _mm512_mul_ps(_mm512_mul_ps(isum, dw), dx),
                        PackedStep::ScaleFirst => _mm512_mul_ps(_mm512_mul_ps(dw, dx), isum),
                        PackedStep::PlusOffset => _mm512_add_ps(
                            _mm512_mul_ps(_mm512_mul_ps(dw, dx), isum),
                            _mm512_mul_ps(mw, float(40)),
                        ),
                    };
                    sums[token] = _mm512_add_ps(sums[token], term);
                });
                record = opaque(record.wrapping_add(4 * stride));
            });
        }
    }
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn put(sums: __m512, out: *mut f32) {
        // SAFETY: the caller has room for 16 floats.
        unsafe { _mm512_storeu_ps(out, sums) }
    }
}

/// A pointer whose origin the compiler does not see: it would keep one for each of sixteen tokens in memory and advance
/// all of them from block to block, instead of adding a stride to four.
#[inline(always)]
#[expect(clippy::pointers_in_nomem_asm_block, reason = "it holds no instruction")]
pub(super) fn opaque(mut p: *const u8) -> *const u8 {
    // SAFETY: no instruction.
    unsafe {
        asm!("/* {} */", inout(reg) p, options(pure, nomem, nostack, preserves_flags));
    }
    p
}

/// Two blocks' integer sums, of the turn in work and of the last.
#[repr(C, align(64))]
struct Isums([[[i32; SIDE * SIDE]; 2]; 2]);

/// # Safety
/// The processor has AVX-512 F, BW and VNNI, the process [`crate::Level::Amx`] where the tiles are the processor's;
/// lengths are as [`Call::check`] has them, and there are at least 16 tokens.
#[inline(always)]
unsafe fn product<M: Machine, B: Block32>(group: &[u8], acts: &[u8], tokens: usize, out: &mut [f32]) {
    let blocks = group.len() / B::PACKED;
    let stride = acts.len() / tokens;
    let half = blocks * EXPANDED;
    let mut expanded = AlignedBytes::scratch(ROWS / SIDE * half);
    let expanded = expanded.as_mut_ptr();
    let mut isums = Isums([[[0; SIDE * SIDE]; 2]; 2]);
    // SAFETY: the caller has the tiles and says that all lengths fit; every block is expanded before it is multiplied.
    unsafe {
        for (b, block) in group.chunks_exact(B::PACKED).enumerate() {
            M::expand::<B>(block.as_ptr(), expanded.add(EXPANDED * b), half);
        }
        // Two tiles of tokens, two of weights, two of sums; the others are not used.
        let mut m = M::with_shapes([16, 16, 8, 8, 16, 16, 16, 16], [32, 32, 64, 64, 64, 64, 64, 64]);
        for h in 0..ROWS / SIDE {
            let weights = expanded.add(half * h).cast_const();
            for tile in 0..tokens.div_ceil(SIDE) {
                // The last tile takes some tokens of the one before again where tokens are no whole tiles.
                let first = (SIDE * tile).min(tokens - SIDE);
                let records = acts[stride * first..].as_ptr();
                let sums = chains::<M, B>(&mut m, weights, records, stride, blocks, &mut isums);
                for (t, sums) in sums.into_iter().enumerate() {
                    let out = &mut out[ROWS * (first + t) + SIDE * h..][..SIDE];
                    M::put(sums, out.as_mut_ptr());
                }
            }
        }
    }
}

/// The sums of 16 rows and 16 tokens over all blocks.
///
/// # Safety
/// As [`product`]; the tiles have the shapes that it sets up, `weights` points at `blocks` expanded blocks, and 16
/// tokens have the records of all of them, `stride` bytes apart.
#[inline(always)]
unsafe fn chains<M: Machine, B: Block32>(
    m: &mut M,
    weights: *const u8,
    records: *const u8,
    stride: usize,
    blocks: usize,
    isums: &mut Isums,
) -> [M::Sums; SIDE] {
    // SAFETY: the caller has the tiles, expanded blocks and records.
    unsafe {
        let mut sums = [M::zeros(); SIDE];
        let turns = blocks.div_ceil(2);
        for turn in 0..=turns {
            let b = 2 * turn;
            if b < blocks {
                m.clear::<4>();
                m.load::<0>(records.add(RECORD * b), stride);
                m.load::<2>(weights.add(EXPANDED * b), tiles::ROW);
                m.dot_signed::<4, 0, 2>();
            }
            if b + 1 < blocks {
                m.clear::<5>();
                m.load::<1>(records.add(RECORD * (b + 1)), stride);
                m.load::<3>(weights.add(EXPANDED * (b + 1)), tiles::ROW);
                m.dot_signed::<5, 1, 3>();
            }
            if turn > 0 {
                let before = &isums.0[(turn + 1) % 2];
                for (isums, b) in before.iter().zip(b - 2..blocks) {
                    let (expanded, record) = (weights.add(EXPANDED * b), records.add(RECORD * b));
                    M::settle::<B>(&mut sums, isums.as_ptr(), expanded, record, stride);
                }
            }
            let [first, second] = &mut isums.0[turn % 2];
            if b < blocks {
                m.store::<4>(first.as_mut_ptr());
            }
            if b + 1 < blocks {
                m.store::<5>(second.as_mut_ptr());
            }
        }
        sums
    }
}

/// The same with tiles in memory and vectors in portable Rust, on any processor.
#[cfg(test)]
pub(super) mod software;
