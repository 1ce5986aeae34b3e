//! The gates in vectors.

use std::arch::x86_64::*;

use super::exp::pexp16;
use crate::shared::GELU_ENTRIES;
use crate::{Isa, Level};

/// The first values of [`crate::elements::swiglu`], and how many they are.
pub fn swiglu(isa: Isa, gate: &mut [f32], up: &[f32]) -> usize {
    // SAFETY: `isa` proves that the processor has AVX-512.
    if isa.has(Level::Avx512) { unsafe { swiglu_avx512(gate, up) } } else { 0 }
}

/// The first values of [`crate::elements::geglu`], and how many they are.
pub fn geglu(isa: Isa, table: &[u16; GELU_ENTRIES], gate: &mut [f32], up: &[f32]) -> usize {
    // SAFETY: `isa` proves that the processor has AVX-512, or AVX2 and F16C.
    unsafe {
        match isa.vectors() {
            Level::Avx512 => geglu_avx512(table, gate, up),
            Level::Avx2 => geglu_avx2(table, gate, up),
            _ => 0,
        }
    }
}

/// Whole sixteens; how many values that were.
#[target_feature(enable = "avx512f,avx512dq")]
fn swiglu_avx512(gate: &mut [f32], up: &[f32]) -> usize {
    let one = _mm512_set1_ps(1.0);
    for (g, u) in gate.chunks_exact_mut(16).zip(up.chunks_exact(16)) {
        // SAFETY: sixteen values on both sides.
        unsafe {
            let x = _mm512_loadu_ps(g.as_ptr());
            let e = pexp16(_mm512_sub_ps(_mm512_setzero_ps(), x));
            let silu = _mm512_div_ps(x, _mm512_add_ps(one, e));
            let y = _mm512_mul_ps(silu, _mm512_loadu_ps(u.as_ptr()));
            _mm512_storeu_ps(g.as_mut_ptr(), y);
        }
    }
    gate.len().min(up.len()) / 16 * 16
}

/// Whole sixteens; how many values that were.
#[target_feature(enable = "avx512f,avx512dq")]
fn geglu_avx512(table: &[u16; GELU_ENTRIES], gate: &mut [f32], up: &[f32]) -> usize {
    let (low, high) = (_mm512_set1_ps(-10.0), _mm512_set1_ps(10.0));
    for (g, u) in gate.chunks_exact_mut(16).zip(up.chunks_exact(16)) {
        // SAFETY: sixteen values on both sides; a half float has 16 bits and every entry of the table
        // below the last has another after it, so four bytes from any of them are inside.
        unsafe {
            let x = _mm512_loadu_ps(g.as_ptr());
            let half = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
            let index = _mm512_cvtepu16_epi32(half);
            let pairs = _mm512_i32gather_epi32::<2>(index, table.as_ptr().cast());
            let gelu = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs));
            let gelu = _mm512_mask_mov_ps(gelu, _mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, high), x);
            let y = _mm512_mul_ps(gelu, _mm512_loadu_ps(u.as_ptr()));
            let kept = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(x, low);
            _mm512_storeu_ps(g.as_mut_ptr(), _mm512_maskz_mov_ps(kept, y));
        }
    }
    gate.len().min(up.len()) / 16 * 16
}

/// Whole eights; how many values that were.
#[target_feature(enable = "avx2,f16c")]
fn geglu_avx2(table: &[u16; GELU_ENTRIES], gate: &mut [f32], up: &[f32]) -> usize {
    let (low, high) = (_mm256_set1_ps(-10.0), _mm256_set1_ps(10.0));
    for (g, u) in gate.chunks_exact_mut(8).zip(up.chunks_exact(8)) {
        // SAFETY: eight values on both sides; a half float has 16 bits and every entry of the table below the last has
        // another after it, so four bytes from any of them are inside.
        unsafe {
            let x = _mm256_loadu_ps(g.as_ptr());
            let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
            let index = _mm256_cvtepu16_epi32(half);
            let pairs = _mm256_i32gather_epi32::<2>(table.as_ptr().cast(), index);
            let entries = _mm256_and_si256(pairs, _mm256_set1_epi32(0xFFFF));
            let packed = _mm256_packus_epi32(entries, entries);
            let entries = _mm256_permute4x64_epi64::<0b10_00>(packed);
            let gelu = _mm256_cvtph_ps(_mm256_castsi256_si128(entries));
            let gelu = _mm256_blendv_ps(gelu, x, _mm256_cmp_ps::<_CMP_GE_OQ>(x, high));
            let y = _mm256_mul_ps(gelu, _mm256_loadu_ps(u.as_ptr()));
            let kept = _mm256_cmp_ps::<_CMP_NLE_UQ>(x, low);
            _mm256_storeu_ps(g.as_mut_ptr(), _mm256_and_ps(kept, y));
        }
    }
    gate.len().min(up.len()) / 8 * 8
}
