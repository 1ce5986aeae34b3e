//! tanhf with glibc's values: single-precision arithmetic over `expm1f`, both by the classic fdlibm
//! method (reduce by ln 2, rational approximation in x^2, scale back).

/// tanh(x) as glibc's `tanhf` returns it.
pub fn tanhf(x: f32) -> f32 {
    if x.is_nan() {
        return x;
    }
    let magnitude = x.abs();
    if magnitude >= 22.0 {
        return 1f32.copysign(x);
    }
    if magnitude < f32::from_bits(0x2400_0000) {
        return x * (1.0 + x); // below 2^-55
    }
    let z = if magnitude >= 1.0 {
        let t = expm1f(2.0 * magnitude);
        1.0 - 2.0 / (t + 2.0)
    } else {
        let t = expm1f(-2.0 * magnitude);
        -t / (t + 2.0)
    };
    if x.is_sign_negative() { -z } else { z }
}

const LN2_HIGH: f32 = f32::from_bits(0x3f31_7180);
const LN2_LOW: f32 = f32::from_bits(0x3717_f7d1);
const INV_LN2: f32 = f32::from_bits(0x3fb8_aa3b);
const Q: [f32; 5] = [
    f32::from_bits(0xbd08_8889),
    f32::from_bits(0x3ad0_0d01),
    f32::from_bits(0xb8a6_70cd),
    f32::from_bits(0x3686_7e54),
    f32::from_bits(0xb457_edbb),
];

/// e^x - 1 as glibc's `expm1f` returns it, for x <= 44: what [`tanhf`] needs, and activations below zero.
pub fn expm1f(x: f32) -> f32 {
    let magnitude = x.abs().to_bits();
    if magnitude >= 0x4195_b844 && x < 0.0 {
        return -1.0; // below -27 ln 2
    }
    if magnitude < 0x3300_0000 {
        return x; // below 2^-25
    }
    // x = k ln 2 + r, with c the rounding error of r.
    let (k, r, c) = if magnitude > 0x3eb1_7218 {
        let (k, high, low) = if magnitude < 0x3f85_1592 {
            if x > 0.0 { (1, x - LN2_HIGH, LN2_LOW) } else { (-1, x + LN2_HIGH, -LN2_LOW) }
        } else {
            let k = (INV_LN2 * x + if x > 0.0 { 0.5 } else { -0.5 }) as i32;
            (k, x - k as f32 * LN2_HIGH, k as f32 * LN2_LOW)
        };
        let r = high - low;
        (k, r, (high - r) - low)
    } else {
        (0, x, 0.0)
    };
    let half = 0.5 * r;
    let square = r * half;
    let r1 = 1.0 + square * (Q[0] + square * (Q[1] + square * (Q[2] + square * (Q[3] + square * Q[4]))));
    let t = 3.0 - r1 * half;
    let mut e = square * ((r1 - t) / (6.0 - r * t));
    if k == 0 {
        return r - (r * e - square);
    }
    e = r * (e - c) - c;
    e -= square;
    match k {
        -1 => 0.5 * (r - e) - 0.5,
        1 if r < -0.25 => -2.0 * (e - (r + 0.5)),
        1 => 1.0 + 2.0 * (r - e),
        _ if k <= -2 || k > 56 => scale(1.0 - (e - r), k) - 1.0,
        _ if k < 23 => {
            let t = f32::from_bits(0x3f80_0000 - (0x0100_0000 >> k));
            scale(t - (e - r), k)
        }
        _ => {
            let t = f32::from_bits(((0x7f - k) as u32) << 23);
            scale((r - (e + t)) + 1.0, k)
        }
    }
}

/// y * 2^k by adding to the exponent field.
fn scale(y: f32, k: i32) -> f32 {
    f32::from_bits(y.to_bits().wrapping_add((k as u32) << 23))
}
