//! Products of bytes by AVX-VNNI: `vpdpbusd` adds four products of a code without a sign and an activation to a sum of
//! 32 bits, so that nothing saturates and all codes are taken as they are.
//!
//! In assembly because callers are compiled for AVX2, which they share with the processors that have no more, and could
//! not inline a function with more instructions.

use std::arch::x86_64::*;

use super::super::dwords::{add_lines, for_tokens};
use crate::arch::functions::functions;
use crate::proof::AvxVnni;

/// Bytes between the dwords of a row.
pub(super) const LINE: usize = 128;

/// `acc` plus the products of codes and activations, four to a lane.
///
/// # Safety
/// The processor has AVX-VNNI.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn dpbusd(mut acc: __m256i, codes: __m256i, acts: __m256i) -> __m256i {
    // SAFETY: the processor has the instruction; it reads and writes the named registers only.
    unsafe {
        std::arch::asm!(
            "{{vex}} vpdpbusd {acc}, {codes}, {acts}",
            acc = inout(ymm_reg) acc,
            codes = in(ymm_reg) codes,
            acts = in(ymm_reg) acts,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

/// Products of 16 rows, two vectors of eight, and T tokens.
pub(super) trait EightDwords<const T: usize> {
    /// Adds the products of eight dwords, [`LINE`] bytes apart, with those of the tokens, whose activations start at
    /// `q` and at every `stride` bytes after it.
    ///
    /// # Safety
    /// The processor has AVX-VNNI; 64 bytes of eight lines and 32 of every token are readable.
    unsafe fn add(codes: *const u8, q: *const u8, stride: usize, acc: [[__m256i; 2]; T]) -> [[__m256i; 2]; T];

    /// The same of dwords that are two i16 each, of either.
    ///
    /// # Safety
    /// As [`EightDwords::add`].
    unsafe fn add_words(products: *const u8, q: *const u8, stride: usize, acc: [[__m256i; 2]; T]) -> [[__m256i; 2]; T];
}

const _: () = assert!(LINE == 128);

macro_rules! load_codes {
    ($w0:literal, $w1:literal) => {
        concat!("vmovdqu {w0}, ymmword ptr [{w} + ", $w0, "]\n", "vmovdqu {w1}, ymmword ptr [{w} + ", $w1, "]\n")
    };
}

macro_rules! eight_dwords {
    ($tokens:literal, $sums:tt) => {
        impl EightDwords<$tokens> for AvxVnni {
            eight_dwords!(add "vpdpbusd", $tokens, $sums);
            eight_dwords!(add_words "vpdpwssd", $tokens, $sums);
        }
    };
    ($name:ident $dp:literal, $tokens:literal, $sums:tt) => {
        functions! { [#[inline] #[target_feature(enable = "avx2")]]
            $name(w: *const u8, q: *const u8, stride: usize, acc: [[__m256i; 2]; $tokens]) -> [[__m256i; 2]; $tokens] {
                macro_rules! multiply {
                    ($acc0:ident, $acc1:ident) => {
                        concat!(
                            "{{vex}} ", $dp, " {", stringify!($acc0), "}, {w0}, {y}\n",
                            "{{vex}} ", $dp, " {", stringify!($acc1), "}, {w1}, {y}\n",
                        )
                    };
                }
                add_lines!(
                    ymm_reg, load_codes, multiply, {}, (w, q, stride, acc),
                    [
                        ("0" "32" "0") ("128" "160" "4") ("256" "288" "8") ("384" "416" "12")
                        ("512" "544" "16") ("640" "672" "20") ("768" "800" "24") ("896" "928" "28")
                    ], $sums
                )
            }
        }
    };
}

for_tokens!(eight_dwords);

/// The integers of chains of K-quants with scales of 32 elements, eight rows at a time.
///
/// As on AVX-512, the sum of an odd unit goes to the high half of the dword, where that of the even one is added below
/// it, and one `vpdpwssd` applies both scales. What takes it there is a shuffle, which other ports do than those that
/// multiply; from the sum's uppermost byte it also fetches the bias that keeps the low half from borrowing.
pub(super) trait PairSums<const T: usize> {
    /// `start` plus codes times activations times scales, for the four pairs of a part and tokens whose activations are
    /// `stride` bytes apart. `bias` is above the magnitude of any sum of four products and a multiple of 256; `start`
    /// takes back what it adds.
    ///
    /// # Safety
    /// The processor has AVX-VNNI; 32 bytes of activations are readable at `y` and at every `stride` bytes after it for
    /// each token.
    unsafe fn pair_sums(
        scales: &[__m256i; 4],
        codes: &[__m256i; 8],
        y: *const u8,
        stride: usize,
        bias: i32,
        start: __m256i,
    ) -> [__m256i; T];
}

macro_rules! pair_sums {
    ($tokens:literal, [$($acc:ident $at:literal),*]) => {
        impl PairSums<$tokens> for AvxVnni {
            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn pair_sums(
                scales: &[__m256i; 4],
                codes: &[__m256i; 8],
                y: *const u8,
                stride: usize,
                bias: i32,
                start: __m256i,
            ) -> [__m256i; $tokens] {
                $(let mut $acc = start;)*
                // Byte 3 keeps its value whatever the sum is, because byte 2 is half full.
                let first = _mm256_set1_epi32(bias << 16 | 0x80_0000);
                let zero_3_0_1 = _mm256_setr_epi32(
                    0x0100_0380, 0x0504_0780, 0x0908_0B80, 0x0D0C_0F80,
                    0x0100_0380, 0x0504_0780, 0x0908_0B80, 0x0D0C_0F80,
                );
                macro_rules! pair {
                    ($w0:literal, $w1:literal, $y0:literal, $y1:literal, $s:literal) => {
                        concat!(
                            "vmovdqa {w0}, ymmword ptr [{codes} + ", $w0, "]\n",
                            "vmovdqa {w1}, ymmword ptr [{codes} + ", $w1, "]\n",
                            $("vpbroadcastd {y}, dword ptr [{q} ", $at, " + ", $y1, "]\n",
                            "vmovdqa {a}, {first}\n",
                            "{{vex}} vpdpbusd {a}, {w1}, {y}\n",
                            "vpbroadcastd {y}, dword ptr [{q} ", $at, " + ", $y0, "]\n",
                            "vpshufb {a}, {a}, {order}\n",
                            "{{vex}} vpdpbusd {a}, {w0}, {y}\n",
                            "{{vex}} vpdpwssd {", stringify!($acc), "}, {a}, ymmword ptr [{scales} + ", $s, "]\n",)*
                        )
                    };
                }
                // SAFETY: the caller's processor has the instructions; reads 128 bytes of scales, 256 of codes, and of
                // each token what the caller vouches for.
                unsafe {
                    std::arch::asm!(
                        pair!("0", "32", "0", "4", "0"),
                        pair!("64", "96", "8", "12", "32"),
                        pair!("128", "160", "16", "20", "64"),
                        pair!("192", "224", "24", "28", "96"),
                        "/* {stride} {stride3} */", // a use where there is no second or fourth token
                        codes = in(reg) codes,
                        scales = in(reg) scales,
                        q = in(reg) y,
                        stride = in(reg) stride,
                        stride3 = in(reg) 3 * stride,
                        first = in(ymm_reg) first,
                        order = in(ymm_reg) zero_3_0_1,
                        w0 = out(ymm_reg) _,
                        w1 = out(ymm_reg) _,
                        y = out(ymm_reg) _,
                        a = out(ymm_reg) _,
                        $($acc = inout(ymm_reg) $acc,)*
                        options(readonly, nostack, preserves_flags),
                    );
                }
                [$($acc),*]
            }
        }
    };
}

pair_sums!(1, [a0 ""]);
pair_sums!(2, [a0 "", b0 "+ {stride}"]);
pair_sums!(3, [a0 "", b0 "+ {stride}", c0 "+ 2*{stride}"]);
pair_sums!(4, [a0 "", b0 "+ {stride}", c0 "+ 2*{stride}", d0 "+ {stride3}"]);
