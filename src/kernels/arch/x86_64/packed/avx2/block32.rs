//! Products of 32-blocks by AVX2 and AVX-VNNI.
//!
//! AVX2 multiplies unsigned codes with the activations and sums in 16 bits, as many of its results as cannot overflow.
//! Where codes take all eight bits it would saturate: the signed weights then change their sign with the activation and
//! are multiplied by its magnitude, which is exact for all weights but -128. Encoders never write that, and matrices
//! that hold it are not packed.

use std::arch::x86_64::*;

use super::super::dwords::{add_lines, for_tokens};
use super::super::ymm::Ymm;
use super::vnni::{self, EightDwords};
use crate::Isa;
use crate::arch::functions::functions;
use crate::arch::x86_64::rows::block32::{Dot, DotSet, VECTORS, signed};
use crate::arch::x86_64::rows::lanes::Lanes;
use crate::proof::{Avx2, AvxVnni};
use crate::shared::packed::block32::{self, Block32, ByteCodes, LINE};
use crate::sizes::row_bytes;

/// Sums of two registers of rows and T tokens.
type Sums<const T: usize> = [[__m256i; VECTORS]; T];

impl DotSet for AvxVnni {
    const PREFETCHES: usize = 2;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn one_dot<C: ByteCodes>(codes: &[__m256i; 8], record: *const u8, prefetch: impl Fn(usize)) -> __m256i {
        // SAFETY: a record has eight dwords of activations and its start at byte 36; the caller's processor has
        // AVX-VNNI.
        unsafe {
            let mut sum = Ymm::broadcast(record.add(36));
            for (k, codes) in codes.iter().enumerate() {
                prefetch(k);
                sum = vnni::dpbusd(sum, *codes, Ymm::broadcast(record.add(4 * k)));
            }
            sum
        }
    }
}

const _: () = assert!(LINE == vnni::LINE);

impl<const T: usize> Dot<T> for AvxVnni
where
    AvxVnni: EightDwords<T>,
{
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn dot<C: ByteCodes>(
        codes: *const u8,
        record: *const u8,
        stride: usize,
        prefetch: impl Fn(usize),
    ) -> Sums<T> {
        // SAFETY: eight lines; a record has eight dwords of activations, and its start at byte 36.
        unsafe {
            let starts = std::array::from_fn(|t| [Ymm::broadcast(record.add(stride * t + 36)); VECTORS]);
            prefetch(0);
            let sums = Self::add(codes, record, stride, starts);
            prefetch(1);
            sums
        }
    }
}

impl DotSet for Avx2 {
    const SIGNED: bool = true;
    const PREFETCHES: usize = 2;

