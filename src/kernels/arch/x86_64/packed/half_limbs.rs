//! Half floats as whole numbers of bytes, for exact products in tiles.
//!
//! The numbers of a row are whole multiples of one unit, the lowest bit that is set in any of them ([`spans`]). In
//! two's complement such a number is a few bytes, its *limbs*: the last one with a sign, the others without. Trained
//! weights take two or three, activations three or four.
//!
//! ```text
//! token      columns as f64, as in packed::half
//!            head, 64 bytes: unit as f64, number of limbs as u64
//!            norms of the blocks in units, f64
//!            planes [columns / 64][limb][64 columns]
//! weights    planes [half of the rows][columns / 64][limb][16 lines of 4 columns of 16 rows], of one block at a time
//! ```
//!
//! Rows of a half are in the order of [`ORDER`], as they fall out of the transposition.

// Indices, so that every loop unrolls and its arrays become registers.
#![allow(clippy::needless_range_loop)]

use std::arch::x86_64::*;

use crate::arch::packed::half::{QUAD, act_bytes_f16};
use crate::arch::x86_64::tiles::{ROW, TILE};
use crate::shared::halves::{self, LANES, STEPS};
use crate::shared::packed::spans::{self, Span};

/// Columns of a block, after which sums are put down: few enough that their norms say much, and that four bytes of the
/// tokens of a tile stay in the first-level cache beside the weights.
pub const BLOCK: usize = 512;
/// Columns of a tile.
pub const STEP: usize = ROW;
/// Limbs that a plane of activations has room for.
pub const LIMBS: usize = 4;
/// Limbs of weights likewise.
pub const WEIGHT_LIMBS: usize = 3;
/// Rows of a tile of weights.
pub const HALF: usize = 16;

/// Norms are no less than they should be for all that single precision rounds: 132 additions, 2^-24 each, are 8e-6, of
/// which the root takes half.
const ABOVE: f64 = 1.0 + 1e-5;

/// Row of a half that lane p stands for.
pub const ORDER: [usize; HALF] = {
    let mut order = [0; HALF];
    let mut p = 0;
    while p < HALF {
        order[p] = 4 * (p % 4) + p / 4;
        p += 1;
    }
    order
};

/// Where the parts of an arranged token begin.
#[derive(Clone, Copy)]
pub struct Parts {
    pub head: usize,
    pub norms: usize,
    pub planes: usize,
    pub bytes: usize,
}

impl Parts {
    pub const fn of(n: usize) -> Parts {
        let head = act_bytes_f16(n);
        let norms = head + 64;
        let planes = norms + (n.div_ceil(BLOCK) * 8).next_multiple_of(64);
        let lines = (planes + n.div_ceil(STEP) * LIMBS * STEP) / 64;
        // An odd number of lines from token to token: sixteen rows of a tile are in as many sets of the cache.
        Parts { head, norms, planes, bytes: (lines | 1) * 64 }
    }
}

/// A token's head.
#[derive(Clone, Copy)]
pub struct Head {
    pub unit: f64,
    /// More than [`LIMBS`]: the planes do not hold this token, but zeros.
    pub limbs: usize,
}

impl Head {
    fn store(self, head: &mut [u8]) {
        head[..8].copy_from_slice(&self.unit.to_le_bytes());
        head[8..16].copy_from_slice(&(self.limbs as u64).to_le_bytes());
    }

    /// # Safety
    /// A head is there.
    #[inline(always)]
    pub unsafe fn load(head: *const u8) -> Head {
        // SAFETY: two numbers of eight bytes, at any address.
        unsafe {
            Head {
                unit: head.cast::<f64>().read_unaligned(),
                limbs: head.add(8).cast::<u64>().read_unaligned() as usize,
            }
        }
    }
}

/// Limbs of numbers with the span.
pub fn limbs(span: Span) -> usize {
    (usize::from(span.high - span.low) + 1).div_ceil(8)
}

/// 2^place times the lowest bit of all half floats.
pub fn unit(place: u8) -> f64 {
    f64::from_bits((1023 - 24 + u64::from(place)) << 52)
}

/// Head, norms and planes of a token.
///
/// # Safety
/// AVX-512 F and BW.
pub unsafe fn arrange(act: &[u8], n: usize, out: &mut [u8]) {
    let parts = Parts::of(n);
    let halves = act.as_chunks().0;
    // SAFETY: the caller has AVX-512.
    let span = unsafe { token_span(halves) };
    let Some((span, limbs)) = span.map(|s| (s, limbs(s))).filter(|&(_, l)| l <= LIMBS) else {
        out[parts.norms..].fill(0);
        let limbs = LIMBS + 1;
        return Head { unit: 1.0, limbs }.store(&mut out[parts.head..]);
    };
    Head { unit: unit(span.low), limbs }.store(&mut out[parts.head..]);
    let scale = (1.0 / unit(span.low)) as f32;
    let (norms, planes) = out[parts.norms..].split_at_mut(parts.planes - parts.norms);
    let planes = &mut planes[..n.div_ceil(STEP) * STEP * LIMBS];
    let blocks = halves.chunks(BLOCK).zip(planes.chunks_mut(BLOCK * LIMBS));
    for ((halves, planes), norm) in blocks.zip(norms.as_chunks_mut::<8>().0) {
        // SAFETY: the caller has AVX-512.
        *norm = unsafe { token_planes(halves, scale, planes) }.to_le_bytes();
    }
}

