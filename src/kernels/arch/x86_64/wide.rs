//! Sums of the float kernels in registers.

use std::arch::x86_64::*;

use super::chain::{Avx2, Avx512};

/// Eight f64 sums.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Sums(pub [f64; 8]);

/// Eight f64 lanes in registers.
pub(super) trait Wide {
    type Acc: Copy;

    /// # Safety
    /// The processor has the features of the level.
    unsafe fn zero() -> Self::Acc;
    /// # Safety
    /// The processor has the features of the level.
    unsafe fn load(sums: &Sums) -> Self::Acc;
    /// # Safety
    /// The processor has the features of the level.
    unsafe fn store(sums: &mut Sums, acc: Self::Acc);
    /// # Safety
    /// The processor has the features of the level.
    unsafe fn widen(v: __m256) -> Self::Acc;
    /// # Safety
    /// The processor has the features of the level.
    unsafe fn fma(acc: Self::Acc, w: Self::Acc, x: f64) -> Self::Acc;
    /// # Safety
    /// The processor has the features of the level.
    unsafe fn add(acc: Self::Acc, v: Self::Acc) -> Self::Acc;
}

impl Wide for Avx2 {
    type Acc = [__m256d; 2];

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn zero() -> Self::Acc {
        [_mm256_setzero_pd(); 2]
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(sums: &Sums) -> Self::Acc {
        let p = sums.0.as_ptr();
        // SAFETY: eight f64, aligned to 64.
        unsafe { [_mm256_load_pd(p), _mm256_load_pd(p.add(4))] }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn store(sums: &mut Sums, acc: Self::Acc) {
        let p = sums.0.as_mut_ptr();
        // SAFETY: eight f64, aligned to 64.
        unsafe {
            _mm256_store_pd(p, acc[0]);
            _mm256_store_pd(p.add(4), acc[1]);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn widen(v: __m256) -> Self::Acc {
        [_mm256_cvtps_pd(_mm256_castps256_ps128(v)), _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(v))]
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn fma(acc: Self::Acc, w: Self::Acc, x: f64) -> Self::Acc {
        let x = _mm256_set1_pd(x);
        [_mm256_fmadd_pd(w[0], x, acc[0]), _mm256_fmadd_pd(w[1], x, acc[1])]
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn add(acc: Self::Acc, v: Self::Acc) -> Self::Acc {
        [_mm256_add_pd(acc[0], v[0]), _mm256_add_pd(acc[1], v[1])]
    }
}

impl Wide for Avx512 {
    type Acc = __m512d;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn zero() -> Self::Acc {
        _mm512_setzero_pd()
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn load(sums: &Sums) -> Self::Acc {
        // SAFETY: eight f64, aligned to 64.
        unsafe { _mm512_load_pd(sums.0.as_ptr()) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn store(sums: &mut Sums, acc: Self::Acc) {
        // SAFETY: eight f64, aligned to 64.
        unsafe { _mm512_store_pd(sums.0.as_mut_ptr(), acc) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn widen(v: __m256) -> Self::Acc {
        _mm512_cvtps_pd(v)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn fma(acc: Self::Acc, w: Self::Acc, x: f64) -> Self::Acc {
        _mm512_fmadd_pd(w, _mm512_set1_pd(x), acc)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn add(acc: Self::Acc, v: Self::Acc) -> Self::Acc {
        _mm512_add_pd(acc, v)
    }
}
