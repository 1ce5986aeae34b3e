//! Row codecs against the definitions, byte for byte, on ordinary weights and on everything that is not.

use trine_formats::types::{REGISTRY, TypeId, TypeInfo};

use super::testing::{Random, isas};
use super::{compare_rows, decode_rows, encode_rows};

/// Types whose encoders have kernels, and search for nothing or only with importance.
const PLAIN: &[TypeId] =
    &[TypeId::F16, TypeId::Q4_0, TypeId::Q4_1, TypeId::Q5_0, TypeId::Q5_1, TypeId::Q8_0, TypeId::TQ1_0, TypeId::TQ2_0];

/// Types whose encoders search for scales and points, on the vectors of the instruction set.
const SEARCHED: &[TypeId] = &[
    TypeId::Q2_K,
    TypeId::Q3_K,
    TypeId::Q4_K,
    TypeId::Q5_K,
    TypeId::Q6_K,
    TypeId::IQ1_S,
    TypeId::IQ1_M,
    TypeId::IQ2_XXS,
    TypeId::IQ2_XS,
    TypeId::IQ2_S,
    TypeId::IQ3_XXS,
    TypeId::IQ3_S,
];

const SPECIAL: [f32; 14] = [
    f32::NAN,
    -f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    1e-40,
    -1e-44,
    0.0,
    -0.0,
    1e30,
    -1e-30,
    65520.0,
];

/// Rows of `n` weights: what models hold, and what they do not.
fn row(kind: usize, n: usize, random: &mut Random) -> Vec<f32> {
    let scale = [1.0, 0.02, 1e-6, 300.0][random.below(4)];
    let mut x: Vec<f32> = match kind {
        // weights, with outliers
        0 => (0..n).map(|_| random.float() * scale).collect(),
        // ternary, each 256 with its own scale
        1 => {
            let scales: Vec<f32> = (0..n.div_ceil(256)).map(|_| random.float().abs()).collect();
            let digit = |random: &mut Random| random.below(3) as f32 - 1.0;
            (0..n).map(|i| digit(random) * scales[i / 256]).collect()
        }
        // few values, many ties
        2 => (0..n).map(|_| (random.below(9) as f32 - 4.0) * scale).collect(),
        // one sign only
        3 => (0..n).map(|_| random.float().abs() * -scale).collect(),
        4 => (0..n).map(|_| random.float().abs() * scale + 0.5).collect(),
        // any bits
        5 => (0..n).map(|_| f32::from_bits(random.bits() as u32)).collect(),
        // magnitudes from end to end
        _ => (0..n).map(|_| random.float() * f32::from_bits((random.below(254) as u32) << 23)).collect(),
    };
    // runs of one value, and some that are not ordinary
    if random.below(3) == 0 {
        for group in x.chunks_mut(16) {
            if random.below(4) == 0 {
                let value = if random.below(2) == 0 { 0.0 } else { group[0] };
                group.fill(value);
            }
        }
    }
    if random.below(3) == 0 {
        for _ in 0..1 + random.below(4) {
            x[random.below(n)] = SPECIAL[random.below(SPECIAL.len())];
        }
    }
    x
}

fn importance(n: usize, random: &mut Random) -> Vec<f32> {
    let square = |v: f32| v * v;
    let mut w: Vec<f32> = (0..n).map(|_| square(random.float()) * 3.0).collect();
    match random.below(4) {
        0 => w[random.below(n)] = 0.0,
        1 => w[n / 2..].fill(0.0),
        2 => w[random.below(n)] = SPECIAL[random.below(SPECIAL.len())],
        _ => {}
    }
    w
}

fn lengths(info: &TypeInfo) -> Vec<usize> {
    let steps = [1, 2, 3, 4, 5, 7, 8, 9, 16, 17];
    steps.iter().map(|k| k * info.block).collect()
}

#[test]
fn plain_encoders_give_the_bytes_of_the_definitions() {
    compare_encoders(PLAIN);
}

