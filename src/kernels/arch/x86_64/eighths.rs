//! Rows of IQ1_S and IQ1_M of ik_llama.cpp's kind, as the file has them once they are taken apart: points of a codebook,
//! moved by an eighth, under one scale for the row and an integer one for 32 or 16 weights.
//!
//! Eight rows are the lanes. Their points of 32 weights are unpacked to levels in eighths, from -9 to 9, and transposed, so
//! that a vector has a dword of each row; up to [`TOKENS`] tokens run over it. The signs of activations go to the levels.

use std::arch::x86_64::*;

use trine_formats::types::num::f16_at;
use trine_formats::types::{TypeId, codebook, info};

use super::panel::transpose8;
use crate::arch::rows::{Call, RowKernel};
use crate::proof::{Avx2, Proof};

/// Rows side by side.
const LANES: usize = 8;
/// Tokens whose sums stay in the first-level cache.
const TOKENS: usize = 32;
/// Bytes of a row's scale, and of 32 activations, which begin with theirs.
const HEAD: usize = 2;
const ACT: usize = info::Q8_0.bytes;

pub(super) const ROW_KERNELS: &[RowKernel] = &[rows::<Iq1S>(TypeId::IQ1_S_R1), rows::<Iq1M>(TypeId::IQ1_M_R1)];

const fn rows<C: Points>(ty: TypeId) -> RowKernel {
    RowKernel { ty, needs: Avx2::NEEDS, lanes: LANES, by_row: multiply::<C>, panel: multiply::<C> }
}

/// How a block of 32 weights is read.
trait Points {
    /// Bytes of a block.
    const BYTES: usize;
    /// The place of point m in the codebook, and whether it is moved down.
    fn point(block: &[u8], m: usize) -> (usize, bool);
    /// The scales of both halves.
    fn scales(block: &[u8]) -> [u8; 2];
}

struct Iq1S;
struct Iq1M;

/// The word behind the places: their upper bits, the scale, the direction of the move.
fn word(block: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([block[4], block[5]]))
}

impl Points for Iq1S {
    const BYTES: usize = info::IQ1_S_R1.bytes;

    #[inline(always)]
    fn point(block: &[u8], m: usize) -> (usize, bool) {
        let word = word(block);
        (usize::from(block[m]) | (word >> (3 * m) & 7) << 8, word & 0x8000 != 0)
    }

    #[inline(always)]
    fn scales(block: &[u8]) -> [u8; 2] {
        [2 * (word(block) >> 12 & 7) as u8 + 1; 2]
    }
}

impl Points for Iq1M {
    const BYTES: usize = info::IQ1_M_R1.bytes;

    #[inline(always)]
    fn point(block: &[u8], m: usize) -> (usize, bool) {
        let upper = usize::from(block[4 + m / 2] >> (4 * (m % 2)));
        (usize::from(block[m]) | (upper & 7) << 8, upper & 8 != 0)
    }

    #[inline(always)]
    fn scales(block: &[u8]) -> [u8; 2] {
        [block[6] & 15, block[6] >> 4]
    }
}

/// 32 weights of eight rows.
struct Unpacked {
    /// Dword k of each row's levels.
    levels: [__m256i; 8],
    /// The scales of both halves, twice as i16.
    scales: [__m256i; 2],
}

/// The levels of a block, in order.
#[inline]
#[target_feature(enable = "avx2")]
fn levels<C: Points>(block: &[u8]) -> __m256i {
    let eight = |(place, _): (usize, bool)| i64::from_le_bytes(codebook::IQ1[place].map(i8::cast_unsigned));
    let moved = |(_, down): (usize, bool)| if down { -1 } else { 0x0101_0101_0101_0101 };
    // One by one: a function that makes an array of them is compiled without this one's features, and called.
    let (a, b, c, d) = (C::point(block, 0), C::point(block, 1), C::point(block, 2), C::point(block, 3));
    let coordinates = _mm256_setr_epi64x(eight(a), eight(b), eight(c), eight(d));
    let moves = _mm256_setr_epi64x(moved(a), moved(b), moved(c), moved(d));
    // Eight times a coordinate, whose bits from the byte before are masked.
    let eighths = _mm256_and_si256(_mm256_slli_epi16::<3>(coordinates), _mm256_set1_epi8(-8));
    _mm256_add_epi8(eighths, moves)
}

