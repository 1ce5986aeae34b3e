//! Scalar helpers that the tensor types share: half and brain floats, and the roundings and casts of the
//! reference build, spelled so that they give its bits on every machine and never panic.

/// The magnitude bits of a NaN are above this (it is the pattern of infinity).
const INF_BITS: u32 = 0x7F80_0000;

/// Value of a half float. Quiet and signalling NaNs become quiet NaNs with the same payload.
#[inline]
pub fn f16_to_f32(h: u16) -> f32 {
    const EXPONENT_SHIFT: u32 = (127 - 15) << 23;
    const SUBNORMAL_UNIT: f32 = 1.0 / 16_777_216.0;
    let sign = u32::from(h & 0x8000) << 16;
    let m = u32::from(h & 0x7FFF);
    let subnormal = (m as f32 * SUBNORMAL_UNIT).to_bits();
    let normal = (m << 13) + EXPONENT_SHIFT;
    let quiet = if m > 0x7C00 { 0x0040_0000 } else { 0 };
    let special = (m << 13) | INF_BITS | quiet;
    let magnitude = if m < 0x0400 {
        subnormal
    } else if m < 0x7C00 {
        normal
    } else {
        special
    };
    f32::from_bits(sign | magnitude)
}

/// Nearest half float, ties to even; overflow gives infinity, every NaN becomes `0x7E00` with its sign
/// (ggml's converter drops the payload, F16C would keep it).
#[inline]
pub fn f32_to_f16(x: f32) -> u16 {
    const MIN_NORMAL: u32 = 0x3880_0000; // 2^-14
    const ROUNDS_TO_INF: u32 = 0x477F_F000; // 65520
    let bits = x.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let a = bits & 0x7FFF_FFFF;
    // Adding 0.5 leaves the half's subnormal unit, 2^-24, as the last bit, so the addition rounds.
    let subnormal = (f32::from_bits(a) + 0.5).to_bits().wrapping_sub(0x3F00_0000);
    let normal = a.wrapping_add(0x0FFF + ((a >> 13) & 1)).wrapping_sub((127 - 15) << 23) >> 13;
    let magnitude = if a < MIN_NORMAL {
        subnormal
    } else if a < ROUNDS_TO_INF {
        normal
    } else if a <= INF_BITS {
        0x7C00
    } else {
        0x7E00
    };
    sign | magnitude as u16
}

/// Value of a bfloat: its bits are the upper bits of the `f32`, signalling NaNs included.
#[inline]
pub fn bf16_to_f32(h: u16) -> f32 {
    f32::from_bits(u32::from(h) << 16)
}

/// Nearest bfloat, ties to even; NaN keeps its sign and upper payload and becomes quiet.
#[inline]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let upper = (bits >> 16) as u16;
    if bits & 0x7FFF_FFFF > INF_BITS {
        return upper | 0x0040;
    }
    // No number's bits are near enough to the top for the carry to leave 32 bits.
    (bits.wrapping_add(0x7FFF + u32::from(upper & 1)) >> 16) as u16
}

/// The half float at byte `off` of a block.
#[inline]
pub fn f16_at(b: &[u8], off: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([b[off], b[off + 1]]))
}

/// Stores the half float nearest to `x` at byte `off` of a block.
#[inline]
pub fn put_f16(b: &mut [u8], off: usize, x: f32) {
    b[off..off + 2].copy_from_slice(&f32_to_f16(x).to_le_bytes());
}

/// Nearest integer, ties to even, of `|x| <= 4194303`, by adding 1.5 * 2^23 and reading the mantissa.
/// Beyond that range it is whatever the low 23 bits say, as in the reference; NaN gives its payload,
/// 0 for the default NaN.
#[inline]
pub fn nearest_int(x: f32) -> i32 {
    let shifted = x + 12_582_912.0;
    (shifted.to_bits() & 0x007F_FFFF) as i32 - 0x0040_0000
}

/// C's `roundf`: nearest integer, ties away from zero.
#[inline]
pub fn round_half_away(x: f32) -> f32 {
    // 2^23 and above, infinities and NaN have no fraction to round.
    if x.abs() < 8_388_608.0 { (x + ALMOST_HALF.copysign(x)).trunc() } else { x }
}

/// The largest float below one half. `x + ALMOST_HALF` crosses the next integer exactly when the
/// fraction of `x` is at least one half, because the sum itself rounds to nearest.
const ALMOST_HALF: f32 = 0.499_999_97;

