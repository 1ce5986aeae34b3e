//! Half floats and bfloats, 32 rows interleaved: the layouts of [`crate::arch::packed::half`].

use std::arch::x86_64::*;

use crate::arch::packed::half::{Set, bf16, f16};
use crate::proof::{Avx2, Avx512};
use crate::shared::halves::SCALE;
use crate::shared::packed::Layout;

pub(super) static LAYOUTS: &[Layout] = &[f16::<Avx512>(), f16::<Avx2>(), bf16::<Avx512>(), bf16::<Avx2>()];

impl Set for Avx2 {
    fn widen(self, halves: &[[[u8; 2]; 8]], out: &mut [[[u8; 8]; 8]]) {
        // SAFETY: a value of this type proves AVX2 and F16C.
        unsafe { widen(halves, out) }
    }
}

impl Set for Avx512 {
    fn widen(self, halves: &[[[u8; 2]; 8]], out: &mut [[[u8; 8]; 8]]) {
        // SAFETY: a value of this type proves AVX2 and F16C too.
        unsafe { widen(halves, out) }
    }
}

/// [`Set::widen`].
#[target_feature(enable = "avx2,f16c")]
fn widen(halves: &[[[u8; 2]; 8]], out: &mut [[[u8; 8]; 8]]) {
    let scale = _mm256_set1_pd(SCALE);
    for (halves, out) in halves.iter().zip(out) {
        // SAFETY: eight values on both sides; no alignment is asked for.
        unsafe {
            let x = _mm256_cvtph_ps(_mm_loadu_si128(halves.as_ptr().cast()));
            let low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
            let high = _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x));
            let out = out.as_mut_ptr().cast::<f64>();
            _mm256_storeu_pd(out, _mm256_mul_pd(low, scale));
            _mm256_storeu_pd(out.add(4), _mm256_mul_pd(high, scale));
        }
    }
}
