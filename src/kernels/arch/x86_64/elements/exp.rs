//! The exponential function of [`crate::math::pexp`], sixteen at a time.

use std::arch::x86_64::*;

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn constant(bits: u32) -> __m512 {
    _mm512_castsi512_ps(_mm512_set1_epi32(bits.cast_signed()))
}

/// [`crate::math::pexp`] of every lane.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub fn pexp16(x: __m512) -> __m512 {
    let round = constant(0x4b40_0000);
    let z = _mm512_add_ps(_mm512_mul_ps(x, constant(0x3fb8_aa3b)), round);
    let n = _mm512_sub_ps(z, round);
    let b = _mm512_sub_ps(
        _mm512_sub_ps(x, _mm512_mul_ps(n, constant(0x3f31_7200))),
        _mm512_mul_ps(n, constant(0x35bf_be8e)),
    );
    let e = _mm512_slli_epi32::<23>(_mm512_castps_si512(z));
    let k = _mm512_castsi512_ps(_mm512_add_epi32(e, _mm512_set1_epi32(0x3f80_0000)));
    let u = _mm512_mul_ps(b, b);
    let high = _mm512_add_ps(_mm512_mul_ps(constant(0x3c07_2010), b), constant(0x3d2b_9f17));
    let low = _mm512_add_ps(_mm512_mul_ps(constant(0x3e2a_af33), b), constant(0x3eff_fedb));
    let j = _mm512_add_ps(
        _mm512_mul_ps(_mm512_add_ps(_mm512_mul_ps(high, u), low), u),
        _mm512_mul_ps(constant(0x3f7f_fff6), b),
    );
    let near = _mm512_add_ps(_mm512_mul_ps(j, k), k);
    let magnitude = _mm512_abs_ps(n);
    let is_far = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(magnitude, _mm512_set1_ps(126.0));
    if is_far == 0 {
        return near;
    }
    // The power of two in two factors; beyond that 0 or infinity.
    let negative = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(n, _mm512_setzero_ps());
    let g = _mm512_maskz_set1_epi32(negative, 0x8200_0000u32.cast_signed());
    let s1 = _mm512_castsi512_ps(_mm512_add_epi32(g, _mm512_set1_epi32(0x7f00_0000)));
    let s2 = _mm512_castsi512_ps(_mm512_sub_epi32(e, g));
    let far = _mm512_mul_ps(_mm512_add_ps(_mm512_mul_ps(s2, j), s2), s1);
    let is_beyond = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(magnitude, _mm512_set1_ps(192.0));
    let far = _mm512_mask_mul_ps(far, is_beyond, s1, s1);
    _mm512_mask_mov_ps(near, is_far, far)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use crate::math::pexp;
    use crate::testing::{isas, same};

    #[target_feature(enable = "avx512f,avx512dq")]
    fn compare(x: [f32; 16]) {
        let mut e = [0f32; 16];
        // SAFETY: sixteen values on both sides.
        unsafe { _mm512_storeu_ps(e.as_mut_ptr(), pexp16(_mm512_loadu_ps(x.as_ptr()))) };
        for (x, e) in x.into_iter().zip(e) {
            assert!(same(e, pexp(x)), "{x:e}: {e:e}, not {:e}", pexp(x));
        }
    }

    #[test]
    fn lanes_give_the_bits_of_the_definition() {
        if !isas().any(|isa| isa.has(Level::Avx512)) {
            return;
        }
        // All exponents and signs, alone and beside ordinary values, and densely where ranges meet.
        let any = (0..=u32::MAX).step_by(509).map(f32::from_bits);
        for (i, x) in any.enumerate() {
            let others = [x, 0.5][i % 2];
            // SAFETY: the instruction set was detected when the test began.
            unsafe { compare(std::array::from_fn(|lane| if lane == i % 16 { x } else { others })) };
        }
        for limit in [86.9f32, 87.3, 88.0, 88.7, 103.9, 132.7, 133.4] {
            for bits in (limit.to_bits()..limit.to_bits() + 160_000).step_by(16) {
                for sign in [0, 1 << 31] {
                    let x = |lane: usize| f32::from_bits((bits + lane as u32) | sign);
                    // SAFETY: the instruction set was detected when the test began.
                    unsafe { compare(std::array::from_fn(x)) };
                }
            }
        }
    }
}
