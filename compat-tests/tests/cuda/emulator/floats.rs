//! Floating-point numbers against formulas in wider types, and conversions.

use half::f16;

use super::lanes::{INTEGERS, check, compare, cut};

/// Numbers in single precision that hurt: zeros, ends of the ranges of both precisions and of integers, ties,
/// infinities, NaN.
const SINGLES: [f32; 22] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    -2.5,
    1.0 / 3.0,
    f32::MIN_POSITIVE,
    1e-45,
    -1.2e-40,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    65504.0,
    65520.0,
    2_147_483_648.0,
    -2_147_483_904.0,
    16_777_217.0,
    1.000_000_1,
];

/// The pool of single precision in registers whose upper half is no part of the number.
fn singles() -> Vec<u64> {
    let bits = SINGLES.iter().map(|x| u64::from(x.to_bits()));
    bits.map(|b| b | 0xdead << 32).collect()
}

fn single(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

/// The bits that PTX has for a result.
fn rounded(x: f64) -> u64 {
    if x.is_nan() { 0x7fff_ffff } else { (x as f32).to_bits().into() }
}

#[test]
fn single_precision() {
    let pool = singles();
    let wide = |x| f64::from(single(x));
    // Sums and products of two, quotients and roots, rounded from double precision are those of single precision.
    for rn in ["", ".rn"] {
        check(&format!("add{rn}.f32"), 2, &pool, |a, b, _| rounded(wide(a) + wide(b)));
        check(&format!("sub{rn}.f32"), 2, &pool, |a, b, _| rounded(wide(a) - wide(b)));
        check(&format!("mul{rn}.f32"), 2, &pool, |a, b, _| rounded(wide(a) * wide(b)));
    }
    check("div.rn.f32", 2, &pool, |a, b, _| rounded(wide(a) / wide(b)));
    check("sqrt.rn.f32", 1, &pool, |a, _, _| rounded(wide(a).sqrt()));
    check("fma.rn.f32", 3, &pool, |a, b, c| {
        let x = single(a).mul_add(single(b), single(c));
        if x.is_nan() { 0x7fff_ffff } else { x.to_bits().into() }
    });
    let order = |x: f64| (x, x.is_sign_positive());
    check("min.f32", 2, &pool, |a, b, _| match (wide(a), wide(b)) {
        (x, y) if x.is_nan() => rounded(y),
        (x, y) if y.is_nan() => rounded(x),
        (x, y) => rounded(if order(x) <= order(y) { x } else { y }),
    });
    check("max.f32", 2, &pool, |a, b, _| match (wide(a), wide(b)) {
        (x, y) if x.is_nan() => rounded(y),
        (x, y) if y.is_nan() => rounded(x),
        (x, y) => rounded(if order(x) >= order(y) { x } else { y }),
    });
    check("neg.f32", 1, &pool, |a, _, _| a & 0xffff_ffff ^ 0x8000_0000);
    check("abs.f32", 1, &pool, |a, _, _| a & 0x7fff_ffff);
    for (name, holds) in relations::<f32>() {
        check(&format!("setp.{name}.f32"), 2, &pool, |a, b, _| holds(single(a), single(b)).into());
    }
}

/// The relations of floats as sets of what two numbers may be to one another.
fn relations<T: PartialOrd>() -> Vec<(&'static str, impl Fn(T, T) -> bool)> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let all: [(&str, &[_]); 14] = [
        ("eq", &[Some(Equal)]),
        ("ne", &[Some(Less), Some(Greater)]),
        ("lt", &[Some(Less)]),
        ("le", &[Some(Less), Some(Equal)]),
        ("gt", &[Some(Greater)]),
        ("ge", &[Some(Greater), Some(Equal)]),
        ("equ", &[Some(Equal), None]),
        ("neu", &[Some(Less), Some(Greater), None]),
        ("ltu", &[Some(Less), None]),
        ("leu", &[Some(Less), Some(Equal), None]),
        ("gtu", &[Some(Greater), None]),
        ("geu", &[Some(Greater), Some(Equal), None]),
        ("num", &[Some(Less), Some(Equal), Some(Greater)]),
        ("nan", &[None]),
    ];
    all.into_iter().map(|(name, set)| (name, move |a: T, b: T| set.contains(&a.partial_cmp(&b)))).collect()
}

