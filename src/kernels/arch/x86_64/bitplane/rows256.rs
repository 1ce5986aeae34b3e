//! Rows looked up with AVX2.

use std::arch::x86_64::*;
use std::ops::Range;

use super::codes256::{codes, load};
use super::lut::{fixed, odd_group};
use super::{PAIR, odd};
use crate::shared::bitplane::{Arrangement, PlaneRows};

/// A table, the lower and the upper bytes apart; at least 16 entries, smaller ones are there several times.
pub(super) struct Tables {
    pub(super) lower: [u8; 256],
    pub(super) upper: [u8; 256],
}

impl Tables {
    /// From words, `2^B` of them.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new<const B: usize>(words: &[u16; 256]) -> Tables {
        let mut tables = Tables { lower: [0; 256], upper: [0; 256] };
        for i in 0..16.max(1 << B) {
            let [lower, upper] = words[i % (1 << B)].to_le_bytes();
            (tables.lower[i], tables.upper[i]) = (lower, upper);
        }
        tables
    }
}

/// The codes of 32 weights, taken apart: the lower four bits, and the others as the upper bits of bytes.
struct Indices {
    low: __m256i,
    bits: [__m256i; 4],
}

impl Indices {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new<const B: usize>(codes: __m256i) -> Indices {
        let low = if B > 4 { _mm256_and_si256(codes, _mm256_set1_epi8(0x0F)) } else { codes };
        let bits = [_mm256_slli_epi16::<3>(codes), _mm256_slli_epi16::<2>(codes), _mm256_slli_epi16::<1>(codes), codes];
        Indices { low, bits }
    }

    /// Entries of `table`: 16 at a time, then selected by one bit of the codes after the other.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn lookup<const B: usize>(&self, table: &[u8; 256]) -> __m256i {
        let sixteen = |i: usize| {
            // SAFETY: 16 bytes.
            let table = unsafe { _mm_loadu_si128(table.as_ptr().add(16 * i).cast()) };
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), self.low)
        };
        let select = |bit: usize, a, b| _mm256_blendv_epi8(a, b, self.bits[bit - 4]);
        let two = |i| select(4, sixteen(i), sixteen(i + 1));
        let four = |i| select(5, two(i), two(i + 2));
        let eight = |i| select(6, four(i), four(i + 4));
        match B {
            ..=4 => sixteen(0),
            5 => two(0),
            6 => four(0),
            7 => eight(0),
            _ => select(7, eight(0), eight(8)),
        }
    }

    /// Words of two bytes: those of the lower and of the upper eight codes of each half.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn words<const B: usize>(&self, t: &Tables) -> [__m256i; 2] {
        let (lower, upper) = (self.lookup::<B>(&t.lower), self.lookup::<B>(&t.upper));
        [_mm256_unpacklo_epi8(lower, upper), _mm256_unpackhi_epi8(lower, upper)]
    }
}

/// Takes the codes of a row, block by block.
pub(super) trait Sink {
    /// True if entries are the half floats of the file, or else fixed point.
    const HALVES: bool;

    /// # Safety
    /// AVX2 and F16C; the row has this block.
    unsafe fn block<const B: usize>(&mut self, t: &Tables, block: usize, codes: [__m256i; 2]);
}

/// Hands the blocks of a row to a sink, and returns the row's scale.
macro_rules! walk {
    ($walk:ident, $gfni:literal, $features:literal) => {
        /// # Safety
        /// The processor has the features; rows have `B` planes, row `row` is there, and the sink has room for all of
        /// its blocks.
        #[target_feature(enable = $features)]
        unsafe fn $walk<const B: usize, S: Sink>(rows: &PlaneRows<'_>, row: usize, sink: &mut S) -> f32 {
            let mut planes = [&[][..]; B];
            let (bytes, lut) = rows.row(row);
            for (plane, bytes) in planes.iter_mut().zip(bytes) {
                *plane = bytes;
            }
            let scale = if S::HALVES { None } else { Some(fixed(rows, row)) };
            let (blocks, groups) = (rows.blocks(), rows.groups);
            for (group, lut) in lut.chunks_exact(2 << B).enumerate() {
                let entries = match scale.map(|s| s.factor) {
                    None => halves(lut),
                    Some(Some(factor)) => fixed_point(lut, factor),
                    Some(None) => odd_group(rows, row, group),
                };
                let tables = Tables::new::<B>(&entries);
                for block in group * blocks / groups..(group + 1) * blocks / groups {
                    let mut words = [_mm256_setzero_si256(); B];
                    for (word, plane) in words.iter_mut().zip(planes) {
                        let bytes = plane.as_chunks().0[block];
                        *word = _mm256_set1_epi64x(i64::from_le_bytes(bytes));
                    }
                    // SAFETY: `block` is a block of the row, for which the caller gave the sink room.
                    unsafe { sink.block::<B>(&tables, block, codes::<B, $gfni>(words)) };
                }
            }
            scale.map_or(1.0, |s| s.scale)
        }
    };
}

