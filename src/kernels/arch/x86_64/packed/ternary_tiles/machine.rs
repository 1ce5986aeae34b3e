//! Operations of tiles for the products, and of the vectors that unpack for them and round their sums.

use std::arch::x86_64::*;

use super::super::t2::ROWS;
use super::super::ternary_sums::row_step;
#[cfg(test)]
use crate::arch::x86_64::tiles::Software;
use crate::arch::x86_64::tiles::{Hardware, Tiles};
#[cfg(test)]
use crate::shared::packed::dword;

/// Tiles, and what is done to their bytes and sums by vectors of 16 rows.
pub(super) trait Machine: Tiles {
    /// Scales of 16 rows.
    type Scales: Copy;

    /// 16 half floats.
    ///
    /// # Safety
    /// The processor has AVX-512 F; 16 half floats are readable.
    unsafe fn scales(from: *const u8) -> Self::Scales;
    /// `sums[t] + isums[t] * (dy[t] * scales)` for `tokens` tokens, every operation rounded by itself; sums are `ROWS`
    /// apart, the scales of tokens `stride` floats.
    ///
    /// # Safety
    /// The processor has AVX-512 F; `isums` points at 16 sums of each token, `dy` at a scale of each, and 16 floats of
    /// each are readable and writable at `sums`.
    unsafe fn settle(
        isums: *const i32,
        scales: Self::Scales,
        dy: *const f32,
        stride: usize,
        tokens: usize,
        sums: *mut f32,
    );
    /// `((f32) isums - (f32) S) / a` of one token, the head of whose activations is at `act`.
    ///
    /// # Safety
    /// The processor has AVX-512 F; `isums` points at 16 sums, `act` at the head of an activation row, and `out` has
    /// room for 16 floats.
    unsafe fn finish(isums: *const i32, act: *const u8, out: *mut f32);
}

impl Machine for Hardware {
    type Scales = __m512;

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn scales(from: *const u8) -> __m512 {
        // SAFETY: the caller points at 16 half floats.
        _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(from.cast()) })
    }
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn settle(isums: *const i32, scales: __m512, dy: *const f32, stride: usize, tokens: usize, sums: *mut f32) {
        let step = |t: usize| {
            // SAFETY: the caller has so many sums and scales of tokens.
            unsafe {
                let isum = _mm512_cvtepi32_ps(_mm512_load_si512(isums.add(16 * t).cast()));
                let dy = _mm512_set1_ps(dy.add(t * stride).read_unaligned());
                let term = _mm512_mul_ps(isum, _mm512_mul_ps(dy, scales));
                let sum = sums.add(t * ROWS);
                _mm512_storeu_ps(sum, _mm512_add_ps(_mm512_loadu_ps(sum), term));
            }
        };
        match tokens {
            16 => (0..16).for_each(step),
            _ => (0..tokens).for_each(step),
        }
    }
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn finish(isums: *const i32, act: *const u8, out: *mut f32) {
        // SAFETY: 16 sums, and the head of a row of activations.
        unsafe {
            let head = std::slice::from_raw_parts(act, 8);
            let out_of = row_step(_mm512_load_si512(isums.cast()), head);
            _mm512_storeu_ps(out, out_of);
        }
    }
}

#[cfg(test)]
impl Machine for Software {
    type Scales = [f32; 16];

    unsafe fn scales(from: *const u8) -> [f32; 16] {
        // SAFETY: the caller points at 16 half floats.
        let halves = unsafe { from.cast::<[[u8; 2]; 16]>().read() };
        halves.map(|half| trine_formats::types::num::f16_to_f32(u16::from_le_bytes(half)))
    }
    unsafe fn settle(
        isums: *const i32,
        scales: [f32; 16],
        dy: *const f32,
        stride: usize,
        tokens: usize,
        sums: *mut f32,
    ) {
        for t in 0..tokens {
            for (row, scale) in scales.into_iter().enumerate() {
                // SAFETY: the caller has so many sums and scales of tokens.
                unsafe {
                    let isum = isums.add(16 * t + row).read() as f32;
                    *sums.add(t * ROWS + row) += isum * (dy.add(t * stride).read_unaligned() * scale);
                }
            }
        }
    }
    unsafe fn finish(isums: *const i32, act: *const u8, out: *mut f32) {
        // SAFETY: 16 sums, and the head of a row of activations.
        unsafe {
            let head = std::slice::from_raw_parts(act, 8);
            let (a, sum) = (f32::from_le_bytes(dword(head, 0)), i32::from_le_bytes(dword(head, 1)));
            for row in 0..16 {
                *out.add(row) = (*isums.add(row) as f32 - sum as f32) / a;
            }
        }
    }
}
