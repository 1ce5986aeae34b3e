//! Integers, bits and predicates.

use std::cmp::Ordering;

use super::{Lanes, Scalar, four, one, three, two};

pub(super) fn find(opcode: &str) -> Option<(usize, Scalar)> {
    arithmetic(opcode).or_else(|| bits(opcode)).or_else(|| compare(opcode))
}

/// Two words of `a` with signs times two bytes with signs, added to `c`.
fn words(a: u32, bytes: u16, c: u32) -> u32 {
    let [x, y] = bytes.to_le_bytes().map(|byte| i32::from(byte as i8));
    let sum = i32::from(a as i16) * x + i32::from((a >> 16) as i16) * y;
    c.wrapping_add(sum as u32)
}

fn arithmetic(opcode: &str) -> Option<(usize, Scalar)> {
    match opcode {
        "add.s16" | "add.u16" => two!(|a: u16, b: u16| a.wrapping_add(b)),
        "add.s32" | "add.u32" => two!(|a: u32, b: u32| a.wrapping_add(b)),
        "add.s64" | "add.u64" => two!(|a: u64, b: u64| a.wrapping_add(b)),
        "sub.s16" | "sub.u16" => two!(|a: u16, b: u16| a.wrapping_sub(b)),
        "sub.s32" | "sub.u32" => two!(|a: u32, b: u32| a.wrapping_sub(b)),
        "sub.s64" | "sub.u64" => two!(|a: u64, b: u64| a.wrapping_sub(b)),
        "mul.lo.s16" | "mul.lo.u16" => two!(|a: u16, b: u16| a.wrapping_mul(b)),
        "mul.lo.s32" | "mul.lo.u32" => two!(|a: u32, b: u32| a.wrapping_mul(b)),
        "mul.lo.s64" | "mul.lo.u64" => two!(|a: u64, b: u64| a.wrapping_mul(b)),
        "mul.hi.s32" => two!(|a: i32, b: i32| ((i64::from(a) * i64::from(b)) >> 32) as u32),
        "mul.hi.u32" => two!(|a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        "mul.wide.s16" => two!(|a: i16, b: i16| (i32::from(a) * i32::from(b)) as u32),
        "mul.wide.u16" => two!(|a: u16, b: u16| u32::from(a) * u32::from(b)),
        "mul.wide.s32" => two!(|a: i32, b: i32| (i64::from(a) * i64::from(b)) as u64),
        "mul.wide.u32" => two!(|a: u32, b: u32| u64::from(a) * u64::from(b)),
        "mad.lo.s32" | "mad.lo.u32" => {
            three!(|a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c))
        }
        "mad.lo.s64" | "mad.lo.u64" => {
            three!(|a: u64, b: u64, c: u64| a.wrapping_mul(b).wrapping_add(c))
        }
        "mad.wide.s32" => three!(|a: i32, b: i32, c: u64| ((i64::from(a) * i64::from(b)) as u64).wrapping_add(c)),
        "mad.wide.u32" => {
            three!(|a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c))
        }
        // A quotient is rounded towards zero, a remainder has the dividend's sign. Division by zero is not defined;
        // here it has the bits that hardware gives.
        "div.s32" => two!(|a: i32, b: i32| if b == 0 { u32::MAX } else { a.wrapping_div(b) as u32 }),
        "div.u32" => two!(|a: u32, b: u32| a.checked_div(b).unwrap_or(u32::MAX)),
        "div.u64" => two!(|a: u64, b: u64| a.checked_div(b).unwrap_or(u64::MAX)),
        "rem.u64" => two!(|a: u64, b: u64| a.checked_rem(b).unwrap_or(a)),
        "rem.s32" => two!(|a: i32, b: i32| if b == 0 { a as u32 } else { a.wrapping_rem(b) as u32 }),
        "rem.u32" => two!(|a: u32, b: u32| a.checked_rem(b).unwrap_or(a)),
        "min.s32" => two!(|a: i32, b: i32| a.min(b) as u32),
        "min.u32" => two!(|a: u32, b: u32| a.min(b)),
        "max.s32" => two!(|a: i32, b: i32| a.max(b) as u32),
        "max.u32" => two!(|a: u32, b: u32| a.max(b)),
        "min.u64" => two!(|a: u64, b: u64| a.min(b)),
        "max.u64" => two!(|a: u64, b: u64| a.max(b)),
        "min.s64" => two!(|a: i64, b: i64| a.min(b) as u64),
        "max.s64" => two!(|a: i64, b: i64| a.max(b) as u64),
        "neg.s16" => one!(|a: u16| a.wrapping_neg()),
        "neg.s32" => one!(|a: u32| a.wrapping_neg()),
        "neg.s64" => one!(|a: u64| a.wrapping_neg()),
        "abs.s32" => one!(|a: i32| a.wrapping_abs() as u32),
        // Two words times two of four bytes, the lower or the upper ones.
        "dp2a.lo.s32.s32" => three!(|a: u32, b: u32, c: u32| words(a, b as u16, c)),
        "dp2a.hi.s32.s32" => three!(|a: u32, b: u32, c: u32| words(a, (b >> 16) as u16, c)),
        "dp4a.s32.s32" => three!(|a: u32, b: u32, c: u32| {
            let product = |i: usize| i32::from(a.to_le_bytes()[i] as i8) * i32::from(b.to_le_bytes()[i] as i8);
            (0..4).fold(c, |sum, i| sum.wrapping_add(product(i) as u32))
        }),
        "dp4a.u32.s32" => three!(|a: u32, b: u32, c: u32| {
            let product = |i: usize| i32::from(a.to_le_bytes()[i]) * i32::from(b.to_le_bytes()[i] as i8);
            (0..4).fold(c, |sum, i| sum.wrapping_add(product(i) as u32))
        }),
        _ => None,
    }
}