walk!(walk_avx2, false, "avx2,fma,f16c");
walk!(walk_gfni, true, "avx2,fma,f16c,gfni");

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn halves(lut: &[u8]) -> [u16; 256] {
    let mut out = [0; 256];
    for (out, half) in out.iter_mut().zip(lut.as_chunks().0) {
        *out = u16::from_le_bytes(*half);
    }
    out
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn fixed_point(lut: &[u8], factor: f32) -> [u16; 256] {
    let halves = halves(lut);
    let mut out = [0; 256];
    let factor = _mm256_set1_ps(factor);
    let count = (lut.len() / 2).div_ceil(8);
    let eights = halves.as_chunks::<8>().0.iter().zip(out.as_chunks_mut::<8>().0);
    for (halves, out) in eights.take(count) {
        // SAFETY: eight words are read and written.
        unsafe {
            let centroids = _mm256_cvtph_ps(_mm_loadu_si128(halves.as_ptr().cast()));
            // rounded to nearest, ties to even
            let fixed = _mm256_cvtps_epi32(_mm256_mul_ps(centroids, factor));
            let upper = _mm256_extracti128_si256::<1>(fixed);
            let fixed = _mm_packs_epi32(_mm256_castsi256_si128(fixed), upper);
            _mm_storeu_si128(out.as_mut_ptr().cast(), fixed);
        }
    }
    out
}

/// Order of each 16 weights: the first pairs of four, then the second.
static PAIRS: [u8; 32] =
    [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15];

/// Puts weights into memory, arranged as activations in [`Arrangement::Words`] are.
pub(super) struct Words(pub(super) *mut __m256i);

impl Sink for Words {
    const HALVES: bool = false;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn block<const B: usize>(&mut self, t: &Tables, block: usize, codes: [__m256i; 2]) {
        for (half, codes) in codes.into_iter().enumerate() {
            let codes = _mm256_shuffle_epi8(codes, load(&PAIRS));
            let [a, b] = Indices::new::<B>(codes).words::<B>(t);
            // SAFETY: the memory has 128 bytes for each block.
            unsafe {
                let at = self.0.add(4 * block + half);
                _mm256_storeu_si256(at, a);
                _mm256_storeu_si256(at.add(2), b);
            }
        }
    }
}

/// Puts weights into memory, in order.
pub(super) struct Floats(pub(super) *mut f32);

impl Sink for Floats {
    const HALVES: bool = true;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn block<const B: usize>(&mut self, t: &Tables, block: usize, codes: [__m256i; 2]) {
        for (half, codes) in codes.into_iter().enumerate() {
            let [a, b] = Indices::new::<B>(codes).words::<B>(t);
            let eights = [
                _mm256_castsi256_si128(a),
                _mm256_castsi256_si128(b),
                _mm256_extracti128_si256::<1>(a),
                _mm256_extracti128_si256::<1>(b),
            ];
            for (i, eight) in eights.into_iter().enumerate() {
                // SAFETY: the memory has room for the whole block.
                unsafe {
                    let at = self.0.add(64 * block + 32 * half + 8 * i);
                    _mm256_storeu_ps(at, _mm256_cvtph_ps(eight));
                }
            }
        }
    }
}

/// Looks up rows for [`Arrangement::Words`].
///
/// # Safety
/// AVX2, FMA and F16C. The rows are there, and `memory` has room for them.
pub(super) unsafe fn words<const GFNI: bool>(
    rows: &PlaneRows<'_>,
    range: Range<usize>,
    memory: &mut [u8],
) -> [f32; PAIR] {
    let row_bytes = Arrangement::Words.act_bytes(rows.columns);
    let mut scales = [0.0; PAIR];
    for ((i, memory), scale) in range.zip(memory.chunks_exact_mut(row_bytes)).zip(&mut scales) {
        *scale = if rows.in_blocks() {
            let mut sink = Words(memory.as_mut_ptr().cast());
            // SAFETY: the caller says that the processor has the instructions and the row is there; `memory` is as long
            // as the row.
            unsafe { walk_any::<GFNI, Words>(rows, i, &mut sink) }
        } else {
            odd::words(rows, i, memory)
        };
    }
    scales
}

/// Looks up rows for [`Arrangement::Floats`].
///
/// # Safety
/// As [`words`].
pub(super) unsafe fn floats<const GFNI: bool>(
    rows: &PlaneRows<'_>,
    range: Range<usize>,
    memory: &mut [u8],
) -> [f32; PAIR] {
    let row_bytes = Arrangement::Floats.act_bytes(rows.columns);
    for (i, memory) in range.zip(memory.chunks_exact_mut(row_bytes)) {
        if rows.in_blocks() {
            let mut sink = Floats(memory.as_mut_ptr().cast());
            // SAFETY: the caller says that the processor has the instructions and the row is there; `memory` is as long
            // as the row.
            unsafe { walk_any::<GFNI, Floats>(rows, i, &mut sink) };
            memory[4 * rows.columns..].fill(0);
        } else {
            odd::floats(rows, i, memory);
        }
    }
    [1.0; PAIR]
}

/// Hands the blocks of row `row` to `sink`; the scale of the row.
///
/// # Safety
/// AVX2, FMA and F16C, and GFNI where the parameter says so. The row is there, its groups are whole blocks, and the
/// sink has room for them.
unsafe fn walk_any<const GFNI: bool, S: Sink>(rows: &PlaneRows<'_>, row: usize, sink: &mut S) -> f32 {
    // SAFETY: the caller says that the processor has the instructions, GFNI among them where the parameter says so, and
    // that the row is there.
    unsafe {
        by_width!(rows.width(), B => match GFNI {
            true => walk_gfni::<B, S>(rows, row, sink),
            false => walk_avx2::<B, S>(rows, row, sink),
        })
    }
}
