//! How the blocks of the IQ types become signed bytes: points of codebooks with their signs, or levels.

use std::arch::x86_64::*;

use trine_formats::types::{Part, TypeId, codebook, info};

use super::act::f16_at;
use super::codes::{bit_mask, load16, looked_up, nibbles, u32_at};
use super::grouped::{GroupCodes, GroupStep, by_row_avx2, by_row_avx512, panels_avx2, panels_avx512};
use crate::arch::rows::{RowKernel, row_kernels};

/// Four points of eight weights.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn eights<const POINTS: usize>(book: &[[i8; 8]; POINTS], places: [usize; 4]) -> __m256i {
    // No place is beyond the codebook; the compiler does not know it without the remainder, which costs nothing.
    let [a, b, c, d] = places.map(|place| {
        let point = book[place % POINTS].map(i8::cast_unsigned);
        i64::from_le_bytes(point)
    });
    _mm256_setr_epi64x(a, b, c, d)
}

/// Eight points of four weights.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fours<const POINTS: usize>(book: &[[i8; 4]; POINTS], places: [usize; 8]) -> __m256i {
    let [a, b, c, d, e, f, g, h] = places.map(|place| {
        let point = book[place % POINTS].map(i8::cast_unsigned);
        i32::from_le_bytes(point)
    });
    _mm256_setr_epi32(a, b, c, d, e, f, g, h)
}

/// Bytes, negative where the bit is set.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn signed(magnitudes: __m256i, signs: u32) -> __m256i {
    let negative = bit_mask(signs);
    _mm256_sub_epi8(_mm256_xor_si256(magnitudes, negative), negative)
}

/// Four times seven signs to four times eight, an even number of them set in each byte; only the low 28 bits count.
#[inline(always)]
fn with_even_signs(sevens: u32) -> u32 {
    let seven = |l: u32| (sevens >> (7 * l) & 0x7F) << (8 * l);
    let signs = seven(0) | seven(1) | seven(2) | seven(3);
    let folded = signs ^ signs >> 4;
    let folded = folded ^ folded >> 2;
    let odd = (folded ^ folded >> 1) & 0x0101_0101;
    signs | odd << 7
}

/// `2 s + 1` for bytes `s`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn odd(s: __m128i) -> __m128i {
    _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1))
}

/// The nibbles of eight bytes as bytes, low ones first of each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn nibble_pairs(bytes: u64) -> __m128i {
    let bytes = _mm_cvtsi64_si128(bytes.cast_signed());
    let fifteen = _mm_set1_epi8(15);
    let high = _mm_and_si128(_mm_srli_epi16::<4>(bytes), fifteen);
    _mm_unpacklo_epi8(_mm_and_si128(bytes, fifteen), high)
}

#[inline(always)]
fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}

#[inline(always)]
fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

/// Implements [`GroupCodes`] for a type whose block begins with an f16 scale.
macro_rules! group_codes {
    ($name:ident: $ty:ident, $step:ident, last $last:literal;
     weights $weights:expr; scales $scales:expr $(; shifts $shifts:expr)?) => {
        pub(super) struct $name;
        impl GroupCodes for $name {
            const BYTES: usize = info::$ty.bytes;
            const STEP: GroupStep = GroupStep::$step;
            const LAST: f32 = $last;
            $(const SHIFTS: bool = { let _ = $shifts; true };)?
            #[inline(always)]
            unsafe fn scale(block: &[u8]) -> f32 {
                // SAFETY: the caller has AVX2, FMA and F16C.
                unsafe { f16_at(block, const { info::$ty.at(Part::Scale) }) }
            }
            #[inline(always)]
            unsafe fn weights(block: &[u8], j: usize) -> __m256i {
                // SAFETY: the caller has AVX2, FMA and F16C.
                unsafe { $weights(block, j) }
            }
            #[inline(always)]
            unsafe fn scales(block: &[u8]) -> __m128i {
                // SAFETY: the caller has AVX2, FMA and F16C.
                unsafe { $scales(block) }
            }
            $(
                #[inline(always)]
                unsafe fn shifts(block: &[u8]) -> __m256i {
                    // SAFETY: the caller has AVX2, FMA and F16C.
                    unsafe { $shifts(block) }
                }
            )?
        }
    };
}

