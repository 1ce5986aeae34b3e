//! Shared tables: bytes that depend on nothing else, errors that are those of the file, and what sharing is for.

use super::*;
use crate::kernels::Isa;
use crate::quant::anyprec::cluster::{Method, Nesting};
use crate::quant::anyprec::feedback::Metric;
use crate::quant::anyprec::work::Kept;
use crate::quant::gptq::tests::{Generator, sums};
use trine_formats::anyprec::{expand, unpack_row, words};
use trine_formats::types::num::f16_to_f32;

const NESTING: Nesting = Nesting { seed_bits: 3, parent_bits: 5 };
const BITS: [u8; 3] = [3, 4, 5];
const COLUMNS: usize = 150;

/// Rows of two shapes and many sizes: every other one has most of its weights near zero.
fn weights(rows: usize) -> Vec<f32> {
    let mut g = Generator(3);
    let mut all = Vec::new();
    for row in 0..rows {
        let size = 0.01 * (1 + row % 7) as f32;
        for _ in 0..COLUMNS {
            let x = (g.below(2001) - 1000) as f32 / 1000.0;
            all.push(size * if row % 2 == 0 { x } else { x * x * x * x * x });
        }
    }
    all
}

fn inputs() -> Vec<f64> {
    let mut g = Generator(5);
    let mut x = Vec::new();
    for _ in 0..200 {
        let common = g.below(9) - 4;
        x.extend((0..COLUMNS as i64).map(|j| (common * (j % 7 - 3) + g.below(9) - 4) as f64));
    }
    x
}

fn run(tables: usize, rows: usize, feedback: bool, isa: Isa, threads: usize) -> Clustered {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    pool.build().unwrap().install(|| {
        let x = inputs();
        let metric = Metric::new(&sums(&x, COLUMNS), COLUMNS, 200, isa);
        let kept = Kept::none();
        let work = Work {
            nesting: NESTING,
            bits: BITS.to_vec(),
            method: Method::Exact,
            columns: COLUMNS,
            groups: 1,
            kept: &kept,
            feedback: feedback.then(|| Feedback::new(&metric, NESTING, &BITS, isa)),
        };
        let own = RowWeights::Columns(metric.importance());
        work.run_shared(tables, &weights(rows), own).unwrap()
    })
}

/// The weights at a width, the narrowest of which is number 0, as the file has them.
fn decoded(done: &Clustered, width: usize) -> Vec<f64> {
    let bits = BITS[width];
    let own = expand(&done.classes, &done.scales[width], &done.luts[width], bits);
    let own: Vec<f64> = own.as_chunks().0.iter().map(|&c| f16_to_f32(u16::from_le_bytes(c)).into()).collect();
    let bytes = 8 * words(COLUMNS);
    let mut out = Vec::new();
    for row in 0..done.classes.len() {
        let planes: Vec<&[u8]> = done.planes[..bits.into()].iter().map(|p| &p[row * bytes..][..bytes]).collect();
        let mut codes = vec![0; COLUMNS];
        unpack_row(&planes, &mut codes);
        out.extend(codes.iter().map(|&c| own[(row << bits) + usize::from(c)]));
    }
    out
}

/// The squared error at the outputs.
fn cost(w: &[f32], q: &[f64]) -> f64 {
    let x = inputs();
    let rows = w.chunks(COLUMNS).zip(q.chunks(COLUMNS));
    let output = |w: &[f32], q: &[f64], x: &[f64]| -> f64 {
        w.iter().zip(q).zip(x).map(|((&w, q), x)| (q - f64::from(w)) * x).sum()
    };
    rows.map(|(w, q)| x.chunks(COLUMNS).map(|x| output(w, q, x)).map(|y| y * y).sum::<f64>()).sum()
}

#[test]
fn neither_threads_nor_instruction_sets_change_a_byte() {
    for feedback in [false, true] {
        let want = run(3, 21, feedback, Isa::scalar(), 1);
        for isa in Isa::available() {
            let got = run(3, 21, feedback, isa, 3);
            assert!(got.planes == want.planes && got.luts == want.luts, "{isa}, {feedback}");
            assert!(got.scales == want.scales && got.classes == want.classes, "{isa}, {feedback}");
        }
    }
}

#[test]
fn parts_are_as_long_as_the_file_has_them() {
    let done = run(3, 21, true, Isa::detect(), 2);
    assert_eq!(done.classes.len(), 21);
    assert!(done.classes.iter().all(|&c| c < 3));
    assert_eq!(done.scales.iter().map(Vec::len).collect::<Vec<_>>(), [42; 3]);
    assert_eq!(done.luts.iter().map(Vec::len).collect::<Vec<_>>(), [8, 16, 32].map(|n| 2 * n * 3));
    // As many tables as rows, and rows of zeros.
    let kept = Kept::none();
    let work = Work {
        nesting: NESTING,
        bits: BITS.to_vec(),
        method: Method::Exact,
        columns: 4,
        groups: 1,
        kept: &kept,
        feedback: None,
    };
    let w = [0.0, 0.0, 0.0, 0.0, 1.0, -2.0, 3.0, -4.0];
    let done = work.run_shared(2, &w, RowWeights::Uniform).unwrap();
    let own = expand(&done.classes, &done.scales[2], &done.luts[2], 5);
    assert!(own[..64].iter().all(|&b| b & 0x7f == 0), "a row of zeros");
    assert!(done.errors[2] < 1e-4 * done.energy, "{:?} {}", done.errors, done.energy);
    let bad = [0.0, 0.0, 0.0, 0.0, 1.0, f32::NAN, 3.0, -4.0];
    assert_eq!(work.run_shared(2, &bad, RowWeights::Uniform).err(), Some(ClusterError::NotFinite(5)));
}

#[test]
fn errors_are_those_of_the_file_and_feedback_makes_them_small() {
    let rows = 24;
    let w = weights(rows);
    let (plain, fed) = (run(4, rows, false, Isa::detect(), 2), run(4, rows, true, Isa::detect(), 2));
    for width in 0..BITS.len() {
        let (before, after) = (cost(&w, &decoded(&plain, width)), cost(&w, &decoded(&fed, width)));
        assert!(after < 0.6 * before, "{width}: {after} {before}");
        // The error at the outputs, but for what is added to the diagonal.
        let reported = fed.errors[width] * 200.0 / 2.0;
        assert!(after < reported && reported < 1.3 * after, "{width}: {after} {reported}");
    }
    assert!(fed.errors.is_sorted_by(|a, b| a > b));
}

#[test]
fn rows_of_two_shapes_want_two_tables() {
    let error = |tables| {
        let done = run(tables, 24, true, Isa::detect(), 2);
        done.errors[2] / done.energy
    };
    let (one, two) = (error(1), error(2));
    assert!(two < 0.7 * one, "{two} {one}");
    let classes = run(2, 24, true, Isa::detect(), 2).classes;
    assert!((0..24).all(|i| classes[i] == classes[i % 2]), "{classes:?}");
}
