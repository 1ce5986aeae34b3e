//! Words of codes on AVX2: masks come from comparing the bits of a word with a bit for each lane. It reads the file as
//! it is; [`super::tables256`] is faster with words that were sorted.

use std::arch::x86_64::*;
use std::hint::black_box;

/// The sum of sixteen lanes, halves first.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn reduce(low: __m256, high: __m256) -> f32 {
    let eight = _mm256_add_ps(low, high);
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// The sums of all streams over `chunks` chunks, as [`StreamSums`](crate::shared::widely::StreamSums) has them. One stream at a
/// time: its accumulators fill half of the registers.
///
/// # Safety
/// The processor has AVX2; `words` are `4 · streams` bytes for each chunk, `re` and `im` 64.
#[inline(never)]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn word_sums_avx2(
    streams: usize,
    chunks: usize,
    words: &[u8],
    re: &[u8],
    im: &[u8],
    out: &mut [[f32; 4]],
) {
    let bit = |j: i32| 1i32.wrapping_shl(2 * j as u32);
    let lanes = |h: i32, axis: i32| {
        let b = |l: i32| bit(8 * h + l).wrapping_shl(axis as u32);
        _mm256_setr_epi32(b(0), b(1), b(2), b(3), b(4), b(5), b(6), b(7))
    };
    // of bits that it knows the compiler would make shifts
    let positive = black_box([lanes(0, 0), lanes(1, 0)]);
    let imaginary = black_box([lanes(0, 1), lanes(1, 1)]);
    let sign = black_box(_mm256_set1_epi32(i32::MIN));
    let zero = _mm256_setzero_si256();
    for (stream, out) in out.iter_mut().enumerate() {
        // rr, ri, ir, ii of either half
        let mut sums = [[_mm256_setzero_ps(); 4]; 2];
        // SAFETY: of `stream < streams` words of each of `chunks` chunks, and of 16 floats of each, the caller says
        // that they are there.
        unsafe {
            let mut word = words.as_ptr().add(4 * stream);
            let (mut re, mut im) = (re.as_ptr().cast::<f32>(), im.as_ptr().cast::<f32>());
            for _ in 0..chunks {
                let codes = _mm256_set1_epi32(word.cast::<i32>().read_unaligned());
                for h in 0..2 {
                    let [rr, ri, ir, ii] = &mut sums[h];
                    let negative = _mm256_cmpeq_epi32(_mm256_and_si256(codes, positive[h]), zero);
                    let change = _mm256_castsi256_ps(_mm256_and_si256(negative, sign));
                    let axis = _mm256_and_si256(codes, imaginary[h]);
                    let on_real = _mm256_castsi256_ps(_mm256_cmpeq_epi32(axis, zero));
                    let x = _mm256_xor_ps(_mm256_loadu_ps(re.add(8 * h)), change);
                    *rr = _mm256_add_ps(*rr, _mm256_and_ps(on_real, x));
                    *ir = _mm256_add_ps(*ir, _mm256_andnot_ps(on_real, x));
                    let x = _mm256_xor_ps(_mm256_loadu_ps(im.add(8 * h)), change);
                    *ri = _mm256_add_ps(*ri, _mm256_and_ps(on_real, x));
                    *ii = _mm256_add_ps(*ii, _mm256_andnot_ps(on_real, x));
                }
                word = word.add(4 * streams);
                (re, im) = (re.add(16), im.add(16));
            }
        }
        let [low, high] = sums;
        for (out, (low, high)) in out.iter_mut().zip(low.into_iter().zip(high)) {
            *out = reduce(low, high);
        }
    }
}
