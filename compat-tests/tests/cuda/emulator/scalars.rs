//! Instructions of single lanes against formulas in wider types.

use half::f16;

use trine_compat_tests::ptx::{Argument, Device, Launch};

use super::{Numbers, module};

/// Integers at the ends of all types, and amounts of shifts around them.
const INTEGERS: [u64; 22] = [
    0,
    1,
    2,
    5,
    15,
    16,
    31,
    32,
    33,
    63,
    64,
    255,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x0123_4567_89ab_cdef,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
];

/// Numbers in single precision that hurt: zeros, ends of the ranges of both precisions and of integers, ties, infinities, NaN.
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

/// Executes `opcode` on many triples, one to a thread, and compares with `expected`, which gets whole registers.
fn check(opcode: &str, count: usize, pool: &[u64], expected: impl Fn(u64, u64, u64) -> u64) {
    let operands = ["%rd11", "%rd12", "%rd13"][..count].join(", ");
    compare(
        opcode,
        &format!("{opcode} %rd20, {operands};"),
        pool,
        expected,
    );
}

fn compare(name: &str, code: &str, pool: &[u64], expected: impl Fn(u64, u64, u64) -> u64) {
    let module = module(
        &["u64", "u64"],
        0,
        &format!(
            "ld.param.u64 %rd1, [a0];\nld.param.u64 %rd2, [a1];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\n\
             mad.lo.s32 %r1, %r2, 512, %r1;\nmad.wide.u32 %rd3, %r1, 24, %rd1;\nmad.wide.u32 %rd4, %r1, 8, %rd2;\n\
             ld.global.u64 %rd11, [%rd3];\nld.global.u64 %rd12, [%rd3+8];\nld.global.u64 %rd13, [%rd3+16];\n\
             {code}\nst.global.u64 [%rd4], %rd20;\nret;"
        ),
    );
    let mut numbers = Numbers(7);
    let mut values = Vec::new();
    for at in 0..3 * 1024 {
        // All pairs of the pool come first; then numbers at random among those of the pool.
        let pick = match at % 3 {
            0 => at / 3 % pool.len(),
            1 => at / 3 / pool.len() % pool.len(),
            _ => numbers.next() as usize % pool.len(),
        };
        let random = at > 3 * 700 && numbers.next().is_multiple_of(2);
        values.push(if random { numbers.next() } else { pool[pick] });
    }
    let mut device = Device::new();
    let input = device.constant(values.iter().flat_map(|v| v.to_le_bytes()).collect());
    let output = device.empty(8 * 1024);
    let launch = Launch {
        blocks: [2, 1, 1],
        threads: [512, 1, 1],
        arguments: &[Argument::Buffer(input), Argument::Buffer(output)],
        ..Launch::default()
    };
    device
        .launch(&module, "k", &launch)
        .unwrap_or_else(|e| panic!("{e}"));
    let results = device.bytes(output).as_chunks::<8>().0;
    for (operands, result) in values.as_chunks::<3>().0.iter().zip(results) {
        let [a, b, c] = *operands;
        let (found, expected) = (u64::from_le_bytes(*result), expected(a, b, c));
        assert_eq!(
            found, expected,
            "{name} of {a:#x}, {b:#x}, {c:#x}: {found:#x} is not {expected:#x}"
        );
    }
}

/// A value of `bits` bits with or without sign.
fn wide(x: u64, bits: u32, signed: bool) -> i128 {
    let low = i128::from(x) & ((1 << bits) - 1);
    if signed && low >> (bits - 1) == 1 {
        low - (1 << bits)
    } else {
        low
    }
}

