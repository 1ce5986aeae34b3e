//! Products of half floats as whole numbers, where exactness is at its limits.

use trine_formats::types::TypeId;
use trine_formats::types::num::f32_to_f16;

use super::tests::{arranged, compare};
use super::{Packing, layouts};
use crate::shared::packed::Call;
use crate::testing::{Random, power, same, skipped};
use crate::{Isa, Level};

/// Half floats as bytes.
fn bytes(halves: impl IntoIterator<Item = u16>) -> Vec<u8> {
    halves.into_iter().flat_map(u16::to_le_bytes).collect()
}

/// Rows of whole numbers of `bits` bits with a sign, times a power of two; half floats hold eleven bits of each.
fn whole(random: &mut Random, count: usize, bits: u32, place: i32) -> Vec<u16> {
    let mut one = || {
        let size = random.below(bits as usize + 1) as u32;
        let magnitude = random.bits() & ((1 << size) - 1);
        let kept = magnitude & (!0 << size.saturating_sub(11));
        let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
        f32_to_f16((sign * kept as f64 * power(place)) as f32)
    };
    let mut row: Vec<u16> = (0..count).map(|_| one()).collect();
    // The lowest bit and the highest are there.
    let end = |value: f64| f32_to_f16((value * power(place)) as f32);
    row[0] = end(1.0);
    row[count / 2] = end(power(bits as i32 - 1));
    row
}

/// Checks F16 products of `rows` rows and `tokens` tokens by `dot_ref`.
fn check(w: &[u8], acts: &[u8], n: usize, tokens: usize, what: &str) {
    let info = TypeId::F16.info().expect("registered");
    compare(info, w, acts, n, tokens, what);
}

#[test]
fn numbers_of_any_count_of_limbs_give_the_bits_of_dot_ref() {
    let mut random = Random(0x11AB5);
    for n in [1usize, 5, 63, 64, 100, 512, 513, 1100] {
        for bits in [1, 8, 15, 16, 17, 23, 24, 25, 32, 39] {
            let (rows, tokens) = (1 + random.below(40), 8 + random.below(27));
            let place = |random: &mut Random, bits: u32| random.below(41 - bits as usize) as i32 - 24;
            let mut w = Vec::new();
            for _ in 0..rows {
                let place = place(&mut random, bits);
                w.extend(bytes(whole(&mut random, n, bits, place)));
            }
            let mut acts = Vec::new();
            for t in 0..tokens {
                // tokens of one to five limbs beside each other, or all of one number
                let bits = match tokens % 2 {
                    0 => [7, 15, 23, 31, 39][random.below(5)],
                    _ => bits.max(1 + t as u32 % 8),
                };
                let place = place(&mut random, bits);
                acts.extend(bytes(whole(&mut random, n, bits, place)));
            }
            check(&w, &acts, n, tokens, "whole numbers");
        }
    }
}

#[test]
fn sums_that_cancel_or_stay_zero_have_the_zero_of_dot_ref() {
    let mut random = Random(0xCA9CE1);
    // of two limbs and of three, and too many
    for (n, most) in [(2usize, 15), (64, 23), (520, 23), (520, 24), (1030, 23), (1030, 15)] {
        let (rows, tokens) = (33, 19);
        let mut w = Vec::new();
        for r in 0..rows {
            // the second half of a row takes back the first
            let half = whole(&mut random, n / 2, [3, 15, most][r % 3], -24);
            let negative = half.iter().map(|h| h ^ 0x8000);
            let row: Vec<u16> = half.iter().copied().chain(negative).collect();
            w.extend(bytes(if r % 5 == 4 { vec![0x8000; n] } else { row }));
        }
        let mut acts = Vec::new();
        for t in 0..tokens {
            let mut half = whole(&mut random, n / 2, [5, 24, 31][t % 3], -24);
            if t % 7 == 6 {
                half.fill([0, 0x8000][t % 2]);
            }
            acts.extend(bytes(half.iter().chain(&half).copied()));
        }
        check(&w, &acts, n, tokens, "cancelling sums");
    }
}

/// One unit, then products that climb to somewhere around 2^53 units, then the same ones taken away: what is left is
/// the unit, or what the sum in order has made of it.
#[test]
fn sums_around_the_last_exact_integer_give_the_bits_of_dot_ref() {
    let (rows, tokens) = (40, 23);
    for n in [64usize, 512, 516, 1024, 2048] {
        let up = n / 2 - 1;
        let base = (power(53) / up as f64).sqrt();
        let row = |value: f64| {
            let value = f32_to_f16((value * power(-24)) as f32);
            let half = |first: u16, sign: u16| std::iter::once(first).chain(std::iter::repeat_n(value ^ sign, up));
            bytes(half(1, 0).chain(half(0, 0x8000)))
        };
        let plain = |value: f64| {
            let value = f32_to_f16((value * power(-24)) as f32);
            let half = |first: u16| std::iter::once(first).chain(std::iter::repeat_n(value, up));
            bytes(half(1).chain(half(0)))
        };
        // from a quarter of it to four times as much
        let part = |i: usize, count: usize| (3 * i + count) as f64 / (2 * count) as f64;
        let w = (0..rows).flat_map(|r| row(base / 8.0 * part(r, rows))).collect::<Vec<_>>();
        let acts = (0..tokens).flat_map(|t| plain(base * 8.0 * part(t, tokens)));
        check(&w, &acts.collect::<Vec<_>>(), n, tokens, "sums near 2^53");
    }
}

