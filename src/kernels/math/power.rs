//! Powers and the binary logarithm in single precision.
//!
//! Both are the method of Arm's optimized-routines, which glibc has: a table of 16 intervals and a polynomial in `f64`,
//! fused as glibc does it on processors with FMA, rounded once.

use super::EXP2_32;

/// For the middle c of each interval: 1/c and log2 c.
const LOG2: [(u64, u64); 16] = [
    (0x3ff661ec79f8f3be, 0xbfdefec65b963019),
    (0x3ff571ed4aaf883d, 0xbfdb0b6832d4fca4),
    (0x3ff49539f0f010b0, 0xbfd7418b0a1fb77b),
    (0x3ff3c995b0b80385, 0xbfd39de91a6dcf7b),
    (0x3ff30d190c8864a5, 0xbfd01d9bf3f2b631),
    (0x3ff25e227b0b8ea0, 0xbfc97c1d1b3b7af0),
    (0x3ff1bb4a4a1a343f, 0xbfc2f9e393af3c9f),
    (0x3ff12358f08ae5ba, 0xbfb960cbbf788d5c),
    (0x3ff0953f419900a7, 0xbfaa6f9db6475fce),
    (0x3ff0000000000000, 0x0000000000000000),
    (0x3fee608cfd9a47ac, 0x3fb338ca9f24f53d),
    (0x3feca4b31f026aa0, 0x3fc476a9543891ba),
    (0x3feb2036576afce6, 0x3fce840b4ac4e4d2),
    (0x3fe9c2d163a1aa2d, 0x3fd40645f0c6651c),
    (0x3fe886e6037841ed, 0x3fd88e9c2c1b9ff8),
    (0x3fe767dcf5534862, 0x3fdce0a44eb17bcc),
];

/// x as 2^k c (1 + r) with a c of the table: r, and log2 of the rest.
fn split(x: f32) -> (f64, f64) {
    let from = x.to_bits().wrapping_sub(0x3f33_0000);
    let mantissa = f32::from_bits(x.to_bits().wrapping_sub(from & 0xff80_0000));
    let (inverse, log) = LOG2[(from >> 19) as usize % 16];
    let r = f64::from(mantissa).mul_add(f64::from_bits(inverse), -1.0);
    (r, f64::from_bits(log) + f64::from(from as i32 >> 23))
}

/// log2(x) with glibc's `log2f` values, for all positive normal numbers; others are rounded from an `f64` result.
pub fn log2f(x: f32) -> f32 {
    const C4: f64 = f64::from_bits(0xbfd712b6f70a7e4d);
    const C3: f64 = f64::from_bits(0x3fdecabf496832e0);
    const C2: f64 = f64::from_bits(0xbfe715479ffae3de);
    const C1: f64 = f64::from_bits(0x3ff715475f35c8b8);
    if !(x.is_normal() && x > 0.0) {
        return libm::log2(f64::from(x)) as f32;
    }
    if x == 1.0 {
        return 0.0;
    }
    let fma = f64::mul_add;
    let (r, y0) = split(x);
    let r2 = r * r;
    let y = fma(C4, r2, fma(C3, r, C2));
    fma(y, r2, fma(C1, r, y0)) as f32
}

/// x^y with glibc's `powf` values, for positive normal x and finite y; others are rounded from an `f64` result.
pub fn powf(x: f32, y: f32) -> f32 {
    const C5: f64 = f64::from_bits(0x3fd27616c9496e0b);
    const C4: f64 = f64::from_bits(0xbfd71969a075c67a);
    const C3: f64 = f64::from_bits(0x3fdec70a6ca7badd);
    const C2: f64 = f64::from_bits(0xbfe7154748bef6c8);
    const C1: f64 = f64::from_bits(0x3ff71547652ab82b);
    if !(x.is_normal() && x > 0.0 && y.is_finite()) || x == 1.0 || y == 0.0 {
        return libm::pow(f64::from(x), f64::from(y)) as f32;
    }
    let fma = f64::mul_add;
    let (r, y0) = split(x);
    let r2 = r * r;
    let low = fma(fma(C3, r, C2), r2, fma(C1, r, y0));
    let log = fma(fma(C5, r, C4), r2 * r2, low);
    exp2(f64::from(y) * log)
}

/// 2^x: 2^(k/32) from a table times a cubic.
fn exp2(x: f64) -> f32 {
    const ROUND: f64 = f64::from_bits(0x42e8_0000_0000_0000); // 1.5 * 2^47: adding it rounds to 1/32
    const C3: f64 = f64::from_bits(0x3fac6af84b912394);
    const C2: f64 = f64::from_bits(0x3fcebfce50fac4f3);
    const C1: f64 = f64::from_bits(0x3fe62e42ff0c52d6);
    if x > f64::from_bits(0x405f_ffff_ffd1_d571) {
        return f32::INFINITY; // above log2 of the largest f32 and half a place
    }
    if x <= -150.0 {
        return 0.0;
    }
    let shifted = x + ROUND;
    let k = shifted.to_bits();
    let r = x - (shifted - ROUND);
    let scale = f64::from_bits(EXP2_32[(k % 32) as usize].wrapping_add(k << 47));
    let y = C3.mul_add(r, C2).mul_add(r * r, C1.mul_add(r, 1.0));
    (y * scale) as f32
}