/// [`round_half_away`] as an integer, for values within ±2^22; NaN gives 0.
#[inline]
pub fn round_small(x: f32) -> i32 {
    (x + ALMOST_HALF.copysign(x)) as i32
}

/// C's `(int) x` as x86-64 computes it: truncation, and `i32::MIN` for NaN and everything that does not
/// fit (undefined in C; the narrower casts of the reference take the low bits of this).
#[inline]
pub fn c_int(x: f32) -> i32 {
    if (-2_147_483_648.0..2_147_483_648.0).contains(&x) { x as i32 } else { i32::MIN }
}

/// The low 32 bits of C's `lroundf` where `long` has 64: ties away from zero; NaN, infinities and
/// values beyond 64 bits give the low bits of `i64::MIN`, that is 0 (undefined in C; x86-64's answer).
#[inline]
pub fn lround_low32(x: f32) -> i32 {
    const LIMIT: f32 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&x) { round_half_away(x) as i64 as i32 } else { 0 }
}

/// Largest magnitude in the order of the reference's `max = max > |x| ? max : |x|`, starting from 0.
/// Without NaN that is the maximum. With NaN it is the maximum of what follows the last one, or NaN when
/// that is the last element: a NaN wins its own comparison and loses the next. The flag says whether
/// the result is a true maximum, that is, whether there was no NaN.
#[inline]
pub fn amax(x: &[f32]) -> (f32, bool) {
    // The bits of non-negative floats are ordered as integers, and integer max has no order to keep.
    let bits = x.iter().fold(0, |m, v| m.max((v.to_bits() & 0x7FFF_FFFF) as i32)) as u32;
    if bits <= INF_BITS {
        return (f32::from_bits(bits), true);
    }
    (x.iter().fold(0.0, |m, v| if m > v.abs() { m } else { v.abs() }), false)
}

/// True if no value is infinite or NaN.
#[inline(always)]
pub fn are_finite(x: &[f32]) -> bool {
    let mut largest = 0;
    for v in x {
        // As integers, for the same reason as in `amax`.
        largest = largest.max((v.to_bits() & 0x7FFF_FFFF) as i32);
    }
    (largest as u32) < INF_BITS
}

/// Largest magnitude; NaN is passed over.
#[inline]
pub fn largest_magnitude(x: &[f32]) -> f32 {
    let number = |v: &f32| Some(v.to_bits() & 0x7FFF_FFFF).filter(|&b| b <= INF_BITS).unwrap_or(0);
    // As integers, for the same reason as in `amax`.
    f32::from_bits(x.iter().fold(0, |m, v| m.max(number(v) as i32)) as u32)
}

/// The element of largest magnitude, with its sign; the first of equals. NaN is passed over.
#[inline]
pub fn signed_extreme(x: &[f32]) -> f32 {
    let mut best = 0.0f32;
    let mut extreme = 0.0;
    for &v in x {
        if best < v.abs() {
            best = v.abs();
            extreme = v;
        }
    }
    extreme
}

/// Smallest and largest element; NaN is passed over. Without any number: `(f32::MAX, f32::MIN)`.
#[inline]
pub fn min_max(x: &[f32]) -> (f32, f32) {
    let (mut min, mut max) = (f32::MAX, f32::MIN);
    for &v in x {
        if v < min {
            min = v;
        }
        if v > max {
            max = v;
        }
    }
    (min, max)
}

