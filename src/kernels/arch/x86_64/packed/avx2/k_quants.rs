//! Products of K-quants by AVX2 and AVX-VNNI.
//!
//! In assembly where tokens share codes, because the compiler takes the broadcasts of all dwords to the front and, having
//! no registers for them, spills them.

use std::arch::x86_64::*;

use super::super::ymm::{Ymm, dword_order};
use super::vnni::{EightDwords, LINE, PairSums};
use crate::arch::x86_64::rows::chains::{CORRECTION, Expands, KSet, Lines, Parts, Product, RowSums, Sums};
use crate::arch::x86_64::rows::k16::Set16;
use crate::arch::x86_64::rows::k32::{Chains, CodesOf32, Header, Set32};
use crate::arch::x86_64::rows::lanes::{Lanes, Set};
use crate::arch::x86_64::rows::{q3_k, q6_k};
use crate::proof::{Avx2, AvxVnni};
use crate::shared::packed::k_quants::{BLOCK, CHAINS};

impl KSet for Avx2 {
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn by_lane(q: &[u8; BLOCK], out: &mut [u8; BLOCK]) {
        // Word l of a half: its element l and the one eight further.
        let pairs = _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
        for (s, q) in q.as_chunks::<32>().0.iter().enumerate() {
            // SAFETY: two halves of 16 bytes.
            let [first, second] =
                [0, 16].map(|at| unsafe { _mm_shuffle_epi8(_mm_loadu_si128(q.as_ptr().add(at).cast()), pairs) });
            let mut dwords = [[0u8; 4]; CHAINS];
            let (low, high) = dwords.as_flattened_mut().split_at_mut(16);
            // SAFETY: 16 bytes each.
            unsafe {
                _mm_storeu_si128(low.as_mut_ptr().cast(), _mm_unpacklo_epi16(first, second));
                _mm_storeu_si128(high.as_mut_ptr().cast(), _mm_unpackhi_epi16(first, second));
            }
            for (l, dword) in dwords.iter().enumerate() {
                out[32 * l + 4 * s..][..4].copy_from_slice(dword);
            }
        }
    }
}

impl KSet for AvxVnni {
    #[inline(always)]
    unsafe fn by_lane(q: &[u8; BLOCK], out: &mut [u8; BLOCK]) {
        // SAFETY: AVX-VNNI includes AVX2.
        unsafe { Avx2::by_lane(q, out) }
    }
}

impl<const T: usize> Parts<T> for AvxVnni
where
    Avx2: Parts<T>,
{
    #[inline(always)]
    unsafe fn sums<const CORRECTED: bool>(
        scales: &[__m256i; 8],
        codes: &[__m256i; 8],
        y: *const u8,
        stride: usize,
        prefetch: impl Fn(usize),
    ) -> [__m256i; T] {
        // SAFETY: AVX-VNNI includes AVX2.
        unsafe { <Avx2 as Parts<T>>::sums::<CORRECTED>(scales, codes, y, stride, prefetch) }
    }
}

/// One dword of all tokens.
macro_rules! dword {
    ([$($acc:ident $at:literal),*], $w:literal, $y:literal, $correction:literal $add:literal) => {
        concat!(
            "vmovdqa {w}, ymmword ptr [{codes} + ", $w, "]\n",
            "vmovdqa {s}, ymmword ptr [{scales} + ", $w, "]\n",
            $("vpbroadcastd {y}, dword ptr [{q} ", $at, " + ", $y, "]\n",
            $correction, $at, $add, $y, "]\n",
            "vpmaddubsw {y}, {w}, {y}\n",
            "vpaddw {y}, {y}, {c}\n",
            "vpmaddwd {y}, {y}, {s}\n",
            "vpaddd {", stringify!($acc), "}, {", stringify!($acc), "}, {y}\n",)*
        )
    };
    ([$($acc:ident $at:literal),*], $w:literal, $y:literal,) => {
        concat!(
            "vmovdqa {w}, ymmword ptr [{codes} + ", $w, "]\n",
            "vmovdqa {s}, ymmword ptr [{scales} + ", $w, "]\n",
            $("vpbroadcastd {y}, dword ptr [{q} ", $at, " + ", $y, "]\n",
            "vpmaddubsw {y}, {w}, {y}\n",
            "vpmaddwd {y}, {y}, {s}\n",
            "vpaddd {", stringify!($acc), "}, {", stringify!($acc), "}, {y}\n",)*
        )
    };
}

/// The eight dwords of all tokens.
macro_rules! part_sums {
    ([$($acc:ident $at:literal),*], $scales:ident, $codes:ident, $y:ident, $stride:ident, $($correction:literal $add:literal)?) => {
        // SAFETY: reads 256 bytes of scales and of codes, and of each token what the caller vouches for.
        unsafe {
            std::arch::asm!(
                dword!([$($acc $at),*], "0", "0", $($correction $add)?),
                dword!([$($acc $at),*], "32", "4", $($correction $add)?),
                dword!([$($acc $at),*], "64", "8", $($correction $add)?),
                dword!([$($acc $at),*], "96", "12", $($correction $add)?),
                dword!([$($acc $at),*], "128", "16", $($correction $add)?),
                dword!([$($acc $at),*], "160", "20", $($correction $add)?),
                dword!([$($acc $at),*], "192", "24", $($correction $add)?),
                dword!([$($acc $at),*], "224", "28", $($correction $add)?),
                "/* {stride} {stride3} {c} */", // a use where there is none
                codes = in(reg) $codes,
                scales = in(reg) $scales,
                q = in(reg) $y,
                stride = in(reg) $stride,
                stride3 = in(reg) 3 * $stride,
                w = out(ymm_reg) _,
                s = out(ymm_reg) _,
                y = out(ymm_reg) _,
                c = out(ymm_reg) _,
                $($acc = inout(ymm_reg) $acc,)*
                options(readonly, nostack, preserves_flags),
            );
        }
    };
}