/// Sixteen half floats, or fewer and zeros.
#[inline]
#[target_feature(enable = "avx512f")]
fn sixteen(halves: &[[u8; 2]]) -> __m256i {
    let mut padded = [[0; 2]; 16];
    let from = match halves.first_chunk::<16>() {
        Some(sixteen) => sixteen,
        None => {
            padded[..halves.len()].copy_from_slice(halves);
            &padded
        }
    };
    // SAFETY: sixteen f16 values.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

/// [`Span::of`]; `None` where there is an infinity or a NaN.
#[target_feature(enable = "avx512f")]
fn token_span(halves: &[[u8; 2]]) -> Option<Span> {
    let zero = _mm512_setzero_si512();
    // Bits of numbers with an exponent below 20, and of the others, which are 20 places further up.
    let (mut low, mut high, mut greatest) = (zero, zero, zero);
    let border = _mm512_set1_epi32(20);
    for halves in halves.chunks(16) {
        let halves = _mm512_cvtepu16_epi32(sixteen(halves));
        let magnitude = _mm512_and_si512(halves, _mm512_set1_epi32(0x7FFF));
        greatest = _mm512_max_epu32(greatest, magnitude);
        let exponent = _mm512_srli_epi32::<10>(magnitude);
        let normal = _mm512_test_epi32_mask(exponent, exponent);
        let mantissa = _mm512_and_si512(magnitude, _mm512_set1_epi32(0x3FF));
        let leading = _mm512_set1_epi32(0x400);
        let mantissa = _mm512_mask_or_epi32(mantissa, normal, mantissa, leading);
        let place = _mm512_max_epu32(exponent, _mm512_set1_epi32(1));
        let below = _mm512_cmplt_epu32_mask(place, border);
        low = _mm512_mask_or_epi32(low, below, low, _mm512_sllv_epi32(mantissa, place));
        // A negative count shifts everything out.
        let above = _mm512_sllv_epi32(mantissa, _mm512_sub_epi32(place, border));
        high = _mm512_or_si512(high, above);
    }
    if _mm512_reduce_max_epu32(greatest) >= 0x7C00 {
        return None;
    }
    let bits = |or: __m512i| u64::from(_mm512_reduce_or_epi32(or).cast_unsigned());
    // As in `Span::of`, one place more than there is.
    Some(Span::of_bits((bits(low) | bits(high) << 20) >> 1))
}

/// Planes of up to [`BLOCK`] columns in whole steps, and their norm.
#[target_feature(enable = "avx512f,avx512bw")]
fn token_planes(halves: &[[u8; 2]], scale: f32, planes: &mut [u8]) -> f64 {
    let scale = _mm512_set1_ps(scale);
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let mut squares = _mm512_setzero_ps();
    let steps = planes.as_chunks_mut::<{ LIMBS * STEP }>().0;
    for (step, planes) in steps.iter_mut().enumerate() {
        let mut columns = [_mm512_setzero_si512(); 4];
        for j in 0..4 {
            let halves = halves.get(STEP * step + 16 * j..).unwrap_or_default();
            let x = _mm512_mul_ps(_mm512_cvtph_ps(sixteen(halves)), scale);
            squares = _mm512_fmadd_ps(x, x, squares);
            columns[j] = split(x);
        }
        for (limb, line) in transposed(columns).into_iter().enumerate() {
            let line = _mm512_permutexvar_epi32(order, line);
            // SAFETY: a line of one of the limbs.
            unsafe { _mm512_storeu_si512(planes.as_mut_ptr().add(limb * STEP).cast(), line) };
        }
    }
    f64::from(_mm512_reduce_add_ps(squares)).sqrt() * ABOVE
}

/// Four whole numbers in each lane of 128 bits as bytes, their lowest ones first.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn split(x: __m512) -> __m512i {
    let limbs = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_shuffle_epi8(_mm512_cvtps_epi32(x), _mm512_broadcast_i32x4(limbs))
}

/// Dword l of every lane of 128 bits as line l, lane by lane.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn transposed(x: [__m512i; 4]) -> [__m512i; 4] {
    let low = _mm512_unpacklo_epi32(x[0], x[1]);
    let low_too = _mm512_unpacklo_epi32(x[2], x[3]);
    let high = _mm512_unpackhi_epi32(x[0], x[1]);
    let high_too = _mm512_unpackhi_epi32(x[2], x[3]);
    [
        _mm512_unpacklo_epi64(low, low_too),
        _mm512_unpackhi_epi64(low, low_too),
        _mm512_unpacklo_epi64(high, high_too),
        _mm512_unpackhi_epi64(high, high_too),
    ]
}

