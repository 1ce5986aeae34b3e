//! K-quants with eight chains per row: their layouts, and products by AVX-512.

use std::arch::x86_64::*;

use super::zmm::{Zmm, dpwssd};
use crate::arch::x86_64::rows::chains::{Expands, KSet, Lines, Parts, Product, RowSums, Sums, chain_sum};
use crate::arch::x86_64::rows::k16::Set16;
use crate::arch::x86_64::rows::k32::{Chains, CodesOf32, Header, Set32};
use crate::arch::x86_64::rows::lanes::{Lanes, Set, unroll};
use crate::arch::x86_64::rows::{k16, k32, q3_k, q6_k};
use crate::proof::{Avx2, Avx512, AvxVnni};
use crate::shared::packed::Layout;
use crate::shared::packed::k_quants::{BLOCK, of_32};

/// Words of two vectors, one after the other: where word i of dword s of l = 0 and 1 comes from, s = 0..4.
const WORDS: [i16; 32] = {
    let mut words = [0; 32];
    let mut k = 0;
    while k < 32 {
        let (l, s, i) = (k / 16, k / 2 % 4, k % 2);
        words[k] = (16 * s + 8 * i + l) as i16;
        k += 1;
    }
    words
};

impl KSet for Avx512 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn by_lane(q: &[u8; BLOCK], to: &mut [u8; BLOCK]) {
        // Word i of l = 0..8 of half s: elements l + 16i and l + 8 + 16i, side by side.
        let pairs = _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
        let mut halves = [_mm512_setzero_si512(); 4];
        for (halves, q) in halves.iter_mut().zip(q.as_chunks::<64>().0) {
            // SAFETY: 64 bytes.
            let q = unsafe { Zmm::load(q.as_ptr()) };
            *halves = _mm512_shuffle_epi8(q, _mm512_broadcast_i32x4(pairs));
        }
        // SAFETY: 32 words.
        let mut words = unsafe { Zmm::load(WORDS.as_ptr().cast()) };
        let mut out = halves;
        for out in &mut out {
            let first = _mm512_permutex2var_epi16(halves[0], words, halves[1]);
            let second = _mm512_permutex2var_epi16(halves[2], words, halves[3]);
            *out = _mm512_mask_blend_epi16(0xFF00_FF00, first, second);
            words = _mm512_add_epi16(words, _mm512_set1_epi16(2));
        }
        for (to, v) in to.as_chunks_mut::<64>().0.iter_mut().zip(out) {
            // SAFETY: 64 bytes; no alignment is asked for.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), v) }
        }
    }
}

impl<const T: usize> Parts<T> for Avx512 {
    #[inline(always)]
    unsafe fn sums<const CORRECTED: bool>(
        scales: &[__m512i; 8],
        codes: &[__m512i; 8],
        y: *const u8,
        stride: usize,
        prefetch: impl Fn(usize),
    ) -> [__m512i; T] {
        // SAFETY: the caller's processor and activations.
        unsafe {
            let mut sums = [Zmm::dwords(0); T];
            for (t, sum) in sums.iter_mut().enumerate() {
                *sum = chain_sum::<Zmm, CORRECTED>(scales, codes, y.add(stride * t), &prefetch);
            }
            sums
        }
    }
}

impl Set16<q3_k::Q3K> for Avx512 {
    const EXPANDED_FROM: usize = 4;

    unsafe fn expanded(call: Product<'_, ()>) {
        // SAFETY: the caller's promise.
        unsafe { Self::run::<q3_k::Expanded<Self>>(call) }
    }
}

impl Set16<q6_k::Q6K> for Avx512 {
    const EXPANDED_FROM: usize = 16;

    unsafe fn expanded(call: Product<'_, ()>) {
        // SAFETY: the caller's promise.
        unsafe { Self::run::<q6_k::Expanded<Self>>(call) }
    }
}