macro_rules! parts {
    ($tokens:literal, [$($acc:ident $at:literal),*]) => {
        impl Parts<$tokens> for Avx2 {
            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn sums<const CORRECTED: bool>(
                scales: &[__m256i; 8],
                codes: &[__m256i; 8],
                y: *const u8,
                stride: usize,
                prefetch: impl Fn(usize),
            ) -> [__m256i; $tokens] {
                $(let mut $acc = _mm256_setzero_si256();)*
                prefetch(0);
                if CORRECTED {
                    part_sums!([$($acc $at),*], scales, codes, y, stride, "vpbroadcastd {c}, dword ptr [{q} " " + 256 + ");
                } else {
                    part_sums!([$($acc $at),*], scales, codes, y, stride,);
                }
                prefetch(1);
                [$($acc),*]
            }
        }
    };
}

const _: () = assert!(CORRECTION == 256);
parts!(1, [a ""]);
parts!(2, [a "", b "+ {stride}"]);
parts!(3, [a "", b "+ {stride}", c0 "+ 2*{stride}"]);
parts!(4, [a "", b "+ {stride}", c0 "+ 2*{stride}", d "+ {stride3}"]);

impl<C> Set16<C> for Avx2 {}

impl Set16<q3_k::Q3K> for AvxVnni {
    const EXPANDED_FROM: usize = 3;

    unsafe fn expanded(call: Product<'_, ()>) {
        // SAFETY: the caller's promise.
        unsafe { Self::run::<q3_k::Expanded<Self>>(call) }
    }
}

impl Set16<q6_k::Q6K> for AvxVnni {
    const EXPANDED_FROM: usize = 8;

    unsafe fn expanded(call: Product<'_, ()>) {
        // SAFETY: the caller's promise.
        unsafe { Self::run::<q6_k::Expanded<Self>>(call) }
    }
}

impl Expands for AvxVnni {
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn widen(y: *const u8, to: &mut [u8; 64]) {
        // SAFETY: the caller's 32 bytes, and two times 32 to be written.
        unsafe {
            let bytes = _mm256_shuffle_epi8(Ymm::load(y), _mm256_broadcastsi128_si256(dword_order([0, 2, 1, 3])));
            let halves = [_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes)];
            for (half, to) in halves.into_iter().zip(to.as_chunks_mut::<32>().0) {
                _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm256_cvtepi8_epi16(half));
            }
        }
    }
}

const _: () = assert!(size_of::<Lines<Ymm>>() == 8 * LINE);

impl<const T: usize> Sums<T> for AvxVnni
where
    AvxVnni: EightDwords<T>,
{
    #[inline(always)]
    unsafe fn add_bytes(
        lines: &Lines<Ymm>,
        side: usize,
        y: *const u8,
        stride: usize,
        acc: RowSums<Ymm, T>,
    ) -> RowSums<Ymm, T> {
        // SAFETY: the caller's activations; eight lines.
        unsafe { <Self as EightDwords<T>>::add((&raw const lines[0][side]).cast(), y, stride, acc) }
    }

    #[inline(always)]
    unsafe fn add_words(
        lines: &Lines<Ymm>,
        side: usize,
        y: *const u8,
        stride: usize,
        acc: RowSums<Ymm, T>,
    ) -> RowSums<Ymm, T> {
        // SAFETY: the caller's activations; eight lines.
        unsafe { <Self as EightDwords<T>>::add_words((&raw const lines[0][side]).cast(), y, stride, acc) }
    }
}

impl Set32 for Avx2 {
    const IN_PLACE: bool = false;
}

/// Units go in pairs where tokens share their codes.
impl Set32 for AvxVnni {
    const IN_PLACE: bool = false;
}

impl<const T: usize> Chains<T> for Avx2
where
    Avx2: Parts<T>,
{
    #[inline(always)]
    unsafe fn chains<C: CodesOf32>(
        header: &Header<Ymm>,
        codes: &[__m256i; 8],
        y: *const u8,
        stride: usize,
        prefetch: impl Fn(usize),
    ) -> [__m256i; T] {
        // SAFETY: the caller's activations.
        unsafe { Self::sums::<false>(&header.scales, codes, y, stride, prefetch) }
    }
}

impl<const T: usize> Chains<T> for AvxVnni
where
    AvxVnni: PairSums<T>,
{
    #[inline(always)]
    unsafe fn chains<C: CodesOf32>(
        header: &Header<Ymm>,
        codes: &[__m256i; 8],
        y: *const u8,
        stride: usize,
        prefetch: impl Fn(usize),
    ) -> [__m256i; T] {
        prefetch(0);
        // SAFETY: the caller's processor and activations.
        let sums = unsafe { Self::pair_sums(&header.pairs, codes, y, stride, C::BIAS, header.start) };
        prefetch(1);
        sums
    }
}