/// Block b of up to eight rows, which are `stride` bytes apart; lanes without a row repeat the last one.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn unpack<C: Points>(rows: &[u8], stride: usize, b: usize) -> Unpacked {
    let count = rows.len() / stride;
    let mut of_rows = [_mm256_setzero_si256(); LANES];
    let mut scales = [[0i32; LANES]; 2];
    for (r, levels_of_row) in of_rows.iter_mut().enumerate() {
        let block = &rows[stride * r.min(count - 1) + HEAD + C::BYTES * b..][..C::BYTES];
        *levels_of_row = levels::<C>(block);
        for (scales, scale) in scales.iter_mut().zip(C::scales(block)) {
            scales[r] = i32::from(scale) * 0x0001_0001;
        }
    }
    // SAFETY: 32 bytes each.
    let scales = scales.map(|scales| unsafe { _mm256_loadu_si256(scales.as_ptr().cast()) });
    Unpacked { levels: transpose8(of_rows), scales }
}

/// # Safety
/// The processor has AVX2, FMA and F16C; `n` > 0 and all lengths fit.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply<C: Points>(call: Call<'_>) {
    let Call { w, acts, n, tokens, out } = call;
    let (blocks, stride) = (n / 32, HEAD + n / 32 * C::BYTES);
    for (rows, out) in w.chunks(LANES * stride).zip(out.chunks_mut(LANES * tokens)) {
        let mut d = [0.0; LANES];
        d.iter_mut().zip(rows.chunks_exact(stride)).for_each(|(d, row)| *d = f16_at(row, 0));
        for (i, acts) in acts.chunks(TOKENS * blocks * ACT).enumerate() {
            let mut sums = [[0.0; LANES]; TOKENS];
            for b in 0..blocks {
                let unpacked = unpack::<C>(rows, stride, b);
                for (act, sum) in acts.chunks_exact(blocks * ACT).zip(&mut sums) {
                    add(&unpacked, &d, &act[ACT * b..][..ACT], sum);
                }
            }
            for (r, out) in out.chunks_exact_mut(tokens).enumerate() {
                out[TOKENS * i..].iter_mut().zip(&sums).for_each(|(out, sum)| *out = sum[r]);
            }
        }
    }
}

/// `sum + (d * dx) * (isum / 8)` of eight rows and 32 activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add(w: &Unpacked, d: &[f32; LANES], act: &[u8], sum: &mut [f32; LANES]) {
    let dx = _mm256_cvtph_ps(_mm_set1_epi16(i16::from_le_bytes([act[0], act[1]])));
    let quants = act[2..].as_chunks::<4>().0;
    // Products of 16 weights are 16 * 9 * 128 at most, in pairs of 16 bits.
    let mut halves = [_mm256_setzero_si256(); 2];
    for (k, (levels, quants)) in w.levels.iter().zip(quants).enumerate() {
        let y = _mm256_set1_epi32(i32::from_le_bytes(*quants));
        let products = _mm256_maddubs_epi16(_mm256_abs_epi8(y), _mm256_sign_epi8(*levels, y));
        halves[k / 4] = _mm256_add_epi16(halves[k / 4], products);
    }
    let [first, second] = [0, 1].map(|h| _mm256_madd_epi16(halves[h], w.scales[h]));
    let isum = _mm256_cvtepi32_ps(_mm256_add_epi32(first, second));
    // SAFETY: eight floats each.
    unsafe {
        let d = _mm256_mul_ps(_mm256_loadu_ps(d.as_ptr()), dx);
        let term = _mm256_mul_ps(d, _mm256_mul_ps(isum, _mm256_set1_ps(0.125)));
        _mm256_storeu_ps(sum.as_mut_ptr(), _mm256_add_ps(_mm256_loadu_ps(sum.as_ptr()), term));
    }
}