/// The low bits of a result.
fn cut(x: i128, bits: u32) -> u64 {
    (x & ((1 << bits) - 1)) as u64
}

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
        check(&op("mul.lo"), 2, &INTEGERS, |a, b, _| {
            cut(of(a).wrapping_mul(of(b)), bits)
        });
        if bits < 64 {
            check(&op("mul.wide"), 2, &INTEGERS, |a, b, _| {
                cut(of(a) * of(b), 2 * bits)
            });
        }
        if bits > 16 {
            check(&op("mad.lo"), 3, &INTEGERS, |a, b, c| {
                cut(of(a).wrapping_mul(of(b)).wrapping_add(of(c)), bits)
            });
        }
        if bits == 32 {
            check(&op("mul.hi"), 2, &INTEGERS, |a, b, _| {
                cut((of(a) * of(b)) >> 32, 32)
            });
            check(&op("mad.wide"), 3, &INTEGERS, |a, b, c| {
                cut(of(a) * of(b) + wide(c, 64, signed), 64)
            });
            check(&op("div"), 2, &INTEGERS, |a, b, _| {
                if of(b) == 0 {
                    0xffff_ffff
                } else {
                    cut(of(a) / of(b), 32)
                }
            });
            check(&op("rem"), 2, &INTEGERS, |a, b, _| {
                if of(b) == 0 {
                    cut(of(a), 32)
                } else {
                    cut(of(a) % of(b), 32)
                }
            });
        }
        if bits == 32 || ty == "s64" {
            check(&op("min"), 2, &INTEGERS, |a, b, _| {
                cut(of(a).min(of(b)), bits)
            });
            check(&op("max"), 2, &INTEGERS, |a, b, _| {
                cut(of(a).max(of(b)), bits)
            });
        }
        if signed && bits > 16 {
            check(&op("neg"), 1, &INTEGERS, |a, _, _| cut(-of(a), bits));
        }
    }
    check("div.u64", 2, &INTEGERS, |a, b, _| {
        if b == 0 { u64::MAX } else { a / b }
    });
    check(
        "rem.u64",
        2,
        &INTEGERS,
        |a, b, _| if b == 0 { a } else { a % b },
    );
    check("abs.s32", 1, &INTEGERS, |a, _, _| {
        cut(wide(a, 32, true).abs(), 32)
    });
    for (op, a_signed) in [("dp4a.s32.s32", true), ("dp4a.u32.s32", false)] {
        check(op, 3, &INTEGERS, |a, b, c| {
            let sum: i128 = (0..4)
                .map(|i| wide(a >> (8 * i), 8, a_signed) * wide(b >> (8 * i), 8, true))
                .sum();
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
        check(&format!("shl.b{bits}"), 2, &INTEGERS, |a, b, _| {
            cut(i128::from(mask(a)) << amount(b), bits)
        });
        for ty in ["u", "b"] {
            check(&format!("shr.{ty}{bits}"), 2, &INTEGERS, |a, b, _| {
                cut(i128::from(mask(a)) >> amount(b), bits)
            });
        }
        check(&format!("shr.s{bits}"), 2, &INTEGERS, |a, b, _| {
            cut(wide(a, bits, true) >> amount(b), bits)
        });
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
    check("popc.b32", 1, &INTEGERS, |a, _, _| {
        (0..32).map(|i| a >> i & 1).sum()
    });
    check("clz.b32", 1, &INTEGERS, |a, _, _| {
        (0..32).take_while(|i| a >> (31 - i) & 1 == 0).count() as u64
    });
    for table in [0x00, 0xea, 0x96, 0xca, 0x40, 0xff] {
        compare(
            "lop3",
            &format!("lop3.b32 %rd20, %rd11, %rd12, %rd13, {table};"),
            &INTEGERS,
            |a, b, c| {
                let bit = |i: u64| (a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1;
                (0..32).map(|i| (table >> bit(i) & 1) << i).sum()
            },
        );
    }
    check("prmt.b32", 3, &INTEGERS, |a, b, c| {
        let byte = |n: u64| {
            if n < 4 {
                a >> (8 * n) & 255
            } else {
                b >> (8 * (n - 4)) & 255
            }
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
        u64::from(if n == 0 {
            b as u32
        } else {
            (b as u32) << n | (a as u32) >> (32 - n)
        })
    });
    check("shf.r.wrap.b32", 3, &INTEGERS, |a, b, c| {
        let n = c as u32 & 31;
        u64::from(if n == 0 {
            a as u32
        } else {
            (a as u32) >> n | (b as u32) << (32 - n)
        })
    });
    check("bfe.u32", 3, &INTEGERS, |a, b, c| {
        let (at, length) = (b & 255, c & 255);
        (at..at + length)
            .filter(|&i| i < 32 && a >> i & 1 == 1)
            .map(|i| 1 << (i - at))
            .sum()
    });
    compare(
        "bfi",
        "bfi.b32 %rd20, %rd11, %rd12, 5, 9;",
        &INTEGERS,
        |a, b, _| b & 0xffff_ffff & !(511 << 5) | (a & 511) << 5,
    );
    compare(
        "join",
        "mov.b64 %rd20, {%rd12, %rd11};",
        &INTEGERS,
        |a, b, _| a << 32 | b & 0xffff_ffff,
    );
    compare(
        "part",
        "mov.b64 {_, %rd20}, %rd11;",
        &INTEGERS,
        |a, _, _| a >> 32,
    );
    compare(
        "halves",
        "mov.b32 {%rd14, %rd15}, %rd11;\nmov.b32 %rd20, {%rd15, %rd14};",
        &INTEGERS,
        |a, _, _| u64::from((a as u32).rotate_left(16)),
    );
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
                check(&format!("setp.{name}.{ty}"), 2, &INTEGERS, |a, b, _| {
                    holds(of(a), of(b)).into()
                });
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
    compare("and.pred", &of_two("and.pred"), &INTEGERS, |a, b, _| {
        sign(a) & sign(b)
    });
    compare("or.pred", &of_two("or.pred"), &INTEGERS, |a, b, _| {
        sign(a) | sign(b)
    });
    compare("xor.pred", &of_two("xor.pred"), &INTEGERS, |a, b, _| {
        sign(a) ^ sign(b)
    });
    compare(
        "not.pred",
        "setp.lt.s64 %p1, %rd11, 0;\nnot.pred %p3, %p1;\nselp.u64 %rd20, 1, 0, %p3;",
        &INTEGERS,
        |a, _, _| 1 - sign(a),
    );
}

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
    if x.is_nan() {
        0x7fff_ffff
    } else {
        (x as f32).to_bits().into()
    }
}

#[test]
fn single_precision() {
    let pool = singles();
    let wide = |x| f64::from(single(x));
    // Sums and products of two, quotients and roots, rounded from double precision are those of single precision.
    for rn in ["", ".rn"] {
        check(&format!("add{rn}.f32"), 2, &pool, |a, b, _| {
            rounded(wide(a) + wide(b))
        });
        check(&format!("sub{rn}.f32"), 2, &pool, |a, b, _| {
            rounded(wide(a) - wide(b))
        });
        check(&format!("mul{rn}.f32"), 2, &pool, |a, b, _| {
            rounded(wide(a) * wide(b))
        });
    }
    check("div.rn.f32", 2, &pool, |a, b, _| rounded(wide(a) / wide(b)));
    check("sqrt.rn.f32", 1, &pool, |a, _, _| rounded(wide(a).sqrt()));
    check("fma.rn.f32", 3, &pool, |a, b, c| {
        let x = single(a).mul_add(single(b), single(c));
        if x.is_nan() {
            0x7fff_ffff
        } else {
            x.to_bits().into()
        }
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
        check(&format!("setp.{name}.f32"), 2, &pool, |a, b, _| {
            holds(single(a), single(b)).into()
        });
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
    all.into_iter()
        .map(|(name, set)| (name, move |a: T, b: T| set.contains(&a.partial_cmp(&b))))
        .collect()
}

#[test]
fn double_precision() {
    let mut pool: Vec<u64> = SINGLES.iter().map(|&x| f64::from(x).to_bits()).collect();
    pool.extend(
        [
            5e-324,
            f64::MAX,
            f64::MIN_POSITIVE,
            1.0 + f64::EPSILON,
            1e300,
        ]
        .map(f64::to_bits),
    );
    let of = f64::from_bits;
    // Results that are NaN have no bits to compare.
    let same = |op: &str, count: usize, f: fn(f64, f64, f64) -> f64| {
        let operands = ["%rd11", "%rd12", "%rd13"][..count].join(", ");
        let code = format!(
            "{op} %rd20, {operands};\nsetp.nan.f64 %p1, %rd20, %rd20;\nselp.b64 %rd20, 7, %rd20, %p1;"
        );
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
    same("neg.f64", 1, |a, _, _| -a);
    same("abs.f64", 1, |a, _, _| a.abs());
    for (name, holds) in relations::<f64>() {
        check(&format!("setp.{name}.f64"), 2, &pool, |a, b, _| {
            holds(of(a), of(b)).into()
        });
    }
}

#[test]
fn half_precision() {
    let mut pool: Vec<u64> = [
        0x3c00_0000u64,
        0x8000_0001,
        0x7bff_fbff,
        0x7c00_fc00,
        0x3555_6408,
        0x2c00_d480,
        0x0400_03ff,
        0x7e00_3800,
    ]
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
        check(&format!("add{rn}.f16x2"), 2, &pool, |a, b, _| {
            result(&|h| part(a, h) + part(b, h))
        });
        check(&format!("sub{rn}.f16x2"), 2, &pool, |a, b, _| {
            result(&|h| part(a, h) - part(b, h))
        });
        check(&format!("mul{rn}.f16x2"), 2, &pool, |a, b, _| {
            result(&|h| part(a, h) * part(b, h))
        });
    }
    check("fma.rn.f16x2", 3, &pool, |a, b, c| {
        result(&|h| part(a, h) * part(b, h) + part(c, h))
    });
}

#[test]
fn conversions() {
    let pool = singles();
    let wide = |x| f64::from(single(x));
    let bounded = |x: f64| {
        if x.is_nan() {
            0
        } else {
            cut(x.clamp(-2_147_483_648.0, 2_147_483_647.0) as i128, 32)
        }
    };
    check("cvt.rni.s32.f32", 1, &pool, |a, _, _| {
        bounded(wide(a).round_ties_even())
    });
    check("cvt.rzi.s32.f32", 1, &pool, |a, _, _| {
        bounded(wide(a).trunc())
    });
    check("cvt.rmi.s32.f32", 1, &pool, |a, _, _| {
        bounded(wide(a).floor())
    });
    check("cvt.rni.f32.f32", 1, &pool, |a, _, _| {
        rounded(wide(a).round_ties_even())
    });
    check("cvt.f64.f32", 1, &pool, |a, _, _| wide(a).to_bits());
    check("cvt.rn.f16.f32", 1, &pool, |a, _, _| match single(a) {
        x if x.is_nan() => 0x7fff,
        x => f16::from_f32(x).to_bits().into(),
    });
    let halves: Vec<u64> = (0..1 << 16).step_by(61).collect();
    check("cvt.f32.f16", 1, &halves, |a, _, _| {
        rounded(f16::from_bits(a as u16).to_f64())
    });
    let doubles: Vec<u64> = SINGLES
        .iter()
        .map(|&x| (f64::from(x) * (1.0 + 3e-8)).to_bits())
        .collect();
    check("cvt.rn.f32.f64", 1, &doubles, |a, _, _| {
        rounded(f64::from_bits(a))
    });
    check("cvt.rn.f32.s32", 1, &INTEGERS, |a, _, _| {
        rounded(self::wide(a, 32, true) as f64)
    });
    check("cvt.rn.f32.u32", 1, &INTEGERS, |a, _, _| {
        rounded(self::wide(a, 32, false) as f64)
    });
    check("cvt.rn.f32.s64", 1, &INTEGERS, |a, _, _| {
        u64::from((self::wide(a, 64, true) as f32).to_bits())
    });
    check("cvt.rn.f64.s32", 1, &INTEGERS, |a, _, _| {
        (self::wide(a, 32, true) as f64).to_bits()
    });
    for (from, bits) in [8, 16, 32, 64]
        .into_iter()
        .flat_map(|bits| [('s', bits), ('u', bits)])
    {
        for (to, to_bits) in [8, 16, 32, 64]
            .into_iter()
            .flat_map(|bits| [('s', bits), ('u', bits)])
        {
            check(
                &format!("cvt.{to}{to_bits}.{from}{bits}"),
                1,
                &INTEGERS,
                |a, _, _| cut(self::wide(a, bits, from == 's'), to_bits),
            );
        }
    }
}
