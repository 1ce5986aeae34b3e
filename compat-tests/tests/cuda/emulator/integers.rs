//! Integers, bits and predicates against formulas in 128 bits.

use super::lanes::{INTEGERS, check, compare, cut, wide};

#[test]
fn integer_arithmetic() {
    for (ty, bits, signed) in [
        ("s16", 16, true),
        ("u16", 16, false),
        ("s32", 32, true),
        ("u32", 32, false),
        ("s64", 64, true),
        ("u64", 64, false),
    ] {
        let of = |x| wide(x, bits, signed);
        let op = |name: &str| format!("{name}.{ty}");
        check(&op("add"), 2, &INTEGERS, |a, b, _| cut(of(a) + of(b), bits));
        check(&op("sub"), 2, &INTEGERS, |a, b, _| cut(of(a) - of(b), bits));
        check(&op("mul.lo"), 2, &INTEGERS, |a, b, _| cut(of(a).wrapping_mul(of(b)), bits));
        if bits < 64 {
            check(&op("mul.wide"), 2, &INTEGERS, |a, b, _| cut(of(a) * of(b), 2 * bits));
        }
        if bits > 16 {
            check(&op("mad.lo"), 3, &INTEGERS, |a, b, c| cut(of(a).wrapping_mul(of(b)).wrapping_add(of(c)), bits));
        }
        if bits == 32 {
            check(&op("mul.hi"), 2, &INTEGERS, |a, b, _| cut((of(a) * of(b)) >> 32, 32));
            check(&op("mad.wide"), 3, &INTEGERS, |a, b, c| cut(of(a) * of(b) + wide(c, 64, signed), 64));
            check(&op("div"), 2, &INTEGERS, |a, b, _| if of(b) == 0 { 0xffff_ffff } else { cut(of(a) / of(b), 32) });
            check(&op("rem"), 2, &INTEGERS, |a, b, _| if of(b) == 0 { cut(of(a), 32) } else { cut(of(a) % of(b), 32) });
        }
        if bits >= 32 {
            check(&op("min"), 2, &INTEGERS, |a, b, _| cut(of(a).min(of(b)), bits));
            check(&op("max"), 2, &INTEGERS, |a, b, _| cut(of(a).max(of(b)), bits));
        }
        if signed {
            check(&op("neg"), 1, &INTEGERS, |a, _, _| cut(-of(a), bits));
        }
    }
    check("div.u64", 2, &INTEGERS, |a, b, _| a.checked_div(b).unwrap_or(u64::MAX));
    check("rem.u64", 2, &INTEGERS, |a, b, _| a.checked_rem(b).unwrap_or(a));
    check("abs.s32", 1, &INTEGERS, |a, _, _| cut(wide(a, 32, true).abs(), 32));
    for (op, from) in [("dp2a.lo.s32.s32", 0), ("dp2a.hi.s32.s32", 16)] {
        check(op, 3, &INTEGERS, |a, b, c| {
            let part = |i: u64| wide(a >> (16 * i), 16, true) * wide(b >> (from + 8 * i), 8, true);
            cut(part(0) + part(1) + wide(c, 32, true), 32)
        });
    }
    for (op, a_signed) in [("dp4a.s32.s32", true), ("dp4a.u32.s32", false)] {
        check(op, 3, &INTEGERS, |a, b, c| {
            let sum: i128 = (0..4).map(|i| wide(a >> (8 * i), 8, a_signed) * wide(b >> (8 * i), 8, true)).sum();
            cut(sum + wide(c, 32, true), 32)
        });
    }
}