#[test]
fn double_precision() {
    let mut pool: Vec<u64> = SINGLES.iter().map(|&x| f64::from(x).to_bits()).collect();
    pool.extend([5e-324, f64::MAX, f64::MIN_POSITIVE, 1.0 + f64::EPSILON, 1e300].map(f64::to_bits));
    let of = f64::from_bits;
    // Results that are NaN have no bits to compare.
    let same = |op: &str, count: usize, f: fn(f64, f64, f64) -> f64| {
        let operands = ["%rd11", "%rd12", "%rd13"][..count].join(", ");
        let code = format!("{op} %rd20, {operands};\nsetp.nan.f64 %p1, %rd20, %rd20;\nselp.b64 %rd20, 7, %rd20, %p1;");
        compare(op, &code, &pool, |a, b, c| {
            let x = f(of(a), of(b), of(c));
            if x.is_nan() { 7 } else { x.to_bits() }
        });
    };
    for rn in ["", ".rn"] {
        same(&format!("add{rn}.f64"), 2, |a, b, _| a + b);
        same(&format!("sub{rn}.f64"), 2, |a, b, _| a - b);
        same(&format!("mul{rn}.f64"), 2, |a, b, _| a * b);
    }
    same("div.rn.f64", 2, |a, b, _| a / b);
    same("fma.rn.f64", 3, f64::mul_add);
    same("sqrt.rn.f64", 1, |a, _, _| a.sqrt());
    same("rcp.rn.f64", 1, |a, _, _| 1.0 / a);
    // The smaller or greater number, or the only one; -0 is smaller than 0.
    fn ordered(a: f64, b: f64, smaller: bool) -> f64 {
        let a_is_smaller = a < b || a == b && a.is_sign_negative();
        match (a.is_nan(), b.is_nan()) {
            (true, _) => b,
            (_, true) => a,
            _ if a_is_smaller == smaller => a,
            _ => b,
        }
    }
    same("min.f64", 2, |a, b, _| ordered(a, b, true));
    same("max.f64", 2, |a, b, _| ordered(a, b, false));
    same("neg.f64", 1, |a, _, _| -a);
    same("abs.f64", 1, |a, _, _| a.abs());
    for (name, holds) in relations::<f64>() {
        check(&format!("setp.{name}.f64"), 2, &pool, |a, b, _| holds(of(a), of(b)).into());
    }
}

#[test]
fn half_precision() {
    let mut pool: Vec<u64> =
        [0x3c00_0000u64, 0x8000_0001, 0x7bff_fbff, 0x7c00_fc00, 0x3555_6408, 0x2c00_d480, 0x0400_03ff, 0x7e00_3800]
            .into();
    pool.extend((0..40).map(|i| 0x0123_4567u64.wrapping_mul(i * i + 1) & 0xffff_ffff));
    let part = |x: u64, h: u32| f64::from(f16::from_bits((x >> (16 * h)) as u16));
    let result = |f: &dyn Fn(u32) -> f64| {
        let bits = |h| match f(h) {
            x if x.is_nan() => 0x7fff,
            x => u64::from(f16::from_f64(x).to_bits()),
        };
        bits(0) | bits(1) << 16
    };
    for rn in ["", ".rn"] {
        check(&format!("add{rn}.f16x2"), 2, &pool, |a, b, _| result(&|h| part(a, h) + part(b, h)));
        check(&format!("sub{rn}.f16x2"), 2, &pool, |a, b, _| result(&|h| part(a, h) - part(b, h)));
        check(&format!("mul{rn}.f16x2"), 2, &pool, |a, b, _| result(&|h| part(a, h) * part(b, h)));
    }
    check("fma.rn.f16x2", 3, &pool, |a, b, c| result(&|h| part(a, h) * part(b, h) + part(c, h)));
}

#[test]
fn conversions() {
    let pool = singles();
    let wide = |x| f64::from(single(x));
    let bounded = |x: f64| {
        if x.is_nan() { 0 } else { cut(x.clamp(-2_147_483_648.0, 2_147_483_647.0) as i128, 32) }
    };
    check("cvt.rni.s32.f32", 1, &pool, |a, _, _| bounded(wide(a).round_ties_even()));
    check("cvt.rzi.s32.f32", 1, &pool, |a, _, _| bounded(wide(a).trunc()));
    check("cvt.rmi.s32.f32", 1, &pool, |a, _, _| bounded(wide(a).floor()));
    check("cvt.rni.f32.f32", 1, &pool, |a, _, _| rounded(wide(a).round_ties_even()));
    check("cvt.f64.f32", 1, &pool, |a, _, _| wide(a).to_bits());
    check("cvt.rn.f16.f32", 1, &pool, |a, _, _| match single(a) {
        x if x.is_nan() => 0x7fff,
        x => f16::from_f32(x).to_bits().into(),
    });
    let halves: Vec<u64> = (0..1 << 16).step_by(61).collect();
    check("cvt.f32.f16", 1, &halves, |a, _, _| rounded(f16::from_bits(a as u16).to_f64()));
    let doubles: Vec<u64> = SINGLES.iter().map(|&x| (f64::from(x) * (1.0 + 3e-8)).to_bits()).collect();
    check("cvt.rn.f32.f64", 1, &doubles, |a, _, _| rounded(f64::from_bits(a)));
    check("cvt.rn.f32.s32", 1, &INTEGERS, |a, _, _| rounded(super::lanes::wide(a, 32, true) as f64));
    check("cvt.rn.f32.u32", 1, &INTEGERS, |a, _, _| rounded(super::lanes::wide(a, 32, false) as f64));
    check("cvt.rn.f32.s64", 1, &INTEGERS, |a, _, _| u64::from((super::lanes::wide(a, 64, true) as f32).to_bits()));
    check("cvt.rn.f64.s32", 1, &INTEGERS, |a, _, _| (super::lanes::wide(a, 32, true) as f64).to_bits());
    for (from, bits) in [8, 16, 32, 64].into_iter().flat_map(|bits| [('s', bits), ('u', bits)]) {
        for (to, to_bits) in [8, 16, 32, 64].into_iter().flat_map(|bits| [('s', bits), ('u', bits)]) {
            check(&format!("cvt.{to}{to_bits}.{from}{bits}"), 1, &INTEGERS, |a, _, _| {
                cut(super::lanes::wide(a, bits, from == 's'), to_bits)
            });
        }
    }
}
