//! Sums of exact products of half floats: the one loop of attention.
//!
//! Scores (lanes are positions, steps are head elements) and outputs (lanes are head elements, steps are
//! positions) are the same computation: `acc[q][l] += m[s][l] * coef[q][s]`, `s` ascending.
//! A product of two half floats is exact in `f64`, so a fused multiply-add rounds exactly where the
//! reference's multiplication and addition round, and any instruction set gives the same bits.

use trine_formats::types::num::f16_to_f32;

use super::Isa;

/// Lanes of one call.
pub const LANES: usize = 16;

/// `acc[q][l] += m[s * stride + l] * coef[q * coef_stride + s]` for `s` in `0..steps`.
///
/// `m` holds half floats, `coef` half-float values widened to `f64`.
///
/// # Panics
/// When a slice is too short for the strides.
pub fn accumulate(
    isa: Isa,
    m: &[u16],
    stride: usize,
    steps: usize,
    coef: &[f64],
    coef_stride: usize,
    acc: &mut [[f64; LANES]],
) {
    if steps == 0 || acc.is_empty() {
        return;
    }
    assert!(m.len() >= (steps - 1) * stride + LANES, "matrix too short");
    assert!(
        coef.len() >= (acc.len() - 1) * coef_stride + steps,
        "coefficients too short"
    );
    let _ = isa;
    #[cfg(target_arch = "x86_64")]
    match isa {
        // SAFETY: an `Isa` value is only made for an instruction set the CPU has; the bounds of every
        // access are the two assertions above.
        Isa::Avx512 => return unsafe { x86::avx512(m, stride, steps, coef, coef_stride, acc) },
        // SAFETY: as above.
        Isa::Avx2 => return unsafe { x86::avx2(m, stride, steps, coef, coef_stride, acc) },
        Isa::Scalar => {}
    }
    for s in 0..steps {
        let row: [f64; LANES] = std::array::from_fn(|l| f64::from(f16_to_f32(m[s * stride + l])));
        for (q, acc) in acc.iter_mut().enumerate() {
            let c = coef[q * coef_stride + s];
            acc.iter_mut().zip(&row).for_each(|(a, v)| *a += v * c);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::LANES;

    /// Runs `tile` for as many queries at a time as the registers hold.
    macro_rules! by_queries {
        ($tile:ident, $m:ident, $stride:ident, $steps:ident, $coef:ident, $coef_stride:ident, $acc:ident, [$first:literal $(, $n:literal)*]) => {
            let mut done = 0;
            while done < $acc.len() {
                let left = $acc.len() - done;
                let coef = &$coef[done * $coef_stride..];
                let acc = &mut $acc[done..];
                if left >= $first {
                    // SAFETY: the caller's bounds hold for every query of the tile.
                    unsafe { $tile::<$first>($m, $stride, $steps, coef, $coef_stride, acc) };
                    done += $first;
                } $(else if left >= $n {
                    // SAFETY: as above.
                    unsafe { $tile::<$n>($m, $stride, $steps, coef, $coef_stride, acc) };
                    done += $n;
                })*
            }
        };
    }

    /// # Safety
    /// AVX-512 F and DQ; the bounds asserted in [`super::accumulate`].
    #[target_feature(enable = "avx512f,avx512dq")]
    pub unsafe fn avx512(
        m: &[u16],
        stride: usize,
        steps: usize,
        coef: &[f64],
        coef_stride: usize,
        acc: &mut [[f64; LANES]],
    ) {
        by_queries!(
            tile512,
            m,
            stride,
            steps,
            coef,
            coef_stride,
            acc,
            [8, 4, 2, 1]
        );
    }

    /// # Safety
    /// AVX2, FMA and F16C; the bounds asserted in [`super::accumulate`].
    #[target_feature(enable = "avx2,fma,f16c")]
    pub unsafe fn avx2(
        m: &[u16],
        stride: usize,
        steps: usize,
        coef: &[f64],
        coef_stride: usize,
        acc: &mut [[f64; LANES]],
    ) {
        by_queries!(tile256, m, stride, steps, coef, coef_stride, acc, [2, 1]);
    }

    #[target_feature(enable = "avx512f,avx512dq")]
    unsafe fn tile512<const Q: usize>(
        m: &[u16],
        stride: usize,
        steps: usize,
        coef: &[f64],
        coef_stride: usize,
        acc: &mut [[f64; LANES]],
    ) {
        let mut a = [[_mm512_setzero_pd(); 2]; Q];
        for (a, from) in a.iter_mut().zip(&*acc) {
            // SAFETY: a row of `acc` is 16 doubles.
            *a = unsafe {
                [
                    _mm512_loadu_pd(from.as_ptr()),
                    _mm512_loadu_pd(from.as_ptr().add(8)),
                ]
            };
        }
        for s in 0..steps {
            // SAFETY: (steps - 1) * stride + 16 half floats were asserted to be there.
            let h = unsafe { _mm256_loadu_si256(m.as_ptr().add(s * stride).cast()) };
            let f = _mm512_cvtph_ps(h);
            let low = _mm512_cvtps_pd(_mm512_castps512_ps256(f));
            let high = _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(f));
            for (q, a) in a.iter_mut().enumerate() {
                // SAFETY: (queries - 1) * coef_stride + steps coefficients were asserted to be there.
                let c = _mm512_set1_pd(unsafe { *coef.get_unchecked(q * coef_stride + s) });
                *a = [
                    _mm512_fmadd_pd(low, c, a[0]),
                    _mm512_fmadd_pd(high, c, a[1]),
                ];
            }
        }
        for (a, to) in a.iter().zip(acc) {
            // SAFETY: a row of `acc` is 16 doubles.
            unsafe {
                _mm512_storeu_pd(to.as_mut_ptr(), a[0]);
                _mm512_storeu_pd(to.as_mut_ptr().add(8), a[1]);
            }
        }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn tile256<const Q: usize>(
        m: &[u16],
        stride: usize,
        steps: usize,
        coef: &[f64],
        coef_stride: usize,
        acc: &mut [[f64; LANES]],
    ) {
        let mut a = [[_mm256_setzero_pd(); 4]; Q];
        for (a, from) in a.iter_mut().zip(&*acc) {
            for (i, a) in a.iter_mut().enumerate() {
                // SAFETY: a row of `acc` is 16 doubles.
                *a = unsafe { _mm256_loadu_pd(from.as_ptr().add(4 * i)) };
            }
        }
        for s in 0..steps {
            let mut row = [_mm256_setzero_pd(); 4];
            for (i, pair) in row.chunks_exact_mut(2).enumerate() {
                // SAFETY: (steps - 1) * stride + 16 half floats were asserted to be there.
                let h = unsafe { _mm_loadu_si128(m.as_ptr().add(s * stride + 8 * i).cast()) };
                let f = _mm256_cvtph_ps(h);
                pair[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(f));
                pair[1] = _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(f));
            }
            for (q, a) in a.iter_mut().enumerate() {
                // SAFETY: (queries - 1) * coef_stride + steps coefficients were asserted to be there.
                let c = _mm256_set1_pd(unsafe { *coef.get_unchecked(q * coef_stride + s) });
                for (a, v) in a.iter_mut().zip(&row) {
                    *a = _mm256_fmadd_pd(*v, c, *a);
                }
            }
        }
        for (a, to) in a.iter().zip(acc) {
            for (i, a) in a.iter().enumerate() {
                // SAFETY: a row of `acc` is 16 doubles.
                unsafe { _mm256_storeu_pd(to.as_mut_ptr().add(4 * i), *a) };
            }
        }
    }
}
