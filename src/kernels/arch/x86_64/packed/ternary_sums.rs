//! The sums of 32 ternary rows: accumulators, and the steps from integers to outputs.

use std::arch::x86_64::*;

use super::dword;

/// Sums of the two halves of the rows.
pub(super) type Halves = [__m512i; 2];

pub(super) const PLANES: usize = 4;

/// # Safety
/// The processor has AVX-512 F; 64 bytes are readable.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn load(p: *const u8) -> __m512i {
    // SAFETY: the caller has 64 bytes there; no alignment is asked for.
    unsafe { _mm512_loadu_si512(p.cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn mask(s: usize) -> __m512i {
    _mm512_set1_epi32(0x0303_0303 << (2 * s))
}

/// The sum over the planes, each an exact multiple of 4^s.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn join(acc: &[Halves; PLANES], h: usize) -> __m512i {
    let low = _mm512_add_epi32(acc[0][h], _mm512_srai_epi32::<2>(acc[1][h]));
    let high = _mm512_add_epi32(_mm512_srai_epi32::<4>(acc[2][h]), _mm512_srai_epi32::<6>(acc[3][h]));
    _mm512_add_epi32(low, high)
}

/// `acc + isum * (dy * dw)`, every operation rounded by itself.
///
/// # Safety
/// The processor has AVX-512 F; `scales` points at 16 half floats.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn block_step(acc: __m512, isum: __m512i, dy: __m512, scales: *const u8) -> __m512 {
    // SAFETY: the caller points at 16 f16 scales.
    let dw = _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(scales.cast()) });
    _mm512_add_ps(acc, _mm512_mul_ps(_mm512_cvtepi32_ps(isum), _mm512_mul_ps(dy, dw)))
}

/// Writes the sums of T tokens.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn store<const T: usize>(sums: &[[__m512; 2]; T], out: &mut [f32]) {
    for (sums, out) in sums.as_flattened().iter().zip(out.chunks_exact_mut(16)) {
        // SAFETY: 16 floats.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), *sums) }
    }
}

/// `((f32) D - (f32) S) / a`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn row_step(d: __m512i, act: &[u8]) -> __m512 {
    let a = f32::from_le_bytes(dword(act, 0));
    let sum = i32::from_le_bytes(dword(act, 1)) as f32;
    let difference = _mm512_sub_ps(_mm512_cvtepi32_ps(d), _mm512_set1_ps(sum));
    _mm512_div_ps(difference, _mm512_set1_ps(a))
}
