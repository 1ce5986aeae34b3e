//! Numbers as digits: signed bytes.

use std::arch::x86_64::*;

/// Digits of a number, at most.
pub const DIGITS: usize = 4;

/// The number that makes a number's bytes digits: see [`balanced`].
const HALF_DIGITS: i32 = 0x0080_8080;

/// Digits that numbers up to this magnitude take; `None` beyond four.
pub(super) fn digits(greatest: f32) -> Option<usize> {
    let most = [(2, 0x7F7F), (3, 0x7F_7F7F), (4, 0x7F7F_7F00)];
    let fits = most.into_iter().find(|(_, most)| greatest <= *most as f32);
    fits.map(|(digits, _)| digits)
}

/// Whole numbers with their digits as bytes: half a digit of carry goes up, and comes off as a sign.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn balanced(x: __m512i) -> __m512i {
    let half = _mm512_set1_epi32(HALF_DIGITS);
    _mm512_xor_si512(_mm512_add_epi32(x, half), half)
}

/// Bits that some of the values have set: they decide the unit.
#[derive(Clone, Copy)]
pub(super) struct Bits {
    /// Bits of values below 64, in units of 2^-24.
    pub(super) small: __m512i,
    /// Bits of the others, whose lowest is no less than that, in units of 2^-4.
    pub(super) large: __m512i,
    /// Greatest magnitude.
    pub(super) greatest: __m512i,
}

impl Bits {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn none() -> Bits {
        let zero = _mm512_setzero_si512();
        Bits { small: zero, large: zero, greatest: zero }
    }

    /// Half floats as they are, all below 64 where `SMALL`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(super) fn add<const SMALL: bool>(&mut self, x: __m512) {
        let fine = _mm512_mul_ps(x, _mm512_set1_ps((1u32 << 24) as f32));
        let magnitude = _mm512_castps_si512(_mm512_abs_ps(x));
        if SMALL {
            self.small = _mm512_or_si512(self.small, _mm512_cvtps_epi32(fine));
        } else {
            let small = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(64f32.to_bits().cast_signed()));
            let coarse = _mm512_mul_ps(x, _mm512_set1_ps(16.0));
            let fine = _mm512_maskz_cvtps_epi32(small, fine);
            let coarse = _mm512_maskz_cvtps_epi32(!small, coarse);
            self.small = _mm512_or_si512(self.small, fine);
            self.large = _mm512_or_si512(self.large, coarse);
        }
        self.greatest = _mm512_max_epu32(self.greatest, magnitude);
    }

    /// The lowest bit of each lane as a value; 1 where there is none.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn units(self) -> __m512 {
        let zero = _mm512_setzero_si512();
        let lowest = |x: __m512i| _mm512_cvtepi32_ps(_mm512_and_si512(x, _mm512_sub_epi32(zero, x)));
        let small = _mm512_mul_ps(lowest(self.small), _mm512_set1_ps(1.0 / (1u32 << 24) as f32));
        let large = _mm512_mul_ps(lowest(self.large), _mm512_set1_ps(1.0 / 16.0));
        let is_small = _mm512_test_epi32_mask(self.small, self.small);
        let is_large = _mm512_test_epi32_mask(self.large, self.large);
        let large = _mm512_mask_mov_ps(_mm512_set1_ps(1.0), is_large, large);
        _mm512_mask_mov_ps(large, is_small, small)
    }
}