#[test]
fn bits_and_shifts() {
    for bits in [16, 32, 64] {
        let mask = |x: u64| cut(x.into(), bits);
        check(&format!("and.b{bits}"), 2, &INTEGERS, |a, b, _| mask(a & b));
        check(&format!("or.b{bits}"), 2, &INTEGERS, |a, b, _| mask(a | b));
        check(&format!("xor.b{bits}"), 2, &INTEGERS, |a, b, _| mask(a ^ b));
        let amount = |b: u64| (b & 0xffff_ffff).min(u64::from(bits)) as u32;
        check(&format!("shl.b{bits}"), 2, &INTEGERS, |a, b, _| cut(i128::from(mask(a)) << amount(b), bits));
        for ty in ["u", "b"] {
            check(&format!("shr.{ty}{bits}"), 2, &INTEGERS, |a, b, _| cut(i128::from(mask(a)) >> amount(b), bits));
        }
        check(&format!("shr.s{bits}"), 2, &INTEGERS, |a, b, _| cut(wide(a, bits, true) >> amount(b), bits));
        for ty in ["b", "u"] {
            check(&format!("mov.{ty}{bits}"), 1, &INTEGERS, |a, _, _| mask(a));
        }
        compare(
            "selp",
            &format!("setp.ne.u64 %p1, %rd13, 0;\nselp.b{bits} %rd20, %rd11, %rd12, %p1;"),
            &INTEGERS,
            |a, b, c| mask(if c == 0 { b } else { a }),
        );
    }
    check("not.b32", 1, &INTEGERS, |a, _, _| cut((!a).into(), 32));
    check("not.b64", 1, &INTEGERS, |a, _, _| !a);
    check("popc.b32", 1, &INTEGERS, |a, _, _| (0..32).map(|i| a >> i & 1).sum());
    check("clz.b32", 1, &INTEGERS, |a, _, _| (0..32).take_while(|i| a >> (31 - i) & 1 == 0).count() as u64);
    for table in [0x00, 0xea, 0x96, 0xca, 0x40, 0xff] {
        compare("lop3", &format!("lop3.b32 %rd20, %rd11, %rd12, %rd13, {table};"), &INTEGERS, |a, b, c| {
            let bit = |i: u64| (a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1;
            (0..32).map(|i| (table >> bit(i) & 1) << i).sum()
        });
    }
    check("prmt.b32", 3, &INTEGERS, |a, b, c| {
        let byte = |n: u64| {
            if n < 4 { a >> (8 * n) & 255 } else { b >> (8 * (n - 4)) & 255 }
        };
        let pick = |i: u64| match c >> (4 * i) & 15 {
            n @ 0..8 => byte(n),
            n if byte(n - 8) >= 128 => 255,
            _ => 0,
        };
        (0..4).map(|i| pick(i) << (8 * i)).sum()
    });
    check("shf.l.wrap.b32", 3, &INTEGERS, |a, b, c| {
        let n = c as u32 & 31;
        u64::from(if n == 0 { b as u32 } else { (b as u32) << n | (a as u32) >> (32 - n) })
    });
    check("shf.r.wrap.b32", 3, &INTEGERS, |a, b, c| {
        let n = c as u32 & 31;
        u64::from(if n == 0 { a as u32 } else { (a as u32) >> n | (b as u32) << (32 - n) })
    });
    check("bfe.u32", 3, &INTEGERS, |a, b, c| {
        let (at, length) = (b & 255, c & 255);
        (at..at + length).filter(|&i| i < 32 && a >> i & 1 == 1).map(|i| 1 << (i - at)).sum()
    });
    compare("bfi", "bfi.b32 %rd20, %rd11, %rd12, 5, 9;", &INTEGERS, |a, b, _| {
        b & 0xffff_ffff & !(511 << 5) | (a & 511) << 5
    });
    compare("join", "mov.b64 %rd20, {%rd12, %rd11};", &INTEGERS, |a, b, _| a << 32 | b & 0xffff_ffff);
    compare("part", "mov.b64 {_, %rd20}, %rd11;", &INTEGERS, |a, _, _| a >> 32);
    compare("halves", "mov.b32 {%rd14, %rd15}, %rd11;\nmov.b32 %rd20, {%rd15, %rd14};", &INTEGERS, |a, _, _| {
        u64::from((a as u32).rotate_left(16))
    });
}

#[test]
fn predicates_of_integers() {
    for (ty, bits, signed) in [
        ("s16", 16, true),
        ("u16", 16, false),
        ("s32", 32, true),
        ("u32", 32, false),
        ("b32", 32, false),
        ("s64", 64, true),
        ("u64", 64, false),
    ] {
        let of = |x| wide(x, bits, signed);
        let one = |names: &[&str], holds: fn(i128, i128) -> bool| {
            for name in names {
                check(&format!("setp.{name}.{ty}"), 2, &INTEGERS, |a, b, _| holds(of(a), of(b)).into());
            }
        };
        one(&["eq"], |a, b| a == b);
        one(&["ne"], |a, b| a != b);
        one(&["lt", "lo"], |a, b| a < b);
        one(&["le", "ls"], |a, b| a <= b);
        one(&["gt", "hi"], |a, b| a > b);
        one(&["ge", "hs"], |a, b| a >= b);
    }
    let of_two = |op: &str| {
        format!(
            "setp.lt.s64 %p1, %rd11, 0;\nsetp.lt.s64 %p2, %rd12, 0;\n{op} %p3, %p1, %p2;\nselp.u64 %rd20, 1, 0, %p3;"
        )
    };
    let sign = |x: u64| x >> 63;
    compare("and.pred", &of_two("and.pred"), &INTEGERS, |a, b, _| sign(a) & sign(b));
    compare("or.pred", &of_two("or.pred"), &INTEGERS, |a, b, _| sign(a) | sign(b));
    compare("xor.pred", &of_two("xor.pred"), &INTEGERS, |a, b, _| sign(a) ^ sign(b));
    compare(
        "not.pred",
        "setp.lt.s64 %p1, %rd11, 0;\nnot.pred %p3, %p1;\nselp.u64 %rd20, 1, 0, %p3;",
        &INTEGERS,
        |a, _, _| 1 - sign(a),
    );
}