    fn pack<B: Block32>(isa: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
        if B::LINES == 8 {
            let rows = w.chunks_exact(row_bytes(&B::INFO, n).max(1));
            let mut blocks = rows.flat_map(|row| row[B::INFO.head..].chunks_exact(B::BYTES));
            if blocks.any(|block| block[B::CODES_AT..].contains(&0x80)) {
                return false;
            }
        }
        block32::pack::<B>(isa, w, n, out)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn one_dot<C: ByteCodes>(codes: &[__m256i; 8], record: *const u8, prefetch: impl Fn(usize)) -> __m256i {
        const { assert!(all_fit::<C>()) }
        let mut pairs = [_mm256_setzero_si256(); 2];
        for (k, codes) in codes.iter().enumerate() {
            prefetch(k);
            // SAFETY: a record has eight dwords of activations.
            let y = unsafe { Ymm::broadcast(record.add(4 * k)) };
            pairs[k % 2] = _mm256_add_epi16(pairs[k % 2], _mm256_maddubs_epi16(*codes, y));
        }
        let pairs = _mm256_add_epi16(pairs[0], pairs[1]);
        // SAFETY: a record has its start at byte 36.
        let start = unsafe { Ymm::broadcast(record.add(36)) };
        _mm256_add_epi32(start, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    }
}

/// True if the results of `maddubs` of a whole block may be summed in 16 bits; those of half a block may.
const fn all_fit<C: ByteCodes>() -> bool {
    let greatest = C::MAX as usize * 256;
    assert!(signed::<Avx2, C>() || 4 * greatest <= 32767);
    8 * greatest <= 32767
}

const _: () = assert!(LINE == 128);

/// Adds the products of four dwords of codes with those of tokens whose activations are `stride` bytes apart.
///
/// In assembly, for the reason that [`super::super::dwords`] gives: 110 instead of 70 GMAC/s.
pub(super) trait FourDwords<const T: usize> {
    /// The sums of `maddubs` in 16 bits, added to `acc`.
    ///
    /// # Safety
    /// AVX2; four lines of codes at `w`, 16 of activations at `q` and at every `stride` bytes after it for each token.
    unsafe fn unsigned(w: *const u8, q: *const u8, stride: usize, acc: Sums<T>) -> Sums<T>;

    /// The sums of signed weights in 32 bits, added to `acc`.
    ///
    /// # Safety
    /// As [`FourDwords::unsigned`].
    unsafe fn signed(w: *const u8, q: *const u8, stride: usize, acc: Sums<T>) -> Sums<T>;
}

macro_rules! load_codes {
    ($w0:literal, $w1:literal) => {
        concat!("vmovdqa {w0}, ymmword ptr [{w} + ", $w0, "]\n", "vmovdqa {w1}, ymmword ptr [{w} + ", $w1, "]\n")
    };
}

/// Products of codes, summed in 16 bits.
macro_rules! unsigned {
    ($acc0:ident, $acc1:ident) => {
        concat!(
            "vpmaddubsw {product}, {w0}, {y}\n",
            "vpmaddubsw {y}, {w1}, {y}\n",
            "vpaddw {",
            stringify!($acc0),
            "}, {",
            stringify!($acc0),
            "}, {product}\n",
            "vpaddw {",
            stringify!($acc1),
            "}, {",
            stringify!($acc1),
            "}, {y}\n",
        )
    };
}

/// Products of weights with the sign of the activation and its magnitude, summed in 32 bits.
macro_rules! signed {
    ($acc0:ident, $acc1:ident) => {
        concat!(
            "vpsignb {product}, {w0}, {y}\n",
            "vpsignb {other}, {w1}, {y}\n",
            "vpabsb {y}, {y}\n",
            "vpmaddubsw {product}, {y}, {product}\n",
            "vpmaddubsw {other}, {y}, {other}\n",
            "vpmaddwd {product}, {product}, {ones}\n",
            "vpmaddwd {other}, {other}, {ones}\n",
            "vpaddd {",
            stringify!($acc0),
            "}, {",
            stringify!($acc0),
            "}, {product}\n",
            "vpaddd {",
            stringify!($acc1),
            "}, {",
            stringify!($acc1),
            "}, {other}\n",
        )
    };
}

macro_rules! four_dwords {
    ($tokens:literal, $sums:tt) => {
        impl FourDwords<$tokens> for Avx2 {
            functions! { [#[inline] #[target_feature(enable = "avx2")]]
                unsigned(w: *const u8, q: *const u8, stride: usize, acc: Sums<$tokens>) -> Sums<$tokens> {
                    add_lines!(
                        ymm_reg, load_codes, unsigned, {product = out(ymm_reg) _,}, (w, q, stride, acc),
                        [("0" "32" "0") ("128" "160" "4") ("256" "288" "8") ("384" "416" "12")], $sums
                    )
                }
                signed(w: *const u8, q: *const u8, stride: usize, acc: Sums<$tokens>) -> Sums<$tokens> {
                    add_lines!(
                        ymm_reg, load_codes, signed,
                        {ones = in(ymm_reg) _mm256_set1_epi16(1), product = out(ymm_reg) _, other = out(ymm_reg) _,},
                        (w, q, stride, acc),
                        [("0" "32" "0") ("128" "160" "4") ("256" "288" "8") ("384" "416" "12")], $sums
                    )
                }
            }
        }
    };
}

for_tokens!(four_dwords);

impl<const T: usize> Dot<T> for Avx2
where
    Avx2: FourDwords<T>,
{
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn dot<C: ByteCodes>(
        codes: *const u8,
        record: *const u8,
        stride: usize,
        prefetch: impl Fn(usize),
    ) -> Sums<T> {
        let zero = [[_mm256_setzero_si256(); VECTORS]; T];
        prefetch(0);
        // SAFETY: four lines of codes each; a record has eight dwords of activations, and its start at byte 36.
        unsafe {
            let (second_codes, second_record) = (codes.add(4 * LINE), record.add(16));
            if const { signed::<Avx2, C>() } {
                let sums = Avx2::signed(codes, record, stride, zero);
                prefetch(1);
                return Avx2::signed(second_codes, second_record, stride, sums);
            }
            let mut sums: Sums<T> = std::array::from_fn(|t| [Ymm::broadcast(record.add(stride * t + 36)); VECTORS]);
            let first = Avx2::unsigned(codes, record, stride, zero);
            prefetch(1);
            let second = if const { all_fit::<C>() } {
                Avx2::unsigned(second_codes, second_record, stride, first)
            } else {
                add_pairs(&mut sums, &first);
                Avx2::unsigned(second_codes, second_record, stride, zero)
            };
            add_pairs(&mut sums, &second);
            sums
        }
    }
}

/// Adds sums in 16 bits to sums in 32.
#[inline]
#[target_feature(enable = "avx2")]
fn add_pairs<const T: usize>(sums: &mut Sums<T>, pairs: &Sums<T>) {
    for (sum, pairs) in sums.as_flattened_mut().iter_mut().zip(pairs.as_flattened()) {
        let wide = _mm256_madd_epi16(*pairs, _mm256_set1_epi16(1));
        *sum = _mm256_add_epi32(*sum, wide);
    }
}