group_codes!(Iq2Xxs: IQ2_XXS, Block, last 0.125; weights iq2_xxs; scales iq2_xxs_scales);
group_codes!(Iq2Xs: IQ2_XS, Block, last 0.125; weights iq2_xs;
    scales iq2_xs_scales);
group_codes!(Iq2S: IQ2_S, Block, last 0.125; weights iq2_s;
    scales iq2_s_scales);
group_codes!(Iq3Xxs: IQ3_XXS, Block, last 0.25; weights iq3_xxs; scales iq3_xxs_scales);
group_codes!(Iq3S: IQ3_S, Block, last 1.0; weights iq3_s; scales iq3_s_scales);
group_codes!(Iq1S: IQ1_S, Eighths, last 1.0; weights iq1_s; scales iq1_s_scales; shifts iq1_s_shifts);
group_codes!(Iq4Xs: IQ4_XS, Each, last 1.0; weights iq4_xs; scales iq4_xs_scales);

/// IQ1_M keeps its scale in pieces.
pub(super) struct Iq1M;

impl GroupCodes for Iq1M {
    const BYTES: usize = info::IQ1_M.bytes;
    const STEP: GroupStep = GroupStep::Eighths;
    const LAST: f32 = 1.0;

    #[inline(always)]
    unsafe fn scale(block: &[u8]) -> f32 {
        let nibble = |k: usize| u16_at(block, IQ1_M_SCALES + 2 * k) >> 12 << (4 * k);
        let half = nibble(0) | nibble(1) | nibble(2) | nibble(3);
        // SAFETY: the caller has AVX2, FMA and F16C.
        unsafe { f16_at(&half.to_le_bytes(), 0) }
    }

    #[inline(always)]
    unsafe fn weights(block: &[u8], j: usize) -> __m256i {
        // SAFETY: the caller has AVX2, FMA and F16C.
        unsafe { iq1_m(block, j) }
    }

    #[inline(always)]
    unsafe fn scales(block: &[u8]) -> __m128i {
        // SAFETY: the caller has AVX2, FMA and F16C.
        unsafe { iq1_m_scales(block) }
    }
}

