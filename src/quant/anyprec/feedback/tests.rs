//! Feedback at all widths against the definition, and what has to hold for any weights and inputs.

use super::descent::Descent;
use super::improve::values;
use super::refit::Refit;
use super::*;
use crate::kernels::Isa;
use crate::linalg::triangle;
use crate::quant::anyprec::cluster::{Clusterer, Method, Nesting};
use crate::quant::anyprec::opened::RowWeights;
use crate::quant::anyprec::work::{Clustered, Kept, Work};
use crate::quant::gptq::tests::{Generator, sums, weights};
use trine_formats::anyprec::words;
use trine_formats::types::num::{f16_to_f32, f32_to_f16};

const NESTING: Nesting = Nesting { seed_bits: 3, parent_bits: 6 };
const BITS: [u8; 4] = [3, 4, 5, 6];

/// Activations, `[tokens][columns]`, which share a part; those of column 5 are zeros.
fn inputs(tokens: usize, columns: usize) -> Vec<f64> {
    related(tokens, columns, 15)
}

/// The same, of whose parts of their own there are so many: the fewer, the more one column says of the others.
fn related(tokens: usize, columns: usize, own: u64) -> Vec<f64> {
    let mut g = Generator(1);
    let mut x = Vec::with_capacity(tokens * columns);
    for _ in 0..tokens {
        let common = g.below(9) - 4;
        for j in 0..columns as i64 {
            let v = common * (j % 7 - 3) + g.below(own) - own as i64 / 2;
            x.push(if j == 5 { 0.0 } else { v as f64 });
        }
    }
    x
}

fn metric(x: &[f64], columns: usize, isa: Isa) -> Metric {
    Metric::new(&sums(x, columns), columns, (x.len() / columns) as u64, isa)
}

/// Rows as clusters without feedback have them.
fn clustered(metric: &Metric, weights: &[f32], nesting: Nesting) -> Vec<Coded> {
    let mut clusterer = Clusterer::new(nesting, Method::Exact);
    let rows = weights.chunks(metric.importance().len()).map(|row| {
        let mut codes = vec![0; row.len()];
        clusterer.cluster(row, metric.importance(), &mut codes).unwrap();
        let halves = |lut: &Vec<f32>| lut.iter().map(|&c| f32_to_f16(c)).collect();
        Coded { codes, luts: clusterer.luts().iter().map(halves).collect(), ..Coded::default() }
    });
    rows.collect()
}

/// The weights of a row at a width, the narrowest of which is number 0.
fn decoded(row: &Coded, width: usize) -> Vec<f64> {
    let shift = row.luts.len() - 1 - width;
    let value = |&code: &u8| f64::from(f16_to_f32(row.luts[width][usize::from(code >> shift)]));
    row.codes.iter().map(value).collect()
}

/// The squared error at the outputs over all tokens.
fn cost(x: &[f64], w: &[f32], q: &[f64]) -> f64 {
    let off: Vec<f64> = w.iter().zip(q).map(|(&w, q)| q - f64::from(w)).collect();
    let outputs = x.chunks(w.len()).map(|x| x.iter().zip(&off).map(|(x, d)| x * d).sum::<f64>());
    outputs.map(|y| y * y).sum()
}

/// The definition, without blocks: the codes of a row, in the order of the factor.
fn by_definition(metric: &Metric, tables: &[Vec<f64>], row: &[f32]) -> Vec<u8> {
    let order = metric.factor.order();
    let widths = tables.len();
    let in_order: Vec<f64> = order.iter().map(|&j| row[j].into()).collect();
    let mut left = vec![in_order; widths];
    let codes = (0..order.len()).map(|i| {
        let cost = |code: usize| {
            let mut sum = 0.0;
            for (b, (left, table)) in left.iter().zip(tables).enumerate() {
                let off: f64 = left[i] - table[code >> (widths - 1 - b)];
                let share = (0..b).fold(1.0, |share, _| share * 3.0);
                sum += share * (off * off);
            }
            sum
        };
        let count = tables[widths - 1].len();
        let code = (1..count).fold(0, |best, c| if cost(c) < cost(best) { c } else { best });
        for (b, (left, table)) in left.iter_mut().zip(tables).enumerate() {
            let value = table[code >> (widths - 1 - b)];
            let error = (left[i] - value) / metric.factor.upper(i, i);
            for (j, w) in left.iter_mut().enumerate().skip(i + 1) {
                *w -= error * metric.factor.upper(i, j);
            }
        }
        code as u8
    });
    codes.collect()
}

