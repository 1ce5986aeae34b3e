//! [`Lanes`] of AVX-512: sixteen rows.

use std::arch::asm;
use std::arch::x86_64::*;

use super::ymm::dword_order;
use crate::arch::functions::functions;
use crate::arch::x86_64::rows::lanes::Lanes;

/// Registers of 64 bytes.
pub(crate) struct Zmm;

#[inline]
#[target_feature(enable = "avx512f")]
fn count(n: u32) -> __m128i {
    _mm_cvtsi32_si128(n.cast_signed())
}

impl Lanes for Zmm {
    const ROWS: usize = 16;
    const SUMS: usize = 2;
    type Ints = __m512i;
    type Floats = __m512;

    functions! { [#[inline(always)]]
        load(p: *const u8) -> __m512i { _mm512_loadu_si512(p.cast()) }
        store_bytes(p: *mut u8, v: __m512i) -> () { _mm512_storeu_si512(p.cast(), v) }
        broadcast(p: *const u8) -> __m512i { _mm512_set1_epi32(p.cast::<i32>().read_unaligned()) }
        bytes(v: u8) -> __m512i { _mm512_set1_epi8(v.cast_signed()) }
        words(v: i16) -> __m512i { _mm512_set1_epi16(v) }
        dwords(v: i32) -> __m512i { _mm512_set1_epi32(v) }
        and(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
        or(a: __m512i, b: __m512i) -> __m512i { _mm512_or_si512(a, b) }
        select(mask: __m512i, a: __m512i, b: __m512i) -> __m512i { _mm512_ternarylogic_epi32::<0xCA>(mask, a, b) }
        shl(a: __m512i, n: u32) -> __m512i { _mm512_sll_epi16(a, count(n)) }
        shr(a: __m512i, n: u32) -> __m512i { _mm512_srl_epi16(a, count(n)) }
        sar(a: __m512i, n: u32) -> __m512i { _mm512_sra_epi16(a, count(n)) }
        sar_dwords(a: __m512i, n: u32) -> __m512i { _mm512_sra_epi32(a, count(n)) }
        add_bytes(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi8(a, b) }
        sub_bytes(a: __m512i, b: __m512i) -> __m512i { _mm512_sub_epi8(a, b) }
        add_words(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi16(a, b) }
        sub_words(a: __m512i, b: __m512i) -> __m512i { _mm512_sub_epi16(a, b) }
        mul_words(a: __m512i, b: __m512i) -> __m512i { _mm512_mullo_epi16(a, b) }
        add_dwords(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
        shuffle(v: __m512i, bytes: [i8; 4]) -> __m512i {
            _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(dword_order(bytes)))
        }
        lookup(table: &[u8; 16], v: __m512i) -> __m512i {
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), v)
        }
        add_fifth(v: __m512i, bits: *const u8) -> __m512i {
            _mm512_mask_add_epi8(v, bits.cast::<u64>().read_unaligned(), v, _mm512_set1_epi8(16))
        }
        pairs(codes: __m512i, acts: __m512i) -> __m512i { _mm512_maddubs_epi16(codes, acts) }
        add_scaled(acc: __m512i, words: __m512i, scales: __m512i) -> __m512i {
            dpwssd(acc, words, scales)
        }
        add_scaled_at[const OFFSET: usize](acc: __m512i, words: __m512i, p: *const u8) -> __m512i {
            dpwssd_at::<OFFSET>(acc, words, p)
        }
        halves(p: *const u8) -> __m512 { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
        half_powers(p: *const u8) -> __m512 {
            let e = _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()));
            let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(e, _mm512_set1_epi32(1)));
            let denormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), e);
            let small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
            _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, small, denormal))
        }
        float(v: f32) -> __m512 { _mm512_set1_ps(v) }
        broadcast_float(p: *const u8) -> __m512 { _mm512_castsi512_ps(Self::broadcast(p)) }
        floats(v: __m512i) -> __m512 { _mm512_cvtepi32_ps(v) }
        add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
        mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        load_floats(p: *const f32) -> __m512 { _mm512_loadu_ps(p) }
        store_floats(p: *mut f32, v: __m512) -> () { _mm512_storeu_ps(p, v) }
    }
}

/// `acc` plus, dword by dword, the products of both words. The intrinsic of the same name becomes a multiplication and
/// an addition when the compiler believes that the chain is short of time; what is short here are multipliers.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) fn dpwssd(mut acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: reads and writes the named registers only.
    unsafe {
        asm!(
            "vpdpwssd {acc}, {a}, {b}",
            acc = inout(zmm_reg) acc,
            a = in(zmm_reg) a,
            b = in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

/// The same with the dword at `p + OFFSET` in all lanes.
///
/// # Safety
/// Its four bytes are readable.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn dpwssd_at<const OFFSET: usize>(mut acc: __m512i, a: __m512i, p: *const u8) -> __m512i {
    // SAFETY: reads the four bytes that the caller vouches for.
    unsafe {
        asm!(
            "vpdpwssd {acc}, {a}, dword ptr [{p} + {offset}]{{1to16}}",
            acc = inout(zmm_reg) acc,
            a = in(zmm_reg) a,
            p = in(reg) p,
            offset = const OFFSET,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    acc
}
