//! Codes on AVX-512: masks of sixteen lanes, taken apart by `pext` as FairyFuse does it, or before, when weights are
//! packed. The second form also adds half as often, because it changes signs first.

use std::arch::x86_64::*;

/// The sum of sixteen lanes, halves first.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn reduce(lanes: __m512) -> f32 {
    let eight = _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps::<1>(lanes));
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// Accumulators of a stream: rr, ri, ir, ii.
type Sums = [__m512; 4];

/// `f(word, re, im, sums)`: adds a chunk to the accumulators of a stream.
macro_rules! streams {
    ($name:ident, $features:literal, $add:ident) => {
        /// The sums of `S` streams, which stay in registers, from `words` on.
        ///
        /// # Safety
        /// The processor has the instructions; at `words` are `chunks` times `stride` bytes, of which the first `4 · S`
        /// are read, and at `re` and `im` as many times 64.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn $name<const S: usize>(
            (stride, chunks): (usize, usize),
            mut words: *const u8,
            (mut re, mut im): (*const f32, *const f32),
            out: &mut [[f32; 4]],
        ) {
            let mut sums: [Sums; S] = [[_mm512_setzero_ps(); 4]; S];
            for _ in 0..chunks {
                // SAFETY: the caller says that all of them are there.
                unsafe {
                    let (x_re, x_im) = (_mm512_loadu_ps(re), _mm512_loadu_ps(im));
                    for (stream, sums) in sums.iter_mut().enumerate() {
                        $add(words.add(4 * stream), x_re, x_im, sums);
                    }
                    words = words.add(stride);
                    (re, im) = (re.add(16), im.add(16));
                }
            }
            for (out, sums) in out.iter_mut().zip(sums) {
                *out = sums.map(|lanes| reduce(lanes));
            }
        }
    };
}

/// A chunk in planes: signs are changed first, then both axes add.
///
/// # Safety
/// The processor has the instructions, and at `word` are four bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn add_planes(word: *const u8, re: __m512, im: __m512, sums: &mut Sums) {
    // SAFETY: the caller says that the four bytes are there.
    let [negative, imaginary] = unsafe { word.cast::<[__mmask16; 2]>().read_unaligned() };
    let sign = _mm512_set1_ps(-0.0);
    let re = _mm512_mask_xor_ps(re, negative, re, sign);
    let im = _mm512_mask_xor_ps(im, negative, im, sign);
    let [rr, ri, ir, ii] = sums;
    *rr = _mm512_mask_add_ps(*rr, !imaginary, *rr, re);
    *ri = _mm512_mask_add_ps(*ri, !imaginary, *ri, im);
    *ir = _mm512_mask_add_ps(*ir, imaginary, *ir, re);
    *ii = _mm512_mask_add_ps(*ii, imaginary, *ii, im);
}

/// A chunk of codes as FairyFuse adds it: what is positive is added, what is negative subtracted.
///
/// # Safety
/// The processor has the instructions, and at `word` are four bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,bmi2")]
unsafe fn add_words(word: *const u8, re: __m512, im: __m512, sums: &mut Sums) {
    // SAFETY: the caller says that the four bytes are there.
    let word = unsafe { word.cast::<u32>().read_unaligned() };
    let positive = _pext_u32(word, 0x5555_5555) as __mmask16;
    let imaginary = _pext_u32(word, 0xAAAA_AAAA) as __mmask16;
    let [rr, ri, ir, ii] = sums;
    let (plus, minus) = (!imaginary & positive, !imaginary & !positive);
    *rr = _mm512_mask_add_ps(*rr, plus, *rr, re);
    *rr = _mm512_mask_sub_ps(*rr, minus, *rr, re);
    *ri = _mm512_mask_add_ps(*ri, plus, *ri, im);
    *ri = _mm512_mask_sub_ps(*ri, minus, *ri, im);
    let (plus, minus) = (imaginary & positive, imaginary & !positive);
    *ir = _mm512_mask_add_ps(*ir, plus, *ir, re);
    *ir = _mm512_mask_sub_ps(*ir, minus, *ir, re);
    *ii = _mm512_mask_add_ps(*ii, plus, *ii, im);
    *ii = _mm512_mask_sub_ps(*ii, minus, *ii, im);
}

streams!(streams_of_planes, "avx512f,avx512bw,avx512vl,avx512dq", add_planes);
streams!(streams_of_words, "avx512f,avx512bw,avx512vl,avx512dq,bmi2", add_words);

macro_rules! sums {
    ($name:ident, $features:literal, $streams:ident) => {
        /// The sums of all streams over `chunks` chunks, as [`StreamSums`](crate::shared::widely::StreamSums) has them: up to
        /// four streams in one pass, whose accumulators fill half of the registers.
        ///
        /// # Safety
        /// The processor has the instructions; `words` are `4 · streams` bytes for each chunk, `re` and `im` 64.
        #[inline(never)]
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(
            streams: usize,
            chunks: usize,
            words: &[u8],
            re: &[u8],
            im: &[u8],
            out: &mut [[f32; 4]],
        ) {
            let x = (re.as_ptr().cast(), im.as_ptr().cast());
            let size = (4 * streams, chunks);
            for (first, out) in (0..streams).step_by(4).zip(out.chunks_mut(4)) {
                // SAFETY: a pass reads the words of the streams from `first` on, as many as `out` has, which are inside
                // of the `4 · streams` bytes of each chunk; the caller says that these and the floats are there.
                unsafe {
                    let words = words.as_ptr().add(4 * first);
                    match out.len() {
                        4 => $streams::<4>(size, words, x, out),
                        _ => $streams::<2>(size, words, x, out),
                    }
                }
            }
        }
    };
}

sums!(plane_sums_avx512, "avx512f,avx512bw,avx512vl,avx512dq", streams_of_planes);
sums!(word_sums_avx512, "avx512f,avx512bw,avx512vl,avx512dq,bmi2", streams_of_words);
