//! The sums against plain loops, on every half float and on ragged shapes.

#[cfg(panic = "unwind")]
use std::panic::{AssertUnwindSafe, catch_unwind};

use trine_formats::types::num::f16_to_f32;

use super::*;
use crate::shared::halves::field;
use crate::testing::{Random, isas, same};

/// Forms that vectors sum.
const FORMS: [F16Encoding; 2] = [F16Encoding::Normalized, F16Encoding::Plain];

/// Any half float that is a number.
fn number(random: &mut Random) -> u16 {
    loop {
        let half = random.bits() as u16;
        if !is_special(half) {
            return half;
        }
    }
}

/// Half floats of a form: as they are, and as they are stored.
fn words_of(form: F16Encoding, random: &mut Random, lines: usize) -> (Vec<Line>, Vec<Line>) {
    let plain = match form {
        F16Encoding::Normalized => words_of_numbers(random, lines, |half| half & 0xCFFF),
        _ => words_of_numbers(random, lines, |half| half),
    };
    let mut stored = plain.clone();
    assert!(form_of_lines(&plain) <= form);
    change_form(&mut stored, F16Encoding::Plain, form);
    (plain, stored)
}

fn words(random: &mut Random, lines: usize) -> Vec<Line> {
    words_of_numbers(random, lines, |half| half)
}

fn words_of_numbers(random: &mut Random, lines: usize, of: fn(u16) -> u16) -> Vec<Line> {
    let mut word = || (0..STEPS).fold(0, |w, _| w << 16 | u64::from(of(number(random))));
    (0..lines).map(|_| Line(std::array::from_fn(|_| word()))).collect()
}

fn values(random: &mut Random, n: usize) -> Vec<f64> {
    let value = |r: &mut Random| f64::from(f16_to_f32(number(r))) * SCALE;
    (0..n).map(|_| value(random)).collect()
}

#[test]
fn dots_are_the_plain_sums_for_any_shape() {
    let mut random = Random(0xD075);
    for rows in (1..=12).chain([13, 20]) {
        for (quads, form) in [1, 2, 5, 16, 33, 70].into_iter().zip(FORMS.into_iter().cycle()) {
            let (plain, words) = words_of(form, &mut random, quads * BLOCK);
            let coefs = values(&mut random, rows * STEPS * quads);
            let coefs = Coefficients { data: &coefs, stride: STEPS * quads, rows };
            let mut expected = vec![0f32; rows * LANES];
            dots_special(&plain, quads, coefs, &mut expected, LANES);
            for isa in isas() {
                let mut out = vec![f32::NAN; rows * LANES];
                dots(isa, (&words, form), quads, coefs, &mut out, LANES);
                for (a, b) in out.iter().zip(&expected) {
                    assert!(same(*a, *b), "{isa} {rows} rows, {quads} quads: {a:e}, not {b:e}");
                }
            }
        }
    }
}