/// Signs and scale code of a group of IQ2_XXS.
#[inline(always)]
fn iq2_xxs_word(b: &[u8], j: usize) -> u32 {
    u32_at(b, const { info::IQ2_XXS.at(Part::Codes) } + 8 * j + 4)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq2_xxs(b: &[u8], j: usize) -> __m256i {
    let places = u32_at(b, const { info::IQ2_XXS.at(Part::Codes) } + 8 * j).to_le_bytes();
    let points = eights(&codebook::IQ2_XXS, places.map(usize::from));
    signed(points, with_even_signs(iq2_xxs_word(b, j)))
}

/// The upper nibbles of eight words, each twice.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn upper_nibbles(words: [u32; 8]) -> __m128i {
    let pairs = words.map(|word| (word >> 28) * 0x0101);
    let join = |l: usize| (pairs[l] | pairs[l + 1] << 16).cast_signed();
    odd(_mm_setr_epi32(join(0), join(2), join(4), join(6)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq2_xxs_scales(b: &[u8]) -> __m128i {
    upper_nibbles([0, 1, 2, 3, 4, 5, 6, 7].map(|j| iq2_xxs_word(b, j)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq2_xs(b: &[u8], j: usize) -> __m256i {
    let codes = u64_at(b, const { info::IQ2_XS.at(Part::Codes) } + 8 * j);
    let places = [0, 1, 2, 3].map(|l| (codes >> (16 * l)) as usize & 511);
    let sevens = [0, 1, 2, 3].map(|l| (codes >> (16 * l + 9)) as u32 & 0x7F);
    let sevens = sevens[0] | sevens[1] << 7 | sevens[2] << 14 | sevens[3] << 21;
    signed(eights(&codebook::IQ2_XS, places), with_even_signs(sevens))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq2_xs_scales(b: &[u8]) -> __m128i {
    odd(nibble_pairs(u64_at(b, const { info::IQ2_XS.at(Part::GroupScales) })))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq2_s_scales(b: &[u8]) -> __m128i {
    odd(nibble_pairs(u64_at(b, const { info::IQ2_S.at(Part::GroupScales) })))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq2_s(b: &[u8], j: usize) -> __m256i {
    let low = u32_at(b, const { info::IQ2_S.at(Part::Codes) } + 4 * j).to_le_bytes();
    let high = usize::from(b[const { info::IQ2_S.at(Part::HighBits) } + j]);
    let place = |l: usize| usize::from(low[l]) | (high >> (2 * l) & 3) << 8;
    let points = eights(&codebook::IQ2_S, [place(0), place(1), place(2), place(3)]);
    signed(points, u32_at(b, const { info::IQ2_S.at(Part::Signs) } + 4 * j))
}

#[inline(always)]
fn iq3_xxs_word(b: &[u8], j: usize) -> u32 {
    u32_at(b, const { info::IQ3_XXS.at(Part::Signs) } + 4 * j)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq3_xxs(b: &[u8], j: usize) -> __m256i {
    let places = u64_at(b, const { info::IQ3_XXS.at(Part::Codes) } + 8 * j).to_le_bytes();
    let points = fours(&codebook::IQ3_XXS, places.map(usize::from));
    signed(points, with_even_signs(iq3_xxs_word(b, j)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq3_xxs_scales(b: &[u8]) -> __m128i {
    upper_nibbles([0, 1, 2, 3, 4, 5, 6, 7].map(|j| iq3_xxs_word(b, j)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq3_s(b: &[u8], j: usize) -> __m256i {
    let low = u64_at(b, const { info::IQ3_S.at(Part::Codes) } + 8 * j).to_le_bytes();
    let high = usize::from(b[const { info::IQ3_S.at(Part::HighBits) } + j]);
    let places = [0, 1, 2, 3, 4, 5, 6, 7].map(|l| usize::from(low[l]) | (high >> l & 1) << 8);
    let points = fours(&codebook::IQ3_S, places);
    signed(points, u32_at(b, const { info::IQ3_S.at(Part::Signs) } + 4 * j))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq3_s_scales(b: &[u8]) -> __m128i {
    let codes = u32_at(b, const { info::IQ3_S.at(Part::GroupScales) });
    let of_32 = nibble_pairs(u64::from(codes));
    odd(_mm_unpacklo_epi8(of_32, of_32))
}

#[inline(always)]
fn iq1_s_high(b: &[u8], j: usize) -> u16 {
    u16_at(b, const { info::IQ1_S.at(Part::HighBits) } + 2 * j)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq1_s(b: &[u8], j: usize) -> __m256i {
    let low = u32_at(b, const { info::IQ1_S.at(Part::Codes) } + 4 * j).to_le_bytes();
    let high = usize::from(iq1_s_high(b, j));
    let place = |l: usize| usize::from(low[l]) | (high >> (3 * l) & 7) << 8;
    eights(&codebook::IQ1, [place(0), place(1), place(2), place(3)])
}

/// Eight times the scales, at most 120: sums are in eighths.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq1_s_scales(b: &[u8]) -> __m128i {
    let high = load16(b, const { info::IQ1_S.at(Part::HighBits) });
    let codes = _mm_and_si128(_mm_srli_epi16::<12>(high), _mm_set1_epi16(7));
    let steps = _mm_slli_epi16::<3>(_mm_add_epi16(_mm_add_epi16(codes, codes), _mm_set1_epi16(1)));
    _mm_or_si128(steps, _mm_slli_epi16::<8>(steps))
}

/// The scales, negative where a group is shifted down.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq1_s_shifts(b: &[u8]) -> __m256i {
    let high = load16(b, const { info::IQ1_S.at(Part::HighBits) });
    let codes = _mm_and_si128(_mm_srli_epi16::<12>(high), _mm_set1_epi16(7));
    let steps = _mm_add_epi16(_mm_add_epi16(codes, codes), _mm_set1_epi16(1));
    // The sign of a word is the shift's; a word of zero is shifted up, which the lowest bit tells `sign`.
    let shifts = _mm_sign_epi16(steps, _mm_or_si128(high, _mm_set1_epi16(1)));
    let wide = _mm256_cvtepu16_epi32(shifts);
    _mm256_or_si256(wide, _mm256_slli_epi32::<16>(wide))
}

const IQ1_M_SCALES: usize = info::IQ1_M.at(Part::Scale);

/// Eighths: eight times the points, and one more or less.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq1_m(b: &[u8], j: usize) -> __m256i {
    let low = u32_at(b, const { info::IQ1_M.at(Part::Codes) } + 4 * j).to_le_bytes();
    let high = usize::from(u16_at(b, const { info::IQ1_M.at(Part::HighBits) } + 2 * j));
    let place = |l: usize| usize::from(low[l]) | (high >> (4 * l) & 7) << 8;
    let points = eights(&codebook::IQ1, [place(0), place(1), place(2), place(3)]);
    let shift = |l: usize| {
        if high >> (4 * l + 3) & 1 == 0 { ONES } else { -1 }
    };
    let shifts = _mm256_setr_epi64x(shift(0), shift(1), shift(2), shift(3));
    // Points are small: nothing is carried from one byte to the next but sign bits, which the mask takes away.
    let eighths = _mm256_slli_epi16::<3>(_mm256_and_si256(points, _mm256_set1_epi8(0x1F)));
    _mm256_add_epi8(eighths, shifts)
}

/// Eight bytes of 1.
const ONES: i64 = 0x0101_0101_0101_0101;

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq1_m_scales(b: &[u8]) -> __m128i {
    let mut scales = [0; 16];
    for (k, four) in scales.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let word = u16_at(b, IQ1_M_SCALES + 2 * k);
        *four = [0, 3, 6, 9].map(|at| (word >> at & 7) as u8);
    }
    odd(load16(&scales, 0))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq4_xs(b: &[u8], j: usize) -> __m256i {
    const LEVELS: [u8; 16] = {
        let raised = info::IQ4_XS.raised_codebook(128);
        let mut levels = [0; 16];
        let mut i = 0;
        while i < 16 {
            levels[i] = raised[i] ^ 0x80;
            i += 1;
        }
        levels
    };
    looked_up(LEVELS, nibbles(b, const { info::IQ4_XS.at(Part::Codes) } + 16 * j))
}

/// The signed scale of each 32 weights, twice.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq4_xs_scales(b: &[u8]) -> __m128i {
    const SCALES: usize = info::IQ4_XS.at(Part::GroupScales);
    let low = nibble_pairs(u64::from(u32_at(b, SCALES + 2)));
    // Two bits to a byte: halves to dwords, then nibbles to words, then pairs of bits to bytes.
    let high = u64::from(u16_at(b, SCALES));
    let high = (high | high << 24) & 0x0000_00FF_0000_00FF;
    let high = (high | high << 12) & 0x000F_000F_000F_000F;
    let high = (high | high << 6) & 0x0303_0303_0303_0303;
    let codes = _mm_or_si128(low, _mm_cvtsi64_si128((high << 4).cast_signed()));
    let scales = _mm_sub_epi8(codes, _mm_set1_epi8(32));
    _mm_unpacklo_epi8(scales, scales)
}

pub(super) static ROW_KERNELS: &[RowKernel] = row_kernels![
    1 by_row_avx2 panels_avx2, 1 by_row_avx512 panels_avx512;
    IQ1_S Iq1S, IQ1_M Iq1M, IQ2_XXS Iq2Xxs, IQ2_XS Iq2Xs, IQ2_S Iq2S, IQ3_XXS Iq3Xxs, IQ3_S Iq3S, IQ4_XS Iq4Xs
];