#[test]
fn searching_encoders_give_the_bytes_of_the_definitions() {
    compare_encoders(SEARCHED);
}

fn compare_encoders(types: &[TypeId]) {
    for &ty in types {
        let info = ty.info().unwrap();
        let definition = info.encode.unwrap();
        let mut random = Random(0xE5C0_DE00 + u64::from(ty.0));
        // The searches for points take a hundred times as long as the others.
        let cases = if info.name.starts_with("iq") { 140 } else { 1500 };
        for case in 0..cases {
            let all = lengths(info);
            let n = all[case % all.len()];
            let x = row(case % 7, n, &mut random);
            let weights = importance(n, &mut random);
            for importance in [None, Some(&weights[..])] {
                let bytes = n / info.block * info.bytes;
                let mut expected = vec![0x55; bytes];
                definition(&x, importance, &mut expected);
                for isa in isas() {
                    let mut got = vec![0xAA; bytes];
                    encode_rows(ty, isa).unwrap()(&x, importance, &mut got);
                    let at = got.iter().zip(&expected).position(|(a, b)| a != b);
                    assert_eq!(
                        at.map(|at| (at / info.bytes, at % info.bytes, got[at], expected[at])),
                        None,
                        "{ty} {isa} case {case}, {n} weights, importance {}: block, byte, is, should be",
                        importance.is_some()
                    );
                }
            }
        }
    }
}

#[test]
fn decoders_give_the_bits_of_the_definitions() {
    for info in REGISTRY {
        let Some(definition) = info.decode else {
            continue;
        };
        let mut random = Random(0xDEC0_DE00 + u64::from(info.id.0));
        for case in 0..300 {
            let all = lengths(info);
            let n = all[case % all.len()];
            let bytes = random.bytes(info.row_bytes(n as u64).unwrap() as usize);
            let mut expected = vec![0.0; n];
            definition(&bytes, &mut expected);
            for isa in isas() {
                let mut got = vec![f32::from_bits(0x7FC1_2345); n];
                decode_rows(info.id, isa).unwrap()(&bytes, &mut got);
                for (i, (a, b)) in got.iter().zip(&expected).enumerate() {
                    let (a, b) = (a.to_bits(), b.to_bits());
                    assert_eq!(a, b, "{} {isa} case {case}: weight {i}, {a:#x} is not {b:#x}", info.name);
                }
            }
        }
    }
}

#[test]
fn all_halves_decode_to_the_bits_of_the_definitions() {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for ty in [TypeId::F16, TypeId::BF16] {
        let mut expected = vec![0.0; 1 << 16];
        ty.info().unwrap().decode.unwrap()(&bytes, &mut expected);
        for isa in isas() {
            let mut got = vec![0.0; 1 << 16];
            decode_rows(ty, isa).unwrap()(&bytes, &mut got);
            assert!(got.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()), "{ty} {isa}");
        }
    }
}

#[test]
fn rows_are_equal_or_not() {
    let mut random = Random(0xC0DE);
    for n in [1, 5, 16, 31, 256, 300] {
        let a: Vec<f32> = (0..n).map(|_| random.below(3) as f32 - 1.0).collect();
        let nonzero = a.iter().filter(|v| **v != 0.0).count();
        for isa in isas() {
            let compare = compare_rows(isa);
            let mut b = a.clone();
            b.iter_mut().filter(|v| **v == 0.0).for_each(|v| *v = -0.0);
            assert_eq!(compare(&a, &b), Some(nonzero), "{isa} {n}");
            for at in 0..n {
                let kept = b[at];
                for other in [kept + 1e-6, f32::NAN] {
                    b[at] = other;
                    assert_eq!(compare(&a, &b), None, "{isa} {n} {at}");
                    assert_eq!(compare(&b, &b), (!other.is_nan()).then_some(b.iter().filter(|v| **v != 0.0).count()));
                }
                b[at] = kept;
            }
        }
    }
}
