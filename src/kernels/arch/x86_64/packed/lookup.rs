//! Tables of sums, looked up by byte shuffles: the products of [`crate::arch::packed::lookup`].

use std::arch::x86_64::*;

use crate::arch::packed::lookup::{Bytes, MOST, lookups};
use crate::arch::x86_64::prefetch;
use crate::proof::{Avx2, Avx512, Proof};
use crate::shared::packed::lookup::{Bitwise, Quaternary, Tl1, Tl2};
use crate::shared::packed::{Call, Layout};

lookups! { Avx2, 32, "avx2,f16c",
    TL1: Tl1;
    TL2: Tl2;
    QUATERNARY: Quaternary;
    BITWISE: Bitwise;
}

lookups! { Avx512, 64, "avx512f,avx512bw,avx512vl,avx512dq",
    TL1_512: Tl1;
    TL2_512: Tl2;
    QUATERNARY_512: Quaternary;
    BITWISE_512: Bitwise;
}

/// Prefetches the lines of `bytes` bytes `ahead` bytes behind `p`.
#[inline(always)]
fn lines(p: *const u8, bytes: usize, ahead: usize) {
    if ahead > 0 {
        for line in (0..bytes).step_by(64) {
            prefetch::line_to_first(p.wrapping_add(ahead + line));
        }
    }
}

impl Bytes for Avx2 {
    const ROWS: usize = 32;
    type Vector = __m256i;
    type Words = [__m256i; 2];

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load(p: *const u8) -> __m256i {
        // SAFETY: the caller's 32 bytes.
        unsafe { _mm256_loadu_si256(p.cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn table(p: *const u8) -> __m256i {
        // SAFETY: the caller's 16 bytes.
        unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(p.cast())) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn nibbles(v: __m256i) -> [__m256i; 2] {
        let low = _mm256_set1_epi8(15);
        [_mm256_and_si256(v, low), _mm256_and_si256(_mm256_srli_epi16::<4>(v), low)]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn negative(signs: __m256i) -> __m256i {
        _mm256_cmpgt_epi8(_mm256_setzero_si256(), signs)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn find(table: __m256i, index: __m256i, flip: Option<__m256i>) -> __m256i {
        let entry = _mm256_shuffle_epi8(table, index);
        match flip {
            Some(flip) => _mm256_xor_si256(entry, flip),
            None => entry,
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn add(a: __m256i, b: __m256i) -> __m256i {
        _mm256_add_epi8(a, b)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn join(words: [__m256i; 2], low: __m256i, high: __m256i, factor: i8) -> [__m256i; 2] {
        let factors = _mm256_set1_epi16(i16::from(factor) * (1 + (32 << 8)));
        let pairs = [_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)];
        [0, 1].map(|i| _mm256_add_epi16(words[i], _mm256_maddubs_epi16(factors, pairs[i])))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn zero() -> [__m256i; 2] {
        [_mm256_setzero_si256(); 2]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn spill([first, second]: [__m256i; 2], sums: &mut [i32; MOST]) {
        // Each half of a vector has eight of sixteen rows.
        let halves = [
            _mm256_castsi256_si128(first),
            _mm256_castsi256_si128(second),
            _mm256_extracti128_si256::<1>(first),
            _mm256_extracti128_si256::<1>(second),
        ];
        for (words, sums) in halves.into_iter().zip(sums.as_chunks_mut::<8>().0) {
            add_eight(words, sums);
        }
    }

    #[inline(always)]
    fn prefetch(p: *const u8, bytes: usize, ahead: usize) {
        lines(p, bytes, ahead);
    }
}

/// Adds eight words to sums.
#[inline]
#[target_feature(enable = "avx2")]
fn add_eight(words: __m128i, sums: &mut [i32; 8]) {
    let at = sums.as_mut_ptr().cast::<__m256i>();
    // SAFETY: eight sums, of which no alignment is asked.
    unsafe { _mm256_storeu_si256(at, _mm256_add_epi32(_mm256_loadu_si256(at), _mm256_cvtepi16_epi32(words))) }
}

impl Bytes for Avx512 {
    const ROWS: usize = 64;
    type Vector = __m512i;
    type Words = [__m512i; 2];

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load(p: *const u8) -> __m512i {
        // SAFETY: the caller's 64 bytes.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn table(p: *const u8) -> __m512i {
        // SAFETY: the caller's 16 bytes.
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(p.cast())) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn nibbles(v: __m512i) -> [__m512i; 2] {
        let low = _mm512_set1_epi8(15);
        [_mm512_and_si512(v, low), _mm512_and_si512(_mm512_srli_epi16::<4>(v), low)]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn negative(signs: __m512i) -> __m512i {
        _mm512_movm_epi8(_mm512_movepi8_mask(signs))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn find(table: __m512i, index: __m512i, flip: Option<__m512i>) -> __m512i {
        let entry = _mm512_shuffle_epi8(table, index);
        match flip {
            Some(flip) => _mm512_xor_si512(entry, flip),
            None => entry,
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn add(a: __m512i, b: __m512i) -> __m512i {
        _mm512_add_epi8(a, b)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn join(words: [__m512i; 2], low: __m512i, high: __m512i, factor: i8) -> [__m512i; 2] {
        let factors = _mm512_set1_epi16(i16::from(factor) * (1 + (32 << 8)));
        let pairs = [_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)];
        [0, 1].map(|i| _mm512_add_epi16(words[i], _mm512_maddubs_epi16(factors, pairs[i])))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn zero() -> [__m512i; 2] {
        [_mm512_setzero_si512(); 2]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    unsafe fn spill([first, second]: [__m512i; 2], sums: &mut [i32; MOST]) {
        // Each quarter of a vector has eight of sixteen rows.
        let quarters = [
            [_mm512_extracti64x2_epi64::<0>(first), _mm512_extracti64x2_epi64::<0>(second)],
            [_mm512_extracti64x2_epi64::<1>(first), _mm512_extracti64x2_epi64::<1>(second)],
            [_mm512_extracti64x2_epi64::<2>(first), _mm512_extracti64x2_epi64::<2>(second)],
            [_mm512_extracti64x2_epi64::<3>(first), _mm512_extracti64x2_epi64::<3>(second)],
        ];
        for (words, sums) in quarters.as_flattened().iter().zip(sums.as_chunks_mut::<8>().0) {
            add_eight(*words, sums);
        }
    }

    #[inline(always)]
    fn prefetch(p: *const u8, bytes: usize, ahead: usize) {
        lines(p, bytes, ahead);
    }
}
