//! The natural logarithm in single precision.

/// The table of [`logf`]: for the middle c of each of 16 intervals the bits of 1/c and of ln c.
pub static LOG_16: [u64; 32] = [
    0x3ff661ec79f8f3be,
    0xbfd57bf7808caade,
    0x3ff571ed4aaf883d,
    0xbfd2bef0a7c06ddb,
    0x3ff49539f0f010b0,
    0xbfd01eae7f513a67,
    0x3ff3c995b0b80385,
    0xbfcb31d8a68224e9,
    0x3ff30d190c8864a5,
    0xbfc6574f0ac07758,
    0x3ff25e227b0b8ea0,
    0xbfc1aa2bc79c8100,
    0x3ff1bb4a4a1a343f,
    0xbfba4e76ce8c0e5e,
    0x3ff12358f08ae5ba,
    0xbfb1973c5a611ccc,
    0x3ff0953f419900a7,
    0xbfa252f438e10c1e,
    0x3ff0000000000000,
    0x0000000000000000,
    0x3fee608cfd9a47ac,
    0x3faaa5aa5df25984,
    0x3feca4b31f026aa0,
    0x3fbc5e53aa362eb4,
    0x3feb2036576afce6,
    0x3fc526e57720db08,
    0x3fe9c2d163a1aa2d,
    0x3fcbc2860d224770,
    0x3fe886e6037841ed,
    0x3fd1058bc8a07ee1,
    0x3fe767dcf5534862,
    0x3fd4043057b6ee09,
];

/// ln(x) with glibc's `logf` values, for all positive normal numbers: a table of 16 intervals and a cubic in `f64` (the
/// method of Arm's optimized-routines), fused as glibc does it on processors with FMA, rounded once. Others are rounded
/// from an `f64` result: infinities, NaN and zeros have one answer, and the engine has no subnormal arguments.
pub fn logf(x: f32) -> f32 {
    const LN2: f64 = f64::from_bits(0x3fe62e42fefa39ef);
    const C3: f64 = f64::from_bits(0xbfd00ea348b88334);
    const C2: f64 = f64::from_bits(0x3fd5575b0be00b6a);
    const C1: f64 = f64::from_bits(0xbfdffffef20a4123);
    if !(x.is_normal() && x > 0.0) {
        return libm::log(f64::from(x)) as f32;
    }
    if x == 1.0 {
        return 0.0;
    }
    // x = 2^exponent * mantissa, the mantissa between 0.7 and 1.4
    let from = x.to_bits().wrapping_sub(0x3f33_0000);
    let exponent = from as i32 >> 23;
    let mantissa = f32::from_bits(x.to_bits().wrapping_sub(from & 0xff80_0000));
    let interval = (from >> 19) as usize % 16;
    let (inverse, log) = (LOG_16[2 * interval], LOG_16[2 * interval + 1]);
    let fma = f64::mul_add;
    let r = fma(f64::from(mantissa), f64::from_bits(inverse), -1.0);
    let y0 = fma(f64::from(exponent), LN2, f64::from_bits(log));
    let r2 = r * r;
    let y = fma(C2, r, C1);
    let y = fma(C3, r2, y);
    fma(y, r2, y0 + r) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_within_a_place_of_the_rounded_logarithm_and_not_always_equal() {
        let mut other = 0;
        for bits in (0x0080_0000u32..0x7f80_0000).step_by(4097) {
            let x = f32::from_bits(bits);
            let (got, rounded) = (logf(x), libm::log(f64::from(x)) as f32);
            let apart = got.to_bits().abs_diff(rounded.to_bits());
            assert!(apart <= 1, "{x:e}: {got:e}, rounded {rounded:e}");
            other += apart;
        }
        assert!(other > 0);
    }

    #[test]
    fn what_is_no_normal_number_has_one_answer() {
        assert_eq!(logf(0.0), f32::NEG_INFINITY);
        assert_eq!(logf(f32::INFINITY), f32::INFINITY);
        assert!(logf(-1.0).is_nan() && logf(f32::NAN).is_nan());
        assert_eq!(logf(1.0).to_bits(), 0);
    }

    #[test]
    fn what_yarn_asks_for_is_the_rounded_logarithm() {
        // bases, factors, and contexts by turns of models with YaRN
        for x in [10_000.0f32, 150_000.0, 500_000.0, 1_000_000.0, 2.0, 4.0, 8.0, 16.0, 32.0, 40.0] {
            assert_eq!(logf(x), libm::log(f64::from(x)) as f32, "{x}");
        }
    }
}