/// Rows of a group of weights, as far as they matter for their limbs.
pub struct Weights {
    /// Factors that make whole numbers of converted words, four lanes for each row.
    scales: [__m512; LANES / 4],
    /// Units of the rows, in [`ORDER`].
    pub units: [[f64; HALF]; 2],
    /// Limbs of all rows; more than [`WEIGHT_LIMBS`] when these planes cannot hold them.
    pub limbs: usize,
}

impl Weights {
    #[target_feature(enable = "avx512f")]
    pub fn of(head: &[u8]) -> Weights {
        let span = |r: usize| spans::load(head, r);
        // What conversion takes for a half float: a plain one, or one times 1024.
        let found = match spans::form(head) {
            halves::F16Encoding::Normalized => 1.0 / f64::from(halves::form::PLAIN),
            _ => 1.0,
        };
        let scales = std::array::from_fn(|j| {
            let row: [f32; 16] = std::array::from_fn(|i| (found / unit(span(4 * j + i / 4).low)) as f32);
            // SAFETY: sixteen numbers.
            unsafe { _mm512_loadu_ps(row.as_ptr()) }
        });
        Weights {
            scales,
            units: std::array::from_fn(|half| ORDER.map(|row| unit(span(HALF * half + row).low))),
            limbs: (0..LANES).map(|r| limbs(span(r))).max().unwrap_or(0),
        }
    }

    /// Planes of the block that begins with `words`, `L` limbs each, to `planes`, and the norms of its rows in their
    /// units.
    ///
    /// # Safety
    /// AVX-512 F and BW; whole quads of words, and room for the planes of whole steps, aligned to 64 bytes.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub unsafe fn expand<const L: usize>(&self, words: &[u8], planes: *mut u8, norms: &mut [[f64; HALF]; 2]) {
        let quads = words.len() / QUAD;
        let steps = quads.div_ceil(STEP / STEPS);
        let mut squares = [_mm512_setzero_ps(); LANES / 4];
        for quad in 0..steps * STEP / STEPS {
            let (step, line) = (quad / (STEP / STEPS), quad % (STEP / STEPS));
            for half in 0..2 {
                // SAFETY: a quad of words where one is left, and a line of each limb of this step.
                unsafe {
                    let to = planes.add((half * steps + step) * L * TILE + line * ROW);
                    let to = |limb: usize| to.add(limb * TILE).cast();
                    if quad >= quads {
                        (0..L).for_each(|l| _mm512_store_si512(to(l), _mm512_setzero_si512()));
                        continue;
                    }
                    let from = words.as_ptr().add(quad * QUAD + half * QUAD / 2);
                    let mut rows = [_mm512_setzero_si512(); 4];
                    for j in 0..4 {
                        let x = _mm512_cvtph_ps(_mm256_loadu_si256(from.add(32 * j).cast()));
                        let x = _mm512_mul_ps(x, self.scales[4 * half + j]);
                        squares[4 * half + j] = _mm512_fmadd_ps(x, x, squares[4 * half + j]);
                        rows[j] = split(x);
                    }
                    let lines = transposed(rows);
                    for limb in 0..L {
                        _mm512_store_si512(to(limb), lines[limb]);
                    }
                }
            }
        }
        for (half, norms) in norms.iter_mut().enumerate() {
            let columns: [[f32; 16]; 4] = std::array::from_fn(|j| {
                let mut sums = [0.0; 16];
                // SAFETY: room for sixteen numbers.
                unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), squares[4 * half + j]) };
                sums
            });
            *norms = ORDER.map(|row| {
                let sum: f32 = columns[row / 4][4 * (row % 4)..][..4].iter().sum();
                f64::from(sum).sqrt() * ABOVE
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, skipped};
    use crate::{Isa, Level};

    #[test]
    fn spans_of_tokens_are_those_of_rows() {
        if Isa::of(Level::Avx512).is_none() {
            return skipped("spans of tokens", &Level::Avx512.missing().join(", "));
        }
        let mut random = Random(0x5FA9);
        for half in 0..=u16::MAX {
            let mut row = [[0; 2]; 37];
            row[random.below(37)] = half.to_le_bytes();
            row[random.below(37)] = (half / 3).to_le_bytes();
            // SAFETY: AVX-512 was found, which includes AVX2.
            let (token, row) = unsafe { (token_span(&row), Span::of(&row)) };
            match token {
                Some(span) => assert_eq!(span, row, "{half:04x}"),
                None => assert!(halves::is_special(half), "{half:04x}"),
            }
        }
    }
}