#[test]
fn the_largest_numbers_infinities_and_nan_give_the_bits_of_dot_ref() {
    let mut random = Random(0x65504);
    for case in 0..24 {
        let (n, rows, tokens) = ([40usize, 600][case % 2], 34, 18);
        let mut values = |count: usize, specials: &[u16]| -> Vec<u16> {
            let one = |_| match random.below(30) {
                0 => specials[random.below(specials.len())],
                _ => random.bits() as u16 & 0xBBFF,
            };
            (0..count).map(one).collect()
        };
        let w = values(rows * n, &[[0x7BFF, 0xFBFF, 1, 0x5400], [0, 0x8000, 1, 2]][case / 2 % 2]);
        let mut acts = Vec::new();
        for t in 0..tokens {
            acts.extend(values(
                n,
                match t % 6 {
                    0 => &[0x7C00],
                    1 => &[0x7E00, 0x7BFF],
                    2 => &[0x7BFF, 0xFBFF],
                    _ => &[0, 0x3C00],
                },
            ));
        }
        check(&bytes(w), &bytes(acts), n, tokens, "the largest");
    }
}

/// Sums in tiles against those in order by vectors, which the other tests compare with `dot_ref`: two million, or with
/// `TRINE_TESTS=long` a thousand million.
#[test]
fn millions_of_sums_in_tiles_are_those_in_order() {
    let (Some(amx), Some(vectors)) = (Isa::of(Level::Amx), Isa::of(Level::Avx512)) else {
        return skipped("tiles of the processor", &Level::Amx.missing().join(", "));
    };
    let long = std::env::var_os("TRINE_TESTS").is_some_and(|v| v == "long");
    let groups = if long { 135_000 } else { 300 };
    let pick = |isa| *layouts(TypeId::F16, isa).first().expect("packed half floats");
    let (tiles, ordered) = (pick(amx), pick(vectors));
    let mut random = Random(0xA11_5A3E);
    let (mut sums, mut special) = (0usize, 0usize);
    for n in [64usize, 576, 1536, 4096] {
        let tokens = 192 + n / 64;
        let mut acts = Vec::new();
        for t in 0..tokens {
            let outlier = [1.0, 10.0, 40.0, 0.01][t % 4];
            let mut one = || match random.below(100) {
                0 => outlier * random.normal(),
                _ => random.normal(),
            };
            acts.extend(bytes((0..n).map(|_| f32_to_f16(one()))));
        }
        let both = [tiles, ordered].map(|p| arranged(p, &acts, n, tokens));
        for group in 0..groups * 64 / n.min(1536) {
            // trained sizes, such with one large row, few bits, and all half floats
            let sigma = [0.02, 0.05, 0.2, 0.005, 1.0][group % 5];
            let kind = group / 5 % 5;
            let one = |i: usize, random: &mut Random| match kind {
                0 | 1 => f32_to_f16(sigma * random.normal()),
                2 => f32_to_f16((sigma * random.normal() * 65536.0).round() / 65536.0),
                3 => f32_to_f16(sigma * random.normal() * if i / n == 7 { 30.0 } else { 1.0 }),
                _ => random.bits() as u16 & 0xAFFF,
            };
            let w = bytes((0..32 * n).map(|i| one(i, &mut random)));
            let [a, b] = [(tiles, &both[0]), (ordered, &both[1])].map(|(p, acts)| product(p, &w, acts, n, tokens));
            for (i, (a, b)) in a.iter().zip(&b).enumerate() {
                assert!(same(*a, *b), "n {n}, group {group}, sum {i}: {a:e} is not {b:e}");
                special += usize::from(!a.is_finite() || *a == 0.0);
            }
            sums += a.len();
        }
    }
    assert!(special < sums / 2 && sums > groups * 7_000);
    eprintln!("{sums} sums compared");
}

fn product(p: Packing, w: &[u8], acts: &[u8], n: usize, tokens: usize) -> Vec<f32> {
    let mut group = vec![0; (p.group_bytes)(n)];
    assert!(p.pack(w, n, &mut group));
    let mut out = vec![0.0; tokens * p.rows];
    (p.multiply)(Call { isa: p.isa, group: &group, acts, n, tokens, ahead: 0, out: &mut out });
    out
}