impl Expands for Avx512 {
    #[inline]
    #[target_feature(enable = "avx2,avx512f,avx512bw")]
    unsafe fn widen(y: *const u8, to: &mut [u8; 64]) {
        let order = _mm256_set1_epi32(0x0301_0200);
        let rows =
            _mm256_setr_epi32(0, 0x0404_0404, 0x0808_0808, 0x0C0C_0C0C, 0, 0x0404_0404, 0x0808_0808, 0x0C0C_0C0C);
        // SAFETY: the caller's 32 bytes, and 64 to be written.
        unsafe {
            let bytes = _mm256_shuffle_epi8(_mm256_loadu_si256(y.cast()), _mm256_add_epi8(order, rows));
            _mm512_storeu_si512(to.as_mut_ptr().cast(), _mm512_cvtepi8_epi16(bytes));
        }
    }
}

impl<const T: usize> Sums<T> for Avx512 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn add_bytes(
        lines: &Lines<Zmm>,
        side: usize,
        y: *const u8,
        stride: usize,
        mut acc: RowSums<Zmm, T>,
    ) -> RowSums<Zmm, T> {
        for (t, [acc, _]) in acc.iter_mut().enumerate() {
            unroll!(J in [0 1 2 3 4 5 6 7] {
                // SAFETY: the caller's activations have eight dwords.
                let y = unsafe { Zmm::broadcast(y.add(stride * t + 4 * J)) };
                *acc = _mm512_dpbusd_epi32(*acc, lines[J][side][0], y);
            });
        }
        acc
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn add_words(
        lines: &Lines<Zmm>,
        side: usize,
        y: *const u8,
        stride: usize,
        mut acc: RowSums<Zmm, T>,
    ) -> RowSums<Zmm, T> {
        for (t, [acc, _]) in acc.iter_mut().enumerate() {
            // SAFETY: the caller's activations have eight dwords.
            unsafe {
                let (y, mut sums) = (y.add(stride * t), [*acc, Zmm::dwords(0)]);
                unroll!(J in [0 1 2 3 4 5 6 7] {
                    sums[J % 2] = Zmm::add_scaled_at::<{ 4 * J }>(sums[J % 2], lines[J][side][0], y);
                });
                *acc = Zmm::add_dwords(sums[0], sums[1]);
            }
        }
        acc
    }
}

impl Set32 for Avx512 {
    const IN_PLACE: bool = true;
}

impl<const T: usize> Chains<T> for Avx512 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn chains<C: CodesOf32>(
        header: &Header<Zmm>,
        codes: &[__m512i; 8],
        y: *const u8,
        stride: usize,
        prefetch: impl Fn(usize),
    ) -> [__m512i; T] {
        let shift = _mm_cvtsi32_si128(C::SHIFT as i32);
        let mut sums = [header.start; T];
        for (t, acc) in sums.iter_mut().enumerate() {
            for (p, ([even, odd], scales)) in codes.as_chunks::<2>().0.iter().zip(&header.pairs).enumerate() {
                // SAFETY: the caller's activations have eight dwords.
                let (y0, y1) = unsafe {
                    let y = y.add(stride * t + 8 * p);
                    (Zmm::broadcast(y), Zmm::broadcast(y.add(4)))
                };
                prefetch(2 * p);
                // The sum of the odd unit goes to the high half, with the bias for the low one below it.
                let sums = _mm512_dpbusd_epi32(_mm512_set1_epi32(C::BIAS >> C::SHIFT), *odd, y1);
                prefetch(2 * p + 1);
                let sums = _mm512_dpbusd_epi32(_mm512_sll_epi32(sums, shift), *even, y0);
                *acc = dpwssd(*acc, sums, *scales);
            }
        }
        sums
    }
}

/// The rows of these kernels.
macro_rules! layouts {
    ($($set:ident)*) => {
        &[$(
            k16::layout::<$set, q3_k::Q3K>(),
            k16::layout::<$set, q6_k::Q6K>(),
            k32::layout::<$set, of_32::Q4K>(),
            k32::layout::<$set, of_32::Q5K>(),
        )*]
    };
}

pub(super) static LAYOUTS: &[Layout] = layouts!(Avx2 AvxVnni Avx512);
