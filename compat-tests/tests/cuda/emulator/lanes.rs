//! A kernel that executes one instruction in many lanes, and the numbers that instructions are tried on.

use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::{Argument, Device, Launch};

use super::module;

/// Integers at the ends of all types, and amounts of shifts around them.
pub const INTEGERS: [u64; 22] = [
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

/// Executes `opcode` on many triples, one to a thread, and compares with `expected`, which gets whole registers.
pub fn check(opcode: &str, count: usize, pool: &[u64], expected: impl Fn(u64, u64, u64) -> u64) {
    let operands = ["%rd11", "%rd12", "%rd13"][..count].join(", ");
    compare(opcode, &format!("{opcode} %rd20, {operands};"), pool, expected);
}

/// The same for code that takes `%rd11`, `%rd12` and `%rd13` and gives `%rd20`.
pub fn compare(name: &str, code: &str, pool: &[u64], expected: impl Fn(u64, u64, u64) -> u64) {
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
    let mut rng = Rng::new(7);
    let mut values = Vec::new();
    for at in 0..3 * 1024 {
        // All pairs of the pool come first; then numbers at random among those of the pool.
        let pick = match at % 3 {
            0 => at / 3 % pool.len(),
            1 => at / 3 / pool.len() % pool.len(),
            _ => rng.below(pool.len()),
        };
        let random = at > 3 * 700 && rng.below(2) == 0;
        values.push(if random { rng.bits() } else { pool[pick] });
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
    device.launch(&module, "k", &launch).unwrap_or_else(|e| panic!("{e}"));
    let results = device.bytes(output).as_chunks::<8>().0;
    for (operands, result) in values.as_chunks::<3>().0.iter().zip(results) {
        let [a, b, c] = *operands;
        let (found, expected) = (u64::from_le_bytes(*result), expected(a, b, c));
        assert_eq!(found, expected, "{name} of {a:#x}, {b:#x}, {c:#x}: {found:#x} is not {expected:#x}");
    }
}

/// A value of `bits` bits with or without sign.
pub fn wide(x: u64, bits: u32, signed: bool) -> i128 {
    let low = i128::from(x) & ((1 << bits) - 1);
    if signed && low >> (bits - 1) == 1 { low - (1 << bits) } else { low }
}

/// The low bits of a result.
pub fn cut(x: i128, bits: u32) -> u64 {
    (x & ((1 << bits) - 1)) as u64
}