#[test]
fn codes_are_those_of_the_definition() {
    // Within a block even the order of additions is the definition's; 100 columns are no whole panels.
    let columns = 100;
    let (x, w) = (inputs(300, columns), weights(11, columns));
    let metric = metric(&x, columns, Isa::detect());
    let rows = clustered(&metric, &w, NESTING);
    let tables: Vec<_> = rows.iter().map(|row| values(&row.luts)).collect();
    let order = metric.factor.order();
    let in_order: Vec<f64> = w.chunks(columns).flat_map(|row| order.iter().map(|&j| f64::from(row[j]))).collect();
    let mut codes = vec![0; w.len()];
    let feedback = Feedback::new(&metric, NESTING, &BITS, Isa::detect());
    feedback.pass(&tables, &in_order, &mut codes);
    for ((row, tables), codes) in w.chunks(columns).zip(&tables).zip(codes.chunks(columns)) {
        assert_eq!(codes, by_definition(&metric, tables, row));
    }
}

/// The weights of a row in the order of the factor.
fn in_order(metric: &Metric, row: &[f32]) -> Vec<f64> {
    metric.factor.order().iter().map(|&j| row[j].into()).collect()
}

/// The definition of a descent: each column gets the code with the least weighed sum of the errors of all widths.
fn descended(metric: &Metric, tables: &[Vec<f64>], weights: &[f64], codes: &[u8]) -> Vec<u8> {
    let (columns, widths) = (weights.len(), tables.len());
    let panels = metric.hessian.as_chunks::<{ crate::linalg::COLUMNS }>().0;
    let hessian = |i: usize, j: usize| panels[j / 16 * columns + i][j % 16];
    let value = |b: usize, code: u8| tables[b][usize::from(code >> (widths - 1 - b))];
    let mut codes = codes.to_vec();
    for i in 0..columns {
        let cost = |code: u8| {
            let mut tried = codes.clone();
            tried[i] = code;
            let error = |b: usize| -> f64 {
                let off: Vec<f64> = tried.iter().zip(weights).map(|(&c, w)| value(b, c) - w).collect();
                let row = |i: usize| (0..columns).map(|j| off[j] * hessian(i, j)).sum::<f64>();
                (0..columns).map(|i| off[i] * row(i)).sum()
            };
            (0..widths).fold((0.0, 1.0), |(sum, share), b| (sum + share * error(b), 3.0 * share)).0
        };
        let costs: Vec<f64> = (0..1 << BITS[widths - 1]).map(cost).collect();
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        codes[i] = costs.iter().position(|&c| c == least).unwrap_or(0) as u8;
    }
    codes
}

#[test]
fn a_descent_is_that_of_the_definition() {
    let columns = 40;
    let (x, w) = (related(60, columns, 3), weights(3, columns));
    let metric = metric(&x, columns, Isa::detect());
    let feedback = Feedback::new(&metric, NESTING, &BITS, Isa::detect());
    let mut changed = 0;
    for (row, w) in clustered(&metric, &w, NESTING).iter_mut().zip(w.chunks(columns)) {
        let (w, mut tables) = (in_order(&metric, w), values(&row.luts));
        let mut codes: Vec<u8> = metric.factor.order().iter().map(|&j| row.codes[j]).collect();
        let mut refit = Refit::new(&feedback);
        refit.row(&w, &codes, row, &mut tables);
        let want = descended(&metric, &tables, &w, &codes);
        changed += codes.iter().zip(&want).filter(|(a, b)| a != b).count();
        Descent::default().row(&feedback, &refit, &tables, &mut codes);
        assert_eq!(codes, want);
    }
    assert!(changed > 0, "the codes were the best already");
}

#[test]
fn rounds_take_off_what_feeding_forward_leaves() {
    let columns = 416;
    let (x, w) = (related(900, columns, 3), weights(8, columns));
    let metric = metric(&x, columns, Isa::detect());
    let feedback = Feedback::new(&metric, NESTING, &BITS, Isa::detect());
    let weighed = |errors: &[f64]| errors.iter().zip(&feedback.shares).map(|(e, s)| e * s).sum::<f64>();
    let mut rows = clustered(&metric, &w, NESTING);
    let all: Vec<f64> = w.chunks(columns).flat_map(|row| in_order(&metric, row)).collect();
    let mut tables: Vec<_> = rows.iter().map(|row| values(&row.luts)).collect();
    let mut codes = vec![0; w.len()];
    feedback.pass(&tables, &all, &mut codes);
    let mut forward = 0.0;
    for (i, (row, tables)) in rows.iter().zip(&mut tables).enumerate() {
        let own = i * columns..(i + 1) * columns;
        let mut row = row.clone();
        Refit::new(&feedback).row(&all[own.clone()], &codes[own], &mut row, tables);
        forward += weighed(&row.errors);
    }
    feedback.improve(&mut rows, &w);
    let after: f64 = rows.iter().map(|row| weighed(&row.errors)).sum();
    assert!(after < 0.98 * forward, "{after} {forward}");
}

