//! Weights of K-quants times their scales, as two limbs of a byte each.

use std::arch::x86_64::*;

/// Bits of the lower limb, which has no sign. The largest product, -32 * -128 of Q6_K, leaves 64 for the upper.
pub(super) const LOW_BITS: u32 = 6;
const LOW: i16 = (1 << LOW_BITS) - 1;

/// The upper and the lower limbs of bytes less `offset`, times the scale of their half of a dword.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn limbs(codes: __m512i, offset: i16, scales: __m512i) -> (__m512i, __m512i) {
    let (offset, below) = (_mm512_set1_epi16(offset), _mm512_set1_epi16(0x00FF));
    // Products of bytes 0 and 2 of a dword, and of 1 and 3.
    let even = _mm512_and_si512(codes, below);
    let even = _mm512_mullo_epi16(_mm512_sub_epi16(even, offset), scales);
    let odd = _mm512_srli_epi16::<8>(codes);
    let odd = _mm512_mullo_epi16(_mm512_sub_epi16(odd, offset), scales);
    // Bits of the mask from the first, the others from the second.
    let join = |even, odd| _mm512_ternarylogic_epi32::<0xCA>(below, even, odd);
    let high = join(_mm512_srli_epi16::<LOW_BITS>(even), _mm512_slli_epi16::<{ 8 - LOW_BITS }>(odd));
    let low = join(even, _mm512_slli_epi16::<8>(odd));
    let low = _mm512_and_si512(low, _mm512_set1_epi16(LOW << 8 | LOW));
    (high, low)
}

/// The integers of which these are the upper and the lower limbs.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn join(high: __m512i, low: __m512i) -> __m512i {
    _mm512_add_epi32(_mm512_slli_epi32::<LOW_BITS>(high), low)
}