fn bits(opcode: &str) -> Option<(usize, Scalar)> {
    match opcode {
        "and.b16" => two!(|a: u16, b: u16| a & b),
        "and.b32" => two!(|a: u32, b: u32| a & b),
        "and.b64" => two!(|a: u64, b: u64| a & b),
        "or.b16" => two!(|a: u16, b: u16| a | b),
        "or.b32" => two!(|a: u32, b: u32| a | b),
        "or.b64" => two!(|a: u64, b: u64| a | b),
        "xor.b16" => two!(|a: u16, b: u16| a ^ b),
        "xor.b32" => two!(|a: u32, b: u32| a ^ b),
        "xor.b64" => two!(|a: u64, b: u64| a ^ b),
        "not.b32" => one!(|a: u32| !a),
        "not.b64" => one!(|a: u64| !a),
        "and.pred" => two!(|a: u64, b: u64| a & b),
        "or.pred" => two!(|a: u64, b: u64| a | b),
        "xor.pred" => two!(|a: u64, b: u64| a ^ b),
        "not.pred" => one!(|a: u64| a ^ 1),
        "mov.pred" => one!(|a: u64| a & 1),
        // Amounts as large as the number or larger shift all of it out.
        "shl.b16" => two!(|a: u16, b: u32| a.checked_shl(b).unwrap_or(0)),
        "shl.b32" => two!(|a: u32, b: u32| a.checked_shl(b).unwrap_or(0)),
        "shl.b64" => two!(|a: u64, b: u32| a.checked_shl(b).unwrap_or(0)),
        "shr.u16" | "shr.b16" => two!(|a: u16, b: u32| a.checked_shr(b).unwrap_or(0)),
        "shr.u32" | "shr.b32" => two!(|a: u32, b: u32| a.checked_shr(b).unwrap_or(0)),
        "shr.u64" | "shr.b64" => two!(|a: u64, b: u32| a.checked_shr(b).unwrap_or(0)),
        "shr.s16" => two!(|a: i16, b: u32| (a >> b.min(15)) as u16),
        "shr.s32" => two!(|a: i32, b: u32| (a >> b.min(31)) as u32),
        "shr.s64" => two!(|a: i64, b: u32| (a >> b.min(63)) as u64),
        "shf.l.wrap.b32" => {
            three!(|a: u32, b: u32, c: u32| (((u64::from(b) << 32 | u64::from(a)) << (c & 31)) >> 32) as u32)
        }
        "shf.r.wrap.b32" => {
            three!(|a: u32, b: u32, c: u32| ((u64::from(b) << 32 | u64::from(a)) >> (c & 31)) as u32)
        }
        "lop3.b32" => four!(|a: u32, b: u32, c: u32, table: u32| lop3(a, b, c, table)),
        "prmt.b32" => three!(|a: u32, b: u32, c: u32| permute(a, b, c)),
        "bfe.u32" => three!(|a: u32, b: u32, c: u32| {
            let (at, length) = (b & 255, c & 255);
            let field = a.checked_shr(at).unwrap_or(0);
            field & 1u32.checked_shl(length).map_or(u32::MAX, |bit| bit - 1)
        }),
        "bfi.b32" => four!(|a: u32, b: u32, c: u32, d: u32| {
            let (at, length) = (c & 255, d & 255);
            let field = 1u32.checked_shl(length).map_or(u32::MAX, |bit| bit - 1);
            let mask = field.checked_shl(at).unwrap_or(0);
            let put = a.checked_shl(at).unwrap_or(0);
            b & !mask | put & mask
        }),
        "popc.b32" => one!(|a: u32| a.count_ones()),
        "clz.b32" => one!(|a: u32| a.leading_zeros()),
        "mov.b16" | "mov.u16" => one!(|a: u16| a),
        "mov.b32" | "mov.u32" | "mov.s32" | "mov.f32" => one!(|a: u32| a),
        "mov.b64" | "mov.u64" | "mov.s64" | "mov.f64" => one!(|a: u64| a),
        // Bytes in shared memory and global memory have addresses that differ by a window; see `memory`.
        "cvta.to.global.u64" | "cvta.global.u64" => one!(|a: u64| a),
        "cvta.shared.u64" => one!(|a: u64| a.wrapping_add(crate::memory::WINDOW)),
        "cvta.to.shared.u64" => one!(|a: u64| a.wrapping_sub(crate::memory::WINDOW)),
        "selp.b16" | "selp.u16" | "selp.s16" => {
            three!(|a: u16, b: u16, p: u64| if p == 1 { a } else { b })
        }
        "selp.b32" | "selp.u32" | "selp.s32" | "selp.f32" => {
            three!(|a: u32, b: u32, p: u64| if p == 1 { a } else { b })
        }
        "selp.b64" | "selp.u64" | "selp.s64" | "selp.f64" => {
            three!(|a: u64, b: u64, p: u64| if p == 1 { a } else { b })
        }
        _ => None,
    }
}

