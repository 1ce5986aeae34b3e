//! Portable elementary functions: the values of the reference build, from `+ - * /` and `fma` alone.
//!
//! The platform's libm differs between systems and releases, so nothing here calls it. [`pexp`] is ggml's own
//! polynomial; [`sincosf`], [`expf`], [`tanhf`], [`logf`], [`log2f`] and [`powf`] give glibc's values, which are *not*
//! always the correctly rounded ones.

mod hyperbolic;
mod logarithm;
mod power;
mod trig;

pub use hyperbolic::{expm1f, tanhf};
pub use logarithm::{LOG_16, logf};
pub use power::{log2f, powf};
pub use trig::sincosf;

/// e^x as ggml's 4-lane SSE2 code computes it (`ggml_v_expf`): a degree-5 polynomial on a reduced
/// argument, every multiplication and addition rounded to `f32`.
///
/// -inf gives exactly +0, large arguments +inf. Soft-max and SiLU are built on it. There is no
/// branch, so that a loop over it becomes vector code with the same roundings.
#[inline(always)]
pub fn pexp(x: f32) -> f32 {
    let Reduced { n, e, j } = reduce(x);
    // Outside |n| <= 126 the power of two is split in two factors; outside 192 the result is 0 or inf.
    let g = if n <= 0.0 { 0x8200_0000u32 } else { 0 };
    let s1 = f32::from_bits(g.wrapping_add(0x7f00_0000));
    let s2 = f32::from_bits(e.wrapping_sub(g));
    let far = (s2 * j + s2) * s1;
    let n_abs = n.abs();
    if n_abs > 192.0 {
        s1 * s1
    } else if n_abs > 126.0 {
        far
    } else {
        scaled(e, j)
    }
}

/// Arguments below this magnitude are [`pexp_near`]'s.
pub const NEAR: f32 = 87.0;

/// [`pexp`] of `|x| < NEAR`. Its far branch, where it is not wanted, computes with subnormal numbers, which
/// some processors do slowly.
#[inline(always)]
pub fn pexp_near(x: f32) -> f32 {
    let Reduced { e, j, .. } = reduce(x);
    scaled(e, j)
}

/// x = n ln 2 + b: `n`, its bits where an exponent has them, and e^b - 1.
struct Reduced {
    n: f32,
    e: u32,
    j: f32,
}

#[inline(always)]
fn reduce(x: f32) -> Reduced {
    const ROUND: f32 = f32::from_bits(0x4b40_0000); // 1.5 * 2^23: adding it rounds to an integer
    let z = x * f32::from_bits(0x3fb8_aa3b) + ROUND; // log2(e)
    let n = z - ROUND;
    // ln 2 in two parts, subtracted one after the other.
    let b = (x - n * f32::from_bits(0x3f31_7200)) - n * f32::from_bits(0x35bf_be8e);
    let u = b * b;
    let high = f32::from_bits(0x3c07_2010) * b + f32::from_bits(0x3d2b_9f17);
    let low = f32::from_bits(0x3e2a_af33) * b + f32::from_bits(0x3eff_fedb);
    Reduced { n, e: z.to_bits() << 23, j: (high * u + low) * u + f32::from_bits(0x3f7f_fff6) * b }
}

/// 2^n (1 + j).
#[inline(always)]
fn scaled(e: u32, j: f32) -> f32 {
    let k = f32::from_bits(e.wrapping_add(1f32.to_bits()));
    j * k + k
}

/// x / (1 + e^-x) as ggml's `ggml_v_silu`: [`pexp`] of `0 - x`, one addition, one division.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + pexp(0.0 - x))
}

/// Natural logarithm in double precision.
pub fn log(x: f64) -> f64 {
    libm::log(x)
}

/// e^x in double precision.
pub fn exp(x: f64) -> f64 {
    libm::exp(x)
}

/// x^y in double precision.
pub fn pow(x: f64, y: f64) -> f64 {
    libm::pow(x, y)
}

/// e^x with glibc's `expf` values: 2^(k/32) from a table times a cubic in `f64`, rounded once
/// (the method of Arm's optimized-routines).
pub fn expf(x: f32) -> f32 {
    if x.is_nan() {
        return x + x;
    }
    if x > f32::from_bits(0x42b1_7217) {
        return f32::INFINITY; // above ln(f32::MAX)
    }
    if x < f32::from_bits(0xc2cf_f1b4) {
        return 0.0; // below ln(2^-150)
    }
    const ROUND: f64 = f64::from_bits(0x4338_0000_0000_0000); // 1.5 * 2^52
    // x * 32 / ln 2 = k + r; glibc's FMA build keeps the product unrounded in both places.
    const INV_LN2_32: f64 = f64::from_bits(0x4047_1547_652b_82fe);
    let wide = f64::from(x);
    let shifted = INV_LN2_32.mul_add(wide, ROUND);
    let k = shifted.to_bits();
    let r = INV_LN2_32.mul_add(wide, -(shifted - ROUND));
    // ln(2)^i / i! scaled by 32^-i, minimax
    const C3: f64 = f64::from_bits(0x3ebc_6af8_4b91_2394);
    const C2: f64 = f64::from_bits(0x3f2e_bfce_50fa_c4f3);
    const C1: f64 = f64::from_bits(0x3f96_2e42_ff0c_52d6);
    let scale = f64::from_bits(EXP2_32[(k % 32) as usize].wrapping_add(k << 47));
    let p = C3.mul_add(r, C2);
    let q = C1.mul_add(r, 1.0);
    (p.mul_add(r * r, q) * scale) as f32
}

/// The table of [`expf`], `bits(2^(i/32)) - i * 2^47`: adding `k << 47` to entry `k % 32` gives 2^(k/32).
pub static EXP2_32: [u64; 32] = [
    0x3ff0_0000_0000_0000,
    0x3fef_d9b0_d315_8574,
    0x3fef_b558_6cf9_890f,
    0x3fef_9301_d012_5b51,
    0x3fef_72b8_3c7d_517b,
    0x3fef_5487_3168_b9aa,
    0x3fef_387a_6e75_6238,
    0x3fef_1e9d_f51f_dee1,
    0x3fef_06fe_0a31_b715,
    0x3fee_f1a7_373a_a9cb,
    0x3fee_dea6_4c12_3422,
    0x3fee_ce08_6061_892d,
    0x3fee_bfda_d536_2a27,
    0x3fee_b42b_569d_4f82,
    0x3fee_ab07_dd48_5429,
    0x3fee_a47e_b03a_5585,
    0x3fee_a09e_667f_3bcd,
    0x3fee_9f75_e8ec_5f74,
    0x3fee_a114_73eb_0187,
    0x3fee_a589_994c_ce13,
    0x3fee_ace5_422a_a0db,
    0x3fee_b737_b0cd_c5e5,
    0x3fee_c491_82a3_f090,
    0x3fee_d503_b23e_255d,
    0x3fee_e89f_995a_d3ad,
    0x3fee_ff76_f2fb_5e47,
    0x3fef_199b_dd85_529c,
    0x3fef_3720_dcef_9069,
    0x3fef_5818_dcfb_a487,
    0x3fef_7c97_337b_9b5f,
    0x3fef_a4af_a2a4_90da,
    0x3fef_d076_5b6e_4540,
];

#[cfg(test)]
mod tests;
