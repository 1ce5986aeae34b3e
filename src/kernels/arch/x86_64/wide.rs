//! Sums of the float kernels in registers.

use std::arch::x86_64::*;

use super::chain::{Avx2, Avx512};
use crate::arch::functions::{functions, unsafe_functions};

/// Eight f64 sums.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Sums(pub [f64; 8]);

/// Eight f64 lanes in registers.
pub(super) trait Wide {
    type Acc: Copy;

    unsafe_functions! { "The processor has the features of the level.";
        zero() -> Self::Acc;
        load(sums: &Sums) -> Self::Acc;
        store(sums: &mut Sums, acc: Self::Acc) -> ();
        widen(v: __m256) -> Self::Acc;
        fma(acc: Self::Acc, w: Self::Acc, x: f64) -> Self::Acc;
        add(acc: Self::Acc, v: Self::Acc) -> Self::Acc;
    }
}

impl Wide for Avx2 {
    type Acc = [__m256d; 2];

    functions! { [#[inline] #[target_feature(enable = "avx2,fma,f16c")]]
        zero() -> Self::Acc { [_mm256_setzero_pd(); 2] }
        load(sums: &Sums) -> Self::Acc {
            let p = sums.0.as_ptr();
            [_mm256_load_pd(p), _mm256_load_pd(p.add(4))]
        }
        store(sums: &mut Sums, acc: Self::Acc) -> () {
            let p = sums.0.as_mut_ptr();
            _mm256_store_pd(p, acc[0]);
            _mm256_store_pd(p.add(4), acc[1]);
        }
        widen(v: __m256) -> Self::Acc {
            [_mm256_cvtps_pd(_mm256_castps256_ps128(v)), _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(v))]
        }
        fma(acc: Self::Acc, w: Self::Acc, x: f64) -> Self::Acc {
            let x = _mm256_set1_pd(x);
            [_mm256_fmadd_pd(w[0], x, acc[0]), _mm256_fmadd_pd(w[1], x, acc[1])]
        }
        add(acc: Self::Acc, v: Self::Acc) -> Self::Acc { [_mm256_add_pd(acc[0], v[0]), _mm256_add_pd(acc[1], v[1])] }
    }
}

impl Wide for Avx512 {
    type Acc = __m512d;

    functions! { [#[inline] #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]]
        zero() -> __m512d { _mm512_setzero_pd() }
        load(sums: &Sums) -> __m512d { _mm512_load_pd(sums.0.as_ptr()) }
        store(sums: &mut Sums, acc: __m512d) -> () { _mm512_store_pd(sums.0.as_mut_ptr(), acc) }
        widen(v: __m256) -> __m512d { _mm512_cvtps_pd(v) }
        fma(acc: __m512d, w: __m512d, x: f64) -> __m512d { _mm512_fmadd_pd(w, _mm512_set1_pd(x), acc) }
        add(acc: __m512d, v: __m512d) -> __m512d { _mm512_add_pd(acc, v) }
    }
}