/// Any function of three bits, given as a table of eight: as a sum without carries of products of its bits.
#[inline(always)]
fn lop3(a: u32, b: u32, c: u32, table: u32) -> u32 {
    // Bit `i` of the table is the function where a, b and c are the bits of i; how often a product of some of them
    // counts is the sum of the table over all parts of these.
    let mut counts = table;
    counts ^= counts << 1 & 0xaa;
    counts ^= counts << 2 & 0xcc;
    counts ^= counts << 4 & 0xf0;
    let with = |bit: u32, product: u32| product & 0u32.wrapping_sub(counts >> bit & 1);
    let bc = b & c;
    with(0, u32::MAX)
        ^ with(1, c)
        ^ with(2, b)
        ^ with(3, bc)
        ^ with(4, a)
        ^ with(5, a & c)
        ^ with(6, a & b)
        ^ with(7, a & bc)
}

/// Four bytes chosen from eight; a nibble with its highest bit set gives the byte's sign eight times.
#[inline(always)]
fn permute(a: u32, b: u32, choice: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    let pick = |i: u32| {
        let nibble = choice >> (4 * i) & 15;
        let byte = (bytes >> (8 * (nibble & 7))) as u8;
        let sign = 0u32.wrapping_sub(u32::from(byte >> 7)) & 255;
        (if nibble & 8 == 0 { u32::from(byte) } else { sign }) << (8 * i)
    };
    pick(0) | pick(1) | pick(2) | pick(3)
}

fn compare(opcode: &str) -> Option<(usize, Scalar)> {
    macro_rules! of {
        ($ty:ty, $test:expr) => {
            two!(|a: $ty, b: $ty| $test(a.cmp(&b)))
        };
    }
    macro_rules! all {
        ($ty:ty, $relation:expr) => {
            match $relation {
                "eq" => of!($ty, Ordering::is_eq),
                "ne" => of!($ty, Ordering::is_ne),
                "lt" | "lo" => of!($ty, Ordering::is_lt),
                "le" | "ls" => of!($ty, Ordering::is_le),
                "gt" | "hi" => of!($ty, Ordering::is_gt),
                "ge" | "hs" => of!($ty, Ordering::is_ge),
                _ => None,
            }
        };
    }
    let (relation, ty) = opcode.strip_prefix("setp.")?.split_once('.')?;
    match ty {
        "s16" => all!(i16, relation),
        "u16" | "b16" => all!(u16, relation),
        "s32" => all!(i32, relation),
        "u32" | "b32" => all!(u32, relation),
        "s64" => all!(i64, relation),
        "u64" | "b64" => all!(u64, relation),
        _ => None,
    }
}
