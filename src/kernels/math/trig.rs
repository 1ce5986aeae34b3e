//! sinf and cosf with glibc's values.
//!
//! The method is the one published in Arm's optimized-routines and used by glibc since 2.28: reduce in
//! `f64` by multiples of pi/2, then one short polynomial, rounded once to `f32`. The result is within
//! 0.56 ulp but not always the correctly rounded value, and RoPE shows the difference.
//! The fused form (`fma` wherever a product is added) is what glibc runs on every CPU with FMA.

const HALF_PI: f64 = f64::from_bits(0x3ff9_21fb_5444_2d18);
/// 2/pi * 2^24.
const TWO_OVER_PI_24: f64 = f64::from_bits(0x4164_5f30_6dc9_c883);
/// pi/2 * 2^-62.
const HALF_PI_62: f64 = f64::from_bits(0x3c19_21fb_5444_2d18);

const S: [f64; 3] = [
    f64::from_bits(0xbfc5_5554_5995_a603),
    f64::from_bits(0x3f81_1076_0523_0bc4),
    f64::from_bits(0xbf29_94eb_3774_cf24),
];
const C: [f64; 5] = [
    1.0,
    f64::from_bits(0xbfdf_ffff_fd0c_621c),
    f64::from_bits(0x3fa5_5553_e106_8f19),
    f64::from_bits(0xbf56_c087_e89a_359d),
    f64::from_bits(0x3ef9_9343_027b_f8c3),
];

/// The bits of 2/pi in overlapping 32-bit windows, one byte apart.
static TWO_OVER_PI: [u32; 24] = [
    0x0000_00a2,
    0x0000_a2f9,
    0x00a2_f983,
    0xa2f9_836e,
    0xf983_6e4e,
    0x836e_4e44,
    0x6e4e_4415,
    0x4e44_1529,
    0x4415_29fc,
    0x1529_fc27,
    0x29fc_2757,
    0xfc27_57d1,
    0x2757_d1f5,
    0x57d1_f534,
    0xd1f5_34dd,
    0xf534_ddc0,
    0x34dd_c0db,
    0xddc0_db62,
    0xc0db_6295,
    0xdb62_9599,
    0x6295_993c,
    0x9599_3c43,
    0x993c_4390,
    0x3c43_9041,
];

/// (sin y, cos y) for finite `y >= 0`, with the values of glibc's `sinf` and `cosf`.
///
/// Negative arguments follow by symmetry; NaN and infinity give NaN.
pub fn sincosf(y: f32) -> (f32, f32) {
    if !y.is_finite() {
        return (f32::NAN, f32::NAN);
    }
    if y.is_sign_negative() {
        let (s, c) = sincosf(-y);
        return (-s, c);
    }
    if y < f32::from_bits(0x3980_0000) {
        return (y, 1.0); // below 2^-12 both series end after the first term
    }
    let (n, x) = reduce(y);
    // Quadrants 1 and 2 use -x; the even polynomial changes sign in quadrants 2 and 3.
    let signed = if matches!(n & 3, 1 | 2) { -x } else { x };
    let x2 = x * x;
    let odd = odd_poly(signed, x2);
    let even = even_poly(x2, n & 2 != 0);
    if n & 1 == 0 { (odd, even) } else { (even, odd) }
}

/// `y = n * pi/2 + x` with |x| <= pi/4 (a little more below 0.75); n modulo 4 counts.
fn reduce(y: f32) -> (i32, f64) {
    let wide = f64::from(y);
    if y < 0.75 {
        return (0, wide);
    }
    if y < 120.0 {
        let n = (((wide * TWO_OVER_PI_24) as i32).wrapping_add(1 << 23)) >> 24;
        return (n, (-f64::from(n)).mul_add(HALF_PI, wide));
    }
    // 24 bits of mantissa times the 96 bits of 2/pi that matter at this exponent.
    let bits = y.to_bits();
    let i = (bits >> 26 & 15) as usize;
    let m = ((bits & 0x00ff_ffff) | 0x0080_0000) << (bits >> 23 & 7);
    let high = u64::from(m.wrapping_mul(TWO_OVER_PI[i])) << 32;
    let mid = u64::from(m) * u64::from(TWO_OVER_PI[i + 4]);
    let low = (u64::from(m) * u64::from(TWO_OVER_PI[i + 8])) >> 32;
    let z = high.wrapping_add(mid).wrapping_add(low);
    let n = z.wrapping_add(1 << 61) >> 62;
    let rest = z.wrapping_sub(n << 62) as i64;
    (n as i32, rest as f64 * HALF_PI_62)
}

fn odd_poly(x: f64, x2: f64) -> f32 {
    let x3 = x * x2;
    let tail = x2.mul_add(S[2], S[1]);
    (x3 * x2).mul_add(tail, x3.mul_add(S[0], x)) as f32
}

fn even_poly(x2: f64, negate: bool) -> f32 {
    let sign = if negate { -1.0 } else { 1.0 };
    let c = C.map(|c| c * sign);
    let x4 = x2 * x2;
    let tail = x2.mul_add(c[4], c[3]);
    let head = x4.mul_add(c[2], x2.mul_add(c[1], c[0]));
    (x4 * x2).mul_add(tail, head) as f32
}
