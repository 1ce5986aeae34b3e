//! [`Lanes`] of AVX2: eight rows.

use std::arch::x86_64::*;

use crate::arch::functions::functions;
use crate::arch::x86_64::rows::lanes::Lanes;

/// Registers of 32 bytes.
pub(crate) struct Ymm;

#[inline]
#[target_feature(enable = "avx2")]
fn count(n: u32) -> __m128i {
    _mm_cvtsi32_si128(n.cast_signed())
}

impl Lanes for Ymm {
    const ROWS: usize = 8;
    const SUMS: usize = 1;
    type Ints = __m256i;
    type Floats = __m256;

    functions! { [#[inline(always)]]
        load(p: *const u8) -> __m256i { _mm256_loadu_si256(p.cast()) }
        store_bytes(p: *mut u8, v: __m256i) -> () { _mm256_storeu_si256(p.cast(), v) }
        broadcast(p: *const u8) -> __m256i { _mm256_set1_epi32(p.cast::<i32>().read_unaligned()) }
        bytes(v: u8) -> __m256i { _mm256_set1_epi8(v.cast_signed()) }
        words(v: i16) -> __m256i { _mm256_set1_epi16(v) }
        dwords(v: i32) -> __m256i { _mm256_set1_epi32(v) }
        and(a: __m256i, b: __m256i) -> __m256i { _mm256_and_si256(a, b) }
        or(a: __m256i, b: __m256i) -> __m256i { _mm256_or_si256(a, b) }
        select(mask: __m256i, a: __m256i, b: __m256i) -> __m256i {
            _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b))
        }
        shl(a: __m256i, n: u32) -> __m256i { _mm256_sll_epi16(a, count(n)) }
        shr(a: __m256i, n: u32) -> __m256i { _mm256_srl_epi16(a, count(n)) }
        sar(a: __m256i, n: u32) -> __m256i { _mm256_sra_epi16(a, count(n)) }
        sar_dwords(a: __m256i, n: u32) -> __m256i { _mm256_sra_epi32(a, count(n)) }
        add_bytes(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi8(a, b) }
        sub_bytes(a: __m256i, b: __m256i) -> __m256i { _mm256_sub_epi8(a, b) }
        add_words(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi16(a, b) }
        sub_words(a: __m256i, b: __m256i) -> __m256i { _mm256_sub_epi16(a, b) }
        mul_words(a: __m256i, b: __m256i) -> __m256i { _mm256_mullo_epi16(a, b) }
        add_dwords(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi32(a, b) }
        shuffle(v: __m256i, bytes: [i8; 4]) -> __m256i { shuffle_dwords(v, bytes) }
        lookup(table: &[u8; 16], v: __m256i) -> __m256i {
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())), v)
        }
        add_fifth(v: __m256i, bits: *const u8) -> __m256i {
            let byte = _mm256_setr_epi8(
                0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, //
                2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3,
            );
            let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
            let chosen = _mm256_and_si256(_mm256_shuffle_epi8(Self::broadcast(bits), byte), bit);
            _mm256_or_si256(v, _mm256_and_si256(_mm256_cmpeq_epi8(chosen, bit), _mm256_set1_epi8(16)))
        }
        pairs(codes: __m256i, acts: __m256i) -> __m256i { _mm256_maddubs_epi16(codes, acts) }
        add_scaled(acc: __m256i, words: __m256i, scales: __m256i) -> __m256i {
            _mm256_add_epi32(acc, _mm256_madd_epi16(words, scales))
        }
        add_scaled_at[const OFFSET: usize](acc: __m256i, words: __m256i, p: *const u8) -> __m256i {
            Self::add_scaled(acc, words, Self::broadcast(p.add(OFFSET)))
        }
        halves(p: *const u8) -> __m256 { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
        half_powers(p: *const u8) -> __m256 {
            let e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()));
            let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(e, _mm256_set1_epi32(1)));
            let denormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), e);
            let small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
            _mm256_castsi256_ps(_mm256_blendv_epi8(normal, denormal, small))
        }
        float(v: f32) -> __m256 { _mm256_set1_ps(v) }
        broadcast_float(p: *const u8) -> __m256 { _mm256_castsi256_ps(Self::broadcast(p)) }
        floats(v: __m256i) -> __m256 { _mm256_cvtepi32_ps(v) }
        add(a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
        sub(a: __m256, b: __m256) -> __m256 { _mm256_sub_ps(a, b) }
        mul(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
        load_floats(p: *const f32) -> __m256 { _mm256_loadu_ps(p) }
        store_floats(p: *mut f32, v: __m256) -> () { _mm256_storeu_ps(p, v) }
    }
}

/// The order that makes each of four dwords of bytes of its own; -1 is a zero.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn dword_order(bytes: [i8; 4]) -> __m128i {
    let dword = |row: i8| {
        let from = bytes.map(|byte| if byte < 0 { byte } else { 4 * row + byte });
        i32::from_le_bytes(from.map(i8::cast_unsigned))
    };
    _mm_setr_epi32(dword(0), dword(1), dword(2), dword(3))
}

/// Every dword made of bytes of its own, numbered from 0; -1 is a zero.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn shuffle_dwords(v: __m256i, bytes: [i8; 4]) -> __m256i {
    _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(dword_order(bytes)))
}