/// `1 / d`, or 0 for `d == 0`. NaN gives NaN, a tiny `d` may give infinity.
#[inline]
pub fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Floats worth trying: the neighbourhood of every exponent and of every half float and half-way
    /// point, both signs, and a stride through everything.
    fn each_interesting_float(mut f: impl FnMut(f32)) {
        let mut both = |bits: u32| {
            f(f32::from_bits(bits));
            f(f32::from_bits(bits | 0x8000_0000));
        };
        for exponent in 0..=255u32 {
            for near in 0..0x8000 {
                both((exponent << 23) | near);
                both((exponent << 23) | (0x007F_FFFF - near));
            }
        }
        for upper in 0..0x8_0000u32 {
            let step = upper << 12; // half of a normal half float's last place
            for near in [-2, -1, 0, 1, 2] {
                both(step.wrapping_add_signed(near) & 0x7FFF_FFFF);
            }
        }
        for bits in (0..0x8000_0000u32).step_by(1009) {
            both(bits);
        }
    }

    #[test]
    fn all_half_floats_load_and_store() {
        for h in 0..=u16::MAX {
            let x = f16_to_f32(h);
            let want = half::f16::from_bits(h);
            assert_eq!(x.is_nan(), want.is_nan(), "{h:#06x}");
            assert_eq!(x.is_sign_negative(), h >= 0x8000, "{h:#06x}");
            if x.is_nan() {
                let payload = u32::from(h & 0x03FF) << 13;
                assert_eq!(x.to_bits() & 0x7FFF_FFFF, 0x7FC0_0000 | payload, "{h:#06x}");
                assert_eq!(f32_to_f16(x), 0x7E00 | (h & 0x8000), "{h:#06x}");
            } else {
                assert_eq!(x.to_bits(), want.to_f32().to_bits(), "{h:#06x}");
                assert_eq!(f32_to_f16(x), h, "{h:#06x}");
            }
        }
    }

    #[test]
    fn half_floats_round_to_nearest_even() {
        each_interesting_float(|x| {
            let sign = (x.to_bits() >> 16 & 0x8000) as u16;
            let want = if x.is_nan() { 0x7E00 | sign } else { half::f16::from_f32(x).to_bits() };
            assert_eq!(f32_to_f16(x), want, "{x:e} {:#x}", x.to_bits());
        });
    }

    #[test]
    fn brain_floats_round_to_nearest_even() {
        each_interesting_float(|x| {
            let want = half::bf16::from_f32(x).to_bits();
            assert_eq!(f32_to_bf16(x), want, "{x:e} {:#x}", x.to_bits());
        });
        for h in 0..=u16::MAX {
            assert_eq!(bf16_to_f32(h).to_bits(), u32::from(h) << 16);
        }
    }

    #[test]
    fn integers_are_rounded_as_c_does() {
        each_interesting_float(|x| {
            let exact = f64::from(x);
            let away = (exact.abs() + 0.5).floor().copysign(exact);
            if x.is_nan() {
                assert!(round_half_away(x).is_nan());
                assert_eq!((c_int(x), lround_low32(x), round_small(x)), (i32::MIN, 0, 0));
                return;
            }
            // The sum is exact in double precision up to 2^52, and above 2^23 there is nothing to round.
            let away = if x.abs() < 8_388_608.0 { away } else { exact };
            assert_eq!(round_half_away(x).to_bits(), (away as f32).to_bits(), "{x:e}");
            let fits = (-2_147_483_648.0..2_147_483_648.0).contains(&exact);
            assert_eq!(c_int(x), if fits { exact as i64 as i32 } else { i32::MIN }, "{x:e}");
            let low = if away.abs() < 9e18 { away as i128 as i32 } else { 0 };
            assert_eq!(lround_low32(x), low, "{x:e}");
            if x.abs() <= 4_194_303.0 {
                assert_eq!(round_small(x), away as i32, "{x:e}");
                assert_eq!(nearest_int(x), x.round_ties_even() as i32, "{x:e}");
            }
        });
    }

    #[test]
    fn nan_wins_and_loses_the_maximum() {
        let nan = f32::NAN;
        assert_eq!(amax(&[1.0, -3.0, 2.0]), (3.0, true));
        assert_eq!(amax(&[-0.0]).0.to_bits(), 0);
        assert_eq!(amax(&[5.0, nan, -1.0, 0.5]), (1.0, false));
        assert_eq!(amax(&[5.0, nan, f32::NEG_INFINITY, 7.0]), (f32::INFINITY, false));
        let (last, is_max) = amax(&[5.0, -nan]);
        assert!(last.is_nan() && !is_max);
    }

    #[test]
    fn extremes_pass_over_nan_and_keep_the_first() {
        assert_eq!(signed_extreme(&[1.0, -2.0, f32::NAN, 2.0]), -2.0);
        assert_eq!(signed_extreme(&[f32::NAN, -0.0]).to_bits(), 0);
        assert_eq!(largest_magnitude(&[1.0, -f32::NAN, -2.0, f32::NAN]), 2.0);
        assert_eq!(largest_magnitude(&[f32::NAN, -0.0]).to_bits(), 0);
        assert_eq!(min_max(&[1.0, f32::NAN, -2.0]), (-2.0, 1.0));
        assert_eq!(min_max(&[f32::NAN]), (f32::MAX, f32::MIN));
    }

    #[test]
    fn inverses() {
        assert_eq!([inverse(4.0), inverse(-0.0), inverse(f32::INFINITY)], [0.25, 0.0, 0.0]);
        assert_eq!(inverse(f32::from_bits(1)), f32::INFINITY);
        assert!(inverse(f32::NAN).is_nan());
    }
}
