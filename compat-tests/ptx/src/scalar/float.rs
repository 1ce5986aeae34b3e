//! Numbers in single, double and half precision.

use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use super::{Lanes, Scalar, one, three, two};

/// The only NaN that arithmetic in single precision gives.
const NAN: u32 = 0x7fff_ffff;
/// The same in half precision.
const HALF_NAN: u16 = 0x7fff;

/// The bits of a result.
fn bits(x: f32) -> u32 {
    if x.is_nan() { NAN } else { x.to_bits() }
}

fn single(bits: u32) -> f32 {
    f32::from_bits(bits)
}

fn double(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// Half precision from a value in double precision. Sums and products of two f16 numbers are exact in that, and where
/// the sum of a product and an f16 is not, it is nowhere near a tie: the product is smaller than the last place of the
/// f16.
fn half(x: f64) -> u16 {
    if x.is_nan() {
        return HALF_NAN;
    }
    // Rounded to odd in single precision, so that the second rounding sees whether something was left over.
    let near = x as f32;
    let exact = f64::from(near) == x;
    let away = f64::from(near).abs() > x.abs();
    let toward = if away { near.to_bits() - 1 } else { near.to_bits() };
    let odd = if exact { near.to_bits() } else { toward | 1 };
    f32_to_f16(f32::from_bits(odd))
}

/// Applies a function to both f16 numbers of a register.
fn pairs(a: u32, b: u32, c: u32, f: fn(f64, f64, f64) -> f64) -> u32 {
    let of = |x: u32, h: u32| f64::from(f16_to_f32((x >> (16 * h)) as u16));
    let result = |h: u32| u32::from(half(f(of(a, h), of(b, h), of(c, h))));
    result(0) | result(1) << 16
}

/// The smaller number, or the only one; -0 is smaller than 0.
fn smaller(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a.total_cmp(&b).is_lt() => a,
        _ => b,
    }
}

/// The same in double precision.
fn lesser(a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a.total_cmp(&b).is_lt() => a,
        _ => b,
    }
}

pub(super) fn find(opcode: &str) -> Option<(usize, Scalar)> {
    match opcode {
        // Without .rn a driver may contract; kernels are checked for that by `lint`, not here.
        "add.f32" | "add.rn.f32" => two!(|a: u32, b: u32| bits(single(a) + single(b))),
        "sub.f32" | "sub.rn.f32" => two!(|a: u32, b: u32| bits(single(a) - single(b))),
        "mul.f32" | "mul.rn.f32" => two!(|a: u32, b: u32| bits(single(a) * single(b))),
        "div.rn.f32" => two!(|a: u32, b: u32| bits(single(a) / single(b))),
        "fma.rn.f32" => {
            three!(|a: u32, b: u32, c: u32| bits(single(a).mul_add(single(b), single(c))))
        }
        "sqrt.rn.f32" => one!(|a: u32| bits(single(a).sqrt())),
        "min.f32" => two!(|a: u32, b: u32| bits(smaller(single(a), single(b)))),
        "max.f32" => two!(|a: u32, b: u32| bits(-smaller(-single(a), -single(b)))),
        "neg.f32" => one!(|a: u32| a ^ 1 << 31),
        "abs.f32" => one!(|a: u32| a & !(1 << 31)),
        "add.f64" | "add.rn.f64" => two!(|a: u64, b: u64| (double(a) + double(b)).to_bits()),
        "sub.f64" | "sub.rn.f64" => two!(|a: u64, b: u64| (double(a) - double(b)).to_bits()),
        "mul.f64" | "mul.rn.f64" => two!(|a: u64, b: u64| (double(a) * double(b)).to_bits()),
        "div.rn.f64" => two!(|a: u64, b: u64| (double(a) / double(b)).to_bits()),
        "fma.rn.f64" => {
            three!(|a: u64, b: u64, c: u64| double(a).mul_add(double(b), double(c)).to_bits())
        }
        "rcp.rn.f64" => one!(|a: u64| (1.0 / double(a)).to_bits()),
        "min.f64" => two!(|a: u64, b: u64| lesser(double(a), double(b)).to_bits()),
        "max.f64" => two!(|a: u64, b: u64| (-lesser(-double(a), -double(b))).to_bits()),
        "sqrt.rn.f64" => one!(|a: u64| double(a).sqrt().to_bits()),
        "neg.f64" => one!(|a: u64| a ^ 1 << 63),
        "abs.f64" => one!(|a: u64| a & !(1 << 63)),
        "add.f16x2" | "add.rn.f16x2" => two!(|a: u32, b: u32| pairs(a, b, 0, |a, b, _| a + b)),
        "sub.f16x2" | "sub.rn.f16x2" => two!(|a: u32, b: u32| pairs(a, b, 0, |a, b, _| a - b)),
        "mul.f16x2" | "mul.rn.f16x2" => two!(|a: u32, b: u32| pairs(a, b, 0, |a, b, _| a * b)),
        "fma.rn.f16x2" => {
            three!(|a: u32, b: u32, c: u32| pairs(a, b, c, |a, b, c| a * b + c))
        }
        _ => compare(opcode),
    }
}

fn compare(opcode: &str) -> Option<(usize, Scalar)> {
    macro_rules! unordered {
        ($ty:ident, $a:ident, $b:ident) => {
            $ty($a).is_nan() || $ty($b).is_nan()
        };
    }
    // The names with a `u` hold for NaN too, the others never.
    macro_rules! all {
        ($ty:ident, $relation:expr) => {
            match $relation {
                "eq" => two!(|a: _, b: _| $ty(a) == $ty(b)),
                "ne" => two!(|a: _, b: _| $ty(a) < $ty(b) || $ty(a) > $ty(b)),
                "lt" => two!(|a: _, b: _| $ty(a) < $ty(b)),
                "le" => two!(|a: _, b: _| $ty(a) <= $ty(b)),
                "gt" => two!(|a: _, b: _| $ty(a) > $ty(b)),
                "ge" => two!(|a: _, b: _| $ty(a) >= $ty(b)),
                "equ" => two!(|a: _, b: _| $ty(a) == $ty(b) || unordered!($ty, a, b)),
                "neu" => two!(|a: _, b: _| $ty(a) != $ty(b)),
                "ltu" => two!(|a: _, b: _| $ty(a) < $ty(b) || unordered!($ty, a, b)),
                "leu" => two!(|a: _, b: _| $ty(a) <= $ty(b) || unordered!($ty, a, b)),
                "gtu" => two!(|a: _, b: _| $ty(a) > $ty(b) || unordered!($ty, a, b)),
                "geu" => two!(|a: _, b: _| $ty(a) >= $ty(b) || unordered!($ty, a, b)),
                "num" => two!(|a: _, b: _| !unordered!($ty, a, b)),
                "nan" => two!(|a: _, b: _| unordered!($ty, a, b)),
                _ => None,
            }
        };
    }
    let (relation, ty) = opcode.strip_prefix("setp.")?.split_once('.')?;
    match ty {
        "f32" => all!(single, relation),
        "f64" => all!(double, relation),
        _ => None,
    }
}
