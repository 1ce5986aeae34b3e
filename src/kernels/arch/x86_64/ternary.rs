//! Sums of products of [`crate::shared::ternary`]'s rows.

use std::arch::x86_64::*;

use crate::shared::ternary::{BLOCK, BYTES, HEAD};
use crate::{Isa, Level};

/// The four planes of a block as unsigned codes 0..=3.
#[inline]
#[target_feature(enable = "avx2")]
fn planes(w: __m256i) -> [__m256i; 4] {
    let three = _mm256_set1_epi8(3);
    [
        _mm256_and_si256(_mm256_srli_epi16::<6>(w), three),
        _mm256_and_si256(_mm256_srli_epi16::<4>(w), three),
        _mm256_and_si256(_mm256_srli_epi16::<2>(w), three),
        _mm256_and_si256(w, three),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn horizontal_sum(v: __m256i) -> i32 {
    let v = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
    let v = _mm_add_epi32(v, _mm_shuffle_epi32::<0b01_00_11_10>(v));
    _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32::<0b10_11_00_01>(v)))
}

/// Eight sums of products of one block. A pair in 16 bits is at most 2 * 3 * 128 = 768 in magnitude and
/// four planes 3072, so neither the multiply-add nor the additions saturate.
///
/// # Safety
/// The processor has AVX2; 128 activations are readable at `q`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn block_avx2(planes: &[__m256i; 4], q: *const u8) -> __m256i {
    let mut sum = _mm256_setzero_si256();
    for (g, &plane) in planes.iter().enumerate() {
        // SAFETY: the caller's block has 128 activations.
        let q = unsafe { _mm256_loadu_si256(q.add(BYTES * g).cast()) };
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(plane, q));
    }
    _mm256_madd_epi16(sum, _mm256_set1_epi16(1))
}

/// `D` of one row and one token; `None` where there is no kernel.
///
/// # Panics
/// When there are fewer activations than weights.
pub fn dot(isa: Isa, w: &[u8], q: &[u8]) -> Option<i32> {
    assert!(q.len() / BLOCK >= w.len() / BYTES, "activations of a row");
    // SAFETY: `isa` proves that the processor has AVX-512 VL and VNNI, or AVX2; the lengths were just compared.
    unsafe {
        match isa.vectors() {
            Level::Avx512 => Some(dot_vnni(w, q)),
            Level::Avx2 => Some(dot_avx2(w, q)),
            _ => None,
        }
    }
}

/// The same of four tokens, of which `acts` has just as many rows of `act` bytes with their heads; false where this was
/// not done.
///
/// # Panics
/// When there are fewer activations than weights.
pub fn dot_four(isa: Isa, w: &[u8], acts: &[u8], act: usize, d: &mut [i32; 4]) -> bool {
    if acts.len() != 4 * act {
        return false;
    }
    assert!(act >= HEAD && (act - HEAD) / BLOCK >= w.len() / BYTES, "activations of a row");
    // SAFETY: `isa` proves that the processor has AVX-512 VL and VNNI, or AVX2; the lengths were just compared.
    unsafe {
        match isa.vectors() {
            Level::Avx512 => dot4_vnni(w, acts, act, d),
            Level::Avx2 => dot4_avx2(w, acts, act, d),
            _ => return false,
        }
    }
    true
}

/// # Safety
/// AVX2; 128 activations in `q` per 32 bytes of `w`.
#[target_feature(enable = "avx2")]
unsafe fn dot_avx2(w: &[u8], q: &[u8]) -> i32 {
    let mut acc = _mm256_setzero_si256();
    for b in 0..w.len() / BYTES {
        // SAFETY: block b lies in both slices.
        unsafe {
            let planes = planes(_mm256_loadu_si256(w.as_ptr().add(b * BYTES).cast()));
            acc = _mm256_add_epi32(acc, block_avx2(&planes, q.as_ptr().add(b * BLOCK)));
        }
    }
    horizontal_sum(acc)
}

/// # Safety
/// AVX2; four activation rows of `act` bytes with 128 values per 32 bytes of `w` behind their heads.
#[target_feature(enable = "avx2")]
unsafe fn dot4_avx2(w: &[u8], acts: &[u8], act: usize, d: &mut [i32; 4]) {
    let mut acc = [_mm256_setzero_si256(); 4];
    for b in 0..w.len() / BYTES {
        // SAFETY: block b lies in all slices.
        unsafe {
            let planes = planes(_mm256_loadu_si256(w.as_ptr().add(b * BYTES).cast()));
            for (t, acc) in acc.iter_mut().enumerate() {
                let q = acts.as_ptr().add(t * act + HEAD + b * BLOCK);
                *acc = _mm256_add_epi32(*acc, block_avx2(&planes, q));
            }
        }
    }
    *d = acc.map(|v| horizontal_sum(v));
}

/// # Safety
/// AVX-512 VL and VNNI; 128 activations in `q` per 32 bytes of `w`.
#[target_feature(enable = "avx2,avx512vl,avx512vnni")]
unsafe fn dot_vnni(w: &[u8], q: &[u8]) -> i32 {
    let mut acc = [_mm256_setzero_si256(); 4];
    for b in 0..w.len() / BYTES {
        // SAFETY: block b lies in both slices.
        unsafe {
            let planes = planes(_mm256_loadu_si256(w.as_ptr().add(b * BYTES).cast()));
            for (g, (acc, plane)) in acc.iter_mut().zip(planes).enumerate() {
                let q = _mm256_loadu_si256(q.as_ptr().add(b * BLOCK + BYTES * g).cast());
                *acc = _mm256_dpbusd_epi32(*acc, plane, q);
            }
        }
    }
    let [a, b, c, d] = acc;
    horizontal_sum(_mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d)))
}

/// # Safety
/// AVX-512 VL and VNNI; four activation rows as for [`dot4_avx2`].
#[target_feature(enable = "avx2,avx512vl,avx512vnni")]
unsafe fn dot4_vnni(w: &[u8], acts: &[u8], act: usize, d: &mut [i32; 4]) {
    let mut acc = [[_mm256_setzero_si256(); 2]; 4];
    for b in 0..w.len() / BYTES {
        // SAFETY: block b lies in all slices.
        unsafe {
            let planes = planes(_mm256_loadu_si256(w.as_ptr().add(b * BYTES).cast()));
            for (t, acc) in acc.iter_mut().enumerate() {
                let q = acts.as_ptr().add(t * act + HEAD + b * BLOCK);
                for (g, plane) in planes.into_iter().enumerate() {
                    let q = _mm256_loadu_si256(q.add(BYTES * g).cast());
                    acc[g % 2] = _mm256_dpbusd_epi32(acc[g % 2], plane, q);
                }
            }
        }
    }
    *d = acc.map(|[a, b]| horizontal_sum(_mm256_add_epi32(a, b)));
}