#[test]
fn sums_go_on_from_where_they_stand_in_any_order_of_blocks() {
    let mut random = Random(0xACC0);
    let few = [(1, 0..16usize, 8), (3, 3..13, 8), (5, 7..24, 32), (7, 1..2, 1)];
    // more than the longest strip, and not from its start
    let many = [(6, 2..71usize, 70), (11, 0..72, 32), (13, 5..40, usize::MAX)];
    for (lines, cases) in
        (1..=9).map(|n| (n, &few[..])).chain([(1, &many[..]), (6, &many), (7, &many), (9, &many), (12, &many[2..])])
    {
        for (rows, quads, at_once) in cases.iter().cloned() {
            let (tiles, [from, to]) = (quads.end.div_ceil(8), [quads.start, quads.end].map(|q| STEPS * q));
            let all = tiles * 8 * STEPS;
            // each tile has its form
            let forms: Vec<F16Encoding> = (0..tiles).map(|_| FORMS[random.below(2)]).collect();
            let form = |step: usize| forms[step / (8 * STEPS)];
            let mut words = Vec::new();
            for form in &forms {
                words.extend(words_of(*form, &mut random, 8 * lines).1);
            }
            // Rows see more and more at the end, and less and less at the start.
            let mut bounds = |range: Range<usize>| {
                let mut steps: Vec<usize> = (0..rows).map(|_| range.start + random.below(range.len() + 1)).collect();
                steps.sort_unstable();
                steps
            };
            let middle = from + 6.min((to - from) / 2);
            let (mut starts, mut ends) = (bounds(from..middle), bounds(middle..to));
            (starts[0], ends[rows - 1]) = (from, to);
            let steps = |row: usize| starts[row]..ends[row];
            let mut plain_coefs = values(&mut random, rows * all);
            for (i, c) in plain_coefs.iter_mut().enumerate() {
                if !steps(i / all).contains(&(i % all)) {
                    *c = 0.0;
                }
            }
            let coefs: Vec<f64> = (0..)
                .zip(&plain_coefs)
                .map(|(i, c)| match form(i % all) {
                    F16Encoding::Normalized => *c,
                    _ => c * f64::from(form::PLAIN),
                })
                .collect();
            let whole = Tiles { words: &words, lines, wanted: (0, lines), quads: 8, at_once };
            let mut start = values(&mut random, rows * lines * LINE);
            // no negative zeros
            start.iter_mut().for_each(|sum| *sum = *sum / SCALE + 0.0);
            let coefs = Coefficients { data: &coefs, stride: all, rows };
            for first in (0..lines).step_by(BLOCK) {
                let tiles = Tiles { wanted: (first, lines), ..whole };
                let lanes = (lines - first) * LINE;
                let mut expected = start.clone();
                for (r, acc) in expected.chunks_mut(lanes).take(rows).enumerate() {
                    accumulate_special(tiles, form, steps(r), &plain_coefs[r * all..], acc);
                }
                for isa in isas() {
                    let mut acc = start.clone();
                    accumulate(isa, tiles, &steps, coefs, &mut acc, lanes);
                    assert!(
                        acc.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()),
                        "{isa} {rows} rows, lines {first}..{lines}, quads {quads:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_half_float_is_widened_exactly() {
    let numbers: Vec<u16> = (0..=u16::MAX).filter(|h| !is_special(*h)).collect();
    let small = |half: &&u16| f16_to_f32(**half).abs() < 128.0;
    let small: Vec<u16> = numbers.iter().filter(small).copied().collect();
    let one = [SCALE, 0.0, 0.0, 0.0];
    for field in 0..STEPS {
        let mut coefs = [0.0; STEPS];
        coefs[field] = SCALE;
        let coefs = Coefficients { data: if field == 0 { &one } else { &coefs }, stride: STEPS, rows: 1 };
        let chunks = numbers.chunks(LANES).map(|chunk| (F16Encoding::Plain, chunk));
        let normalized = small.chunks(LANES).map(|chunk| (F16Encoding::Normalized, chunk));
        for (form, numbers) in chunks.chain(normalized) {
            let mut words = [Line::default(); BLOCK];
            for (lane, &half) in numbers.iter().enumerate() {
                words[lane / LINE].0[lane % LINE] = u64::from(half) << (16 * field);
            }
            change_form(&mut words, F16Encoding::Plain, form);
            for isa in isas() {
                let mut out = [0f32; LANES];
                dots(isa, (&words, form), 1, coefs, &mut out, LANES);
                for (&half, out) in numbers.iter().zip(out) {
                    // A sum that starts at +0 never is -0.
                    let expected = f16_to_f32(half) + 0.0;
                    assert_eq!(out.to_bits(), expected.to_bits(), "{isa} {half:04x}");
                }
            }
        }
    }
}

#[test]
fn conversions_are_those_of_the_definition() {
    let mut random = Random(0xC0F5);
    let mut x: Vec<f32> = (0..4000).map(|_| f32::from_bits(random.bits() as u32)).collect();
    x.extend((0..4003).map(|_| random.float() * 1e-4));
    x.extend([f32::NAN, f32::INFINITY, -0.0, 65519.9, 65520.0, -65520.0, 1e-45, 6e-8]);
    for isa in isas() {
        for at in 0..40 {
            let x = &x[at..x.len() - at * 7];
            let mut coefs = vec![0.0; x.len()];
            coefficients(isa, x, &mut coefs);
            for (&x, coef) in x.iter().zip(coefs) {
                let expected = f16_to_f32(f32_to_f16(x));
                assert!(same((coef / SCALE) as f32, expected), "{isa} {x:e}");
            }
        }
    }
}

#[test]
fn values_are_stored_where_the_sums_find_them() {
    let mut random = Random(0x5708);
    for n in [1usize, 4, 6, 8, 16, 20, 33, 48, 64, 72, 96, 100, 128] {
        for isa in isas() {
            let mut block = vec![Line([!0; LINE]); n.div_ceil(STEPS) * BLOCK];
            let mut tile = vec![Line([!0; LINE]); n.div_ceil(LINE) * 8];
            for at in 0..LANES {
                let mut x: Vec<f32> = (0..n).map(|_| random.float() * 1e-3).collect();
                x[random.below(n)] *= 1e-4;
                let greatest = [1.0, 63.49, 65519.0, f32::NAN, f32::INFINITY, -1e9];
                x[random.below(n)] = greatest[random.below(6)];
                let form = F16Encoding::of(isa, &x);
                put_lane(isa, &x, &mut block, at, form);
                put_step(isa, &x, &mut tile, 8, at, form);
                let tiles = Tiles {
                    words: &tile,
                    lines: n.div_ceil(LINE),
                    wanted: (0, n.div_ceil(LINE)),
                    quads: 8,
                    at_once: 8,
                };
                for (i, &x) in x.iter().enumerate() {
                    let expected = f16_to_f32(f32_to_f16(x));
                    let line = block[i / STEPS * BLOCK + at / LINE];
                    let key = field(form, line.0[at % LINE], i) as f32;
                    let value = tiles.value(form, i, at) as f32;
                    assert!(
                        same(key, expected) && same(value, expected),
                        "{isa} {n}: {key:e}, {value:e}, not {expected:e}"
                    );
                }
                let later = at..at.next_multiple_of(STEPS);
                assert!(later.skip(1).all(|step| tiles.value(form, 0, step) == 0.0), "cleared");
            }
        }
    }
}

/// Sizes that wrap around must not pass for small ones.
#[cfg(panic = "unwind")]
#[test]
fn rows_beyond_all_memory_are_refused() {
    let words = [Line::default(); BLOCK];
    let refused = |coef_stride: usize, out_stride: usize| {
        let coefs = Coefficients { data: &[0.0; STEPS], stride: coef_stride, rows: 3 };
        let mut out = [0f32; LANES];
        let run =
            AssertUnwindSafe(|| dots(Isa::scalar(), (&words, F16Encoding::Plain), 1, coefs, &mut out, out_stride));
        assert!(catch_unwind(run).is_err(), "{coef_stride} {out_stride}");
    };
    // twice the stride is 0 where it wraps
    let half = 1 << (usize::BITS - 1);
    refused(half, 0);
    refused(0, half);
    let tiles = Tiles { words: &words, lines: half, wanted: (0, BLOCK), quads: 2, at_once: 1 };
    let coefs = Coefficients { data: &[0.0; STEPS], stride: 0, rows: 1 };
    let mut acc = [0f64; LANES];
    let run = AssertUnwindSafe(|| accumulate(Isa::scalar(), tiles, &|_| 0..1, coefs, &mut acc, 0));
    assert!(catch_unwind(run).is_err());
}

/// Words and coefficients with infinities and NaN: the loops for them against the sums written out.
#[test]
fn special_sums_are_the_plain_ones_with_infinities_and_nan() {
    let mut random = Random(0x5BEC);
    let specials = [0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7C01, 0];
    let quads = 5;
    let steps = STEPS * quads;
    let (mut infinite, mut finite, mut nan) = (0, 0, 0);
    for _ in 0..40 {
        let mut words = words(&mut random, quads * BLOCK);
        let mut x: Vec<u16> = (0..steps).map(|_| number(&mut random)).collect();
        for _ in 0..random.below(6) {
            let line = random.below(words.len());
            let special = specials[random.below(specials.len())];
            let at = 16 * random.below(STEPS);
            let word = &mut words[line].0[random.below(LINE)];
            *word = *word & !(0xFFFF << at) | special << at;
        }
        if random.below(3) == 0 {
            x[random.below(steps)] = specials[random.below(specials.len())] as u16;
        }
        let data: Vec<f64> = x.iter().map(|&h| f64::from(f16_to_f32(h)) * SCALE).collect();
        let coefs = Coefficients { data: &data, stride: 0, rows: 1 };
        let mut out = [0f32; LANES];
        dots_special(&words, quads, coefs, &mut out, LANES);
        for (lane, &got) in out.iter().enumerate() {
            let mut sum = 0f64;
            for (step, &x) in x.iter().enumerate() {
                let line = words[step / STEPS * BLOCK + lane / LINE];
                let half = (line.0[lane % LINE] >> (16 * (step % STEPS))) as u16;
                sum += f64::from(f16_to_f32(half) * f16_to_f32(x));
            }
            assert!(same(got, sum as f32), "lane {lane}: {got:e}, not {sum:e}");
            match got {
                y if y.is_nan() => nan += 1,
                y if y.is_finite() => finite += 1,
                _ => infinite += 1,
            }
        }
    }
    let seen = [infinite, finite, nan];
    assert!(seen.iter().all(|&count| count > 10), "{seen:?}");
}
