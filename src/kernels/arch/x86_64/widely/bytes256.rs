//! Sixteen rows with 8-bit activations on AVX2: pairs of products are added in 16 bits, which 64 columns cannot exceed.
//!
//! A code becomes two bytes, 1 more than its factor on the real and on the imaginary axis, by looking up four bits, two
//! codes, at once. What the 1 adds is the sum of the block's activations, which is subtracted at the end of a block.

use std::arch::x86_64::*;

use super::super::packed::{NoPrefetch, PrefetchDistance};
use crate::shared::widely::{BLOCK_BYTES, BLOCK_CHUNKS, Block, CHUNK_BYTES, ROWS, Unit, by_blocks};

/// For each code 1 more than its factor on an axis: real, imaginary.
const FACTORS: [[i8; 4]; 2] = [[0, 2, 1, 1], [1, 1, 0, 2]];

/// Factors by four bits, of the lower and of the upper code.
const fn table(axis: usize, upper: bool) -> [i8; 16] {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = FACTORS[axis][if upper { i >> 2 } else { i & 3 }];
        i += 1;
    }
    table
}

/// The tables, `[lower, upper][real, imaginary]`.
pub(super) const TABLES: [[[i8; 16]; 2]; 2] = [[table(0, false), table(1, false)], [table(0, true), table(1, true)]];

/// The products of a unit and one row of activations.
///
/// # Safety
/// The processor has AVX2 and FMA, and the lengths fit.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn multiply(unit: &Unit<'_>, acts: &[u8], ahead: impl PrefetchDistance, out: &mut [[f32; ROWS]; 2]) {
    by_blocks(unit, acts, out, |codes, x, sums| {
        // SAFETY: the caller says that the instructions are there.
        unsafe {
            half(codes, 0, x, ahead, sums);
            half(codes, 1, x, NoPrefetch, sums);
        }
    });
}

/// Eight of the rows of a block of one stream. By itself it has all it needs in registers; two halves together do not.
///
/// # Safety
/// The processor has AVX2, and `half` is 0 or 1.
#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn half(
    codes: &[u8; BLOCK_BYTES],
    half: usize,
    x: &Block<'_>,
    ahead: impl PrefetchDistance,
    sums: &mut [[f32; ROWS]; 4],
) {
    let table = |t: &[i8; 16]| {
        // SAFETY: sixteen bytes.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(t.as_ptr().cast()) })
    };
    let tables = [[table(&TABLES[0][0]), table(&TABLES[0][1])], [table(&TABLES[1][0]), table(&TABLES[1][1])]];
    let nibble = _mm256_set1_epi8(15);
    let mut pairs = [_mm256_setzero_si256(); 4];
    // Of a loop that it could unroll the compiler would put off additions and keep what they add on the stack.
    for chunk in 0..std::hint::black_box(BLOCK_CHUNKS) {
        // SAFETY: half of one of the block's four chunks, and four activations of each of four fields: 64 real and
        // 64 imaginary parts are there.
        unsafe {
            let bytes = codes.as_ptr().add(CHUNK_BYTES * chunk + 32 * half);
            ahead.line(bytes);
            let bytes = _mm256_loadu_si256(bytes.cast());
            let low = _mm256_and_si256(bytes, nibble);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibble);
            for field in 0..4 {
                let codes = if field < 2 { low } else { high };
                let [real, imaginary] = tables[field % 2];
                let real = _mm256_shuffle_epi8(real, codes);
                let imaginary = _mm256_shuffle_epi8(imaginary, codes);
                let four = |part: usize| {
                    let at = x.ints.as_ptr().add(64 * part + 16 * chunk + 4 * field);
                    _mm256_set1_epi32(at.cast::<i32>().read_unaligned())
                };
                let (re, im) = (four(0), four(1));
                let [rr, ri, ir, ii] = &mut pairs;
                *rr = _mm256_add_epi16(*rr, _mm256_maddubs_epi16(real, re));
                *ri = _mm256_add_epi16(*ri, _mm256_maddubs_epi16(real, im));
                *ir = _mm256_add_epi16(*ir, _mm256_maddubs_epi16(imaginary, re));
                *ii = _mm256_add_epi16(*ii, _mm256_maddubs_epi16(imaginary, im));
            }
        }
    }
    for (k, (pairs, sums)) in pairs.into_iter().zip(sums).enumerate() {
        let integers = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
        let integers = _mm256_sub_epi32(integers, _mm256_set1_epi32(x.sums[k % 2]));
        let scale = _mm256_set1_ps(x.scales[k % 2]);
        // SAFETY: eight of sixteen floats.
        unsafe {
            let at = sums.as_mut_ptr().add(8 * half);
            let product = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(integers));
            _mm256_storeu_ps(at, _mm256_add_ps(_mm256_loadu_ps(at), product));
        }
    }
}