#[test]
fn every_width_errs_less_and_says_how_much() {
    let columns = 416;
    let (x, w) = (inputs(900, columns), weights(8, columns));
    let metric = metric(&x, columns, Isa::detect());
    let plain = clustered(&metric, &w, NESTING);
    let mut fed = plain.clone();
    Feedback::new(&metric, NESTING, &BITS, Isa::detect()).improve(&mut fed, &w);
    for width in 0..BITS.len() {
        let all = |rows: &[Coded]| -> f64 {
            let each = rows.iter().zip(w.chunks(columns));
            each.map(|(row, w)| cost(&x, w, &decoded(row, width))).sum()
        };
        let (before, after) = (all(&plain), all(&fed));
        assert!(after < 0.7 * before, "{width}: {after} {before}");
    }
    // The error is that at the outputs, and what was added to the diagonal.
    for (row, w) in fed.iter().zip(w.chunks(columns)) {
        let added = {
            let panel = metric.hessian.as_chunks::<{ crate::linalg::COLUMNS }>().0;
            let first = metric.factor.order()[0];
            panel[0][0] - 2.0 / 900.0 * sums(&x, columns)[triangle(first) + first]
        };
        for width in 0..BITS.len() {
            let q = decoded(row, width);
            let off = w.iter().zip(&q).map(|(&w, q)| {
                let off = q - f64::from(w);
                off * off
            });
            let want = 2.0 / 900.0 * cost(&x, w, &q) + added * off.sum::<f64>();
            let got = row.errors[width];
            assert!((got - want).abs() < 1e-9 * row.energy, "{got} {want}");
        }
    }
}

fn work<'a>(metric: &'a Metric, kept: &'a Kept, isa: Isa, columns: usize) -> Work<'a> {
    Work {
        nesting: NESTING,
        bits: BITS.to_vec(),
        method: Method::Exact,
        columns,
        groups: 1,
        kept,
        feedback: Some(Feedback::new(metric, NESTING, &BITS, isa)),
    }
}

fn run(isa: Isa, threads: usize, rows: usize, columns: usize) -> Clustered {
    let (x, w) = (inputs(90, columns), weights(rows, columns));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    pool.build().unwrap().install(|| {
        let metric = metric(&x, columns, isa);
        let kept = Kept::none();
        let own = RowWeights::Columns(metric.importance());
        work(&metric, &kept, isa, columns).run(0, &w, &own).unwrap()
    })
}

#[test]
fn neither_threads_nor_instruction_sets_change_a_byte() {
    // More than a block of columns, no whole panels, strips that are not full.
    for (rows, columns) in [(1, 150), (19, 300)] {
        let want = run(Isa::scalar(), 1, rows, columns);
        for isa in Isa::available() {
            for threads in [1, 3] {
                let got = run(isa, threads, rows, columns);
                assert!(got.planes == want.planes, "{isa}, {threads} threads");
                assert!(got.luts == want.luts, "{isa}, {threads} threads");
            }
        }
    }
}

#[test]
fn rows_have_their_parts_in_order() {
    let (rows, columns) = (10, 100);
    let done = run(Isa::detect(), 2, rows, columns);
    assert_eq!(done.planes.len(), 6);
    assert!(done.planes.iter().all(|p| p.len() == rows * 8 * words(columns)));
    let sizes: Vec<usize> = done.luts.iter().map(Vec::len).collect();
    assert_eq!(sizes, [8, 16, 32, 64].map(|n| 2 * n * rows));
    assert_eq!(done.kept, vec![0; rows]);
    assert!(done.errors.is_sorted_by(|a, b| a > b) && done.energy > done.errors[0]);
    // A row by itself is the same row.
    let one = run(Isa::detect(), 1, 1, columns);
    assert_eq!(one.planes[0], done.planes[0][..one.planes[0].len()]);
    assert_eq!(one.luts[3], done.luts[3][..one.luts[3].len()]);
}

#[test]
fn widths_without_a_table_have_no_say() {
    let columns = 200;
    let (x, w) = (inputs(300, columns), weights(8, columns));
    let metric = metric(&x, columns, Isa::detect());
    let plain = clustered(&metric, &w, NESTING);
    let errors = |bits: &[u8]| {
        let mut rows = plain.clone();
        Feedback::new(&metric, NESTING, bits, Isa::detect()).improve(&mut rows, &w);
        let errors = rows.iter().map(|row| row.errors[3]);
        errors.sum::<f64>()
    };
    assert!(errors(&[6]) < 0.9 * errors(&BITS));
}
