//! Rounding against the script in `testdata/gptq`, and what has to hold for any weights and inputs.

use trine_formats::gguf::TensorInfo;
use trine_formats::types::TypeId;
use trine_formats::types::cells::CELL;

use super::factor::Factor;
use super::fault::HessianFault;
use super::feedback::side_by_side;
use super::{DAMP, Options, round};
use crate::kernels::Isa;
use crate::linalg::triangle;
use crate::quant::round::RowFault;
use crate::quant::row::Row;

/// The generator of `testdata/gptq/reference.py`.
pub struct Generator(pub u64);

impl Generator {
    pub fn below(&mut self, n: u64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n) as i64
    }
}

/// Inputs, `[tokens][columns]`, as the script makes them.
fn inputs(tokens: usize, columns: usize) -> Vec<f64> {
    let mut g = Generator(1);
    let mut x = Vec::with_capacity(tokens * columns);
    for _ in 0..tokens {
        let common = g.below(9) - 4;
        for j in 0..columns as i64 {
            let v = common * (j % 7 - 3) + g.below(15) - 7;
            let v = if j % 100 == 50 { 8 * v } else { v };
            x.push(if j == 77 { 0.0 } else { v as f64 });
        }
    }
    x
}

/// Their sums of products, which are integers.
pub fn sums(x: &[f64], columns: usize) -> Vec<f64> {
    let mut sums = vec![0.0; triangle(columns)];
    for row in x.chunks(columns) {
        for i in 0..columns {
            for j in 0..=i {
                sums[triangle(i) + j] += row[i] * row[j];
            }
        }
    }
    sums
}

/// Weights, as the script makes them.
pub fn weights(rows: usize, columns: usize) -> Vec<f32> {
    let mut g = Generator(2);
    let next = |_| (g.below(1001) + g.below(1001) - 1000) as f32 / 1024.0;
    let mut w: Vec<f32> = (0..rows * columns).map(next).collect();
    if (rows, columns) == (64, 512) {
        w[3 * columns + 128..3 * columns + 256].fill(0.0);
        let positive = &mut w[5 * columns + 128..5 * columns + 256];
        positive.iter_mut().for_each(|w| *w = w.abs());
    }
    w
}

fn row(columns: usize, rows: usize, to: TypeId) -> Row {
    let size = |ty: TypeId| ty.info().unwrap().tensor_bytes(columns as u64, rows as u64);
    let (shape, ty) = (vec![columns as u64, rows as u64], TypeId::F32);
    let info = TensorInfo { name: "w".to_owned(), shape, ty, offset: 0, bytes: size(ty).unwrap() };
    Row { to, bytes: size(to).unwrap(), ..Row::of(&info) }
}

fn bytes(w: &[f32]) -> Vec<u8> {
    w.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn group(group: usize) -> Options {
    Options { group, ..Options::default() }
}

/// Rounds `w` with the factor of `x`.
fn rounded(x: &[f64], w: &[f32], columns: usize, to: TypeId, options: Options, isa: Isa) -> Vec<u8> {
    let tokens = (x.len() / columns) as u64;
    let factor = Factor::together(&sums(x, columns), columns, tokens, &options, side_by_side(to), isa).unwrap();
    let row = row(columns, w.len() / columns, to);
    round(&row, 0, &bytes(w), &factor, &options, isa).unwrap()
}

fn decoded(data: &[u8], columns: usize, to: TypeId) -> Vec<f32> {
    let info = to.info().unwrap();
    let row_bytes = info.row_bytes(columns as u64).unwrap() as usize;
    let mut out = vec![0.0; data.len() / row_bytes * columns];
    for (data, out) in data.chunks(row_bytes).zip(out.chunks_mut(columns)) {
        (info.decode.unwrap())(data, out);
    }
    out
}

/// The squared error at the outputs, over all tokens.
fn cost(x: &[f64], w: &[f32], q: &[f32], columns: usize) -> f64 {
    let mut cost = 0.0;
    for (w, q) in w.chunks(columns).zip(q.chunks(columns)) {
        let off: Vec<f64> = w.iter().zip(q).map(|(w, q)| f64::from(q - w)).collect();
        for x in x.chunks(columns) {
            let y: f64 = x.iter().zip(&off).map(|(x, d)| x * d).sum();
            cost += y * y;
        }
    }
    cost
}

const TYPES: [TypeId; 38] = [
    TypeId::Q4_0,
    TypeId::Q4_1,
    TypeId::Q5_0,
    TypeId::Q5_1,
    TypeId::Q8_0,
    TypeId::IQ4_NL,
    TypeId::Q4_K,
    TypeId::Q5_K,
    TypeId::Q6_K,
    TypeId::IQ4_XS,
    TypeId::MXFP4,
    TypeId::NVFP4,
    TypeId::Q3_K,
    TypeId::Q2_K,
    TypeId::Q2_0,
    TypeId::PQ2_0,
    TypeId::Q2_0C,
    TypeId::TQ1_0,
    TypeId::PTQ1_0,
    TypeId::TQ2_0,
    TypeId::Q1_0,
    TypeId::IQ1_S,
    TypeId::IQ1_M,
    TypeId::IQ2_XXS,
    TypeId::IQ2_XS,
    TypeId::IQ2_S,
    TypeId::IQ3_XXS,
    TypeId::IQ3_S,
    TypeId::IQ2_KS,
    TypeId::IQ2_K,
    TypeId::IQ2_KL,
    TypeId::IQ3_KS,
    TypeId::IQ3_K,
    TypeId::IQ4_KS,
    TypeId::IQ4_K,
    TypeId::IQ5_KS,
    TypeId::IQ5_K,
    TypeId::IQ6_K,
];

mod again;
mod sparse;

#[test]
fn the_blocks_are_those_of_the_script() {
    let (x, w) = (inputs(700, 512), weights(64, 512));
    for (file, to, options) in [
        ("q4_0-g32.bin", TypeId::Q4_0, group(32)),
        ("q4_0-g128.bin", TypeId::Q4_0, group(128)),
        ("q4_0-compat.bin", TypeId::Q4_0, Options { group: 128, compat: true, ..Options::default() }),
        ("q4_0-sparse.bin", TypeId::Q4_0, Options { sparse: true, ..Options::default() }),
        ("q8_0.bin", TypeId::Q8_0, group(32)),
    ] {
        let options = Options { damp: 0.1, ..options };
        let want = std::fs::read(trine_testkit::testdata("gptq").join(file)).unwrap();
        let got = rounded(&x, &w, 512, to, options, Isa::detect());
        let size = to.info().unwrap().bytes;
        let blocks = got.chunks(size).zip(want.chunks(size));
        let wrong = blocks.enumerate().find(|(_, (got, want))| got != want);
        assert_eq!(wrong, None, "{file}: block of the tensor");
        assert_eq!(got.len(), want.len());
    }
}

#[test]
fn the_triangle_is_that_of_the_inverse() {
    let columns = 160;
    let sums = sums(&inputs(300, columns), columns);
    let factor = Factor::new(&sums, columns, 300, &group(32), Isa::detect()).unwrap();
    assert_eq!(factor.damp(), DAMP);
    let order = factor.order();
    let diagonal = |j: usize| 2.0 / 300.0 * sums[triangle(j) + j];
    let alive = |j: usize| if j == 77 { 1.0 } else { diagonal(j) };
    let mean = (0..columns).map(alive).sum::<f64>() / columns as f64;
    let falls = |w: &[usize]| diagonal(w[0]) >= diagonal(w[1]);
    assert!(order.windows(2).all(falls), "falling order");
    let h = |i: usize, j: usize| match (order[i], order[j]) {
        (i, j) if i == j => alive(i) + DAMP * mean,
        (i, j) => 2.0 / 300.0 * sums[triangle(i.max(j)) + i.min(j)],
    };
    // U H U^T = 1 says the same as H^-1 = U^T U.
    let uh: Vec<f64> = (0..columns * columns)
        .map(|e| {
            let (i, j) = (e / columns, e % columns);
            (i..columns).map(|k| factor.upper(i, k) * h(k, j)).sum()
        })
        .collect();
    for i in 0..columns {
        for j in 0..columns {
            let product = (j..columns).map(|k| uh[i * columns + k] * factor.upper(j, k));
            let want = if i == j { 1.0 } else { 0.0 };
            let got: f64 = product.sum();
            assert!((got - want).abs() < 1e-10, "{i} {j}: {got}");
            assert!(j >= i || factor.upper(i, j) == 0.0);
        }
    }
}

#[test]
fn columns_that_are_chosen_together_stay_side_by_side() {
    let columns = 160;
    let sums = sums(&inputs(300, columns), columns);
    let options = Options::default();
    let factor = Factor::together(&sums, columns, 300, &options, CELL, Isa::detect()).unwrap();
    let order = factor.order();
    let cells = order.chunks(CELL);
    assert!(cells.clone().all(|cell| cell[0].is_multiple_of(CELL) && cell.windows(2).all(|w| w[1] == w[0] + 1)));
    let sum = |cell: &[usize]| cell.iter().map(|&j| sums[triangle(j) + j]).sum::<f64>();
    assert!(cells.map(sum).is_sorted_by(|a, b| a >= b), "falling order");
    assert_ne!(order[0], 0);
}

#[test]
fn feedback_costs_less_than_rounding_and_a_search_less_than_none() {
    for to in TYPES {
        let columns = 512;
        let (x, w) = (inputs(700, columns), weights(24, columns));
        let plain = |importance: Option<&[f32]>| {
            let info = to.info().unwrap();
            let mut out = vec![0; row(columns, 24, to).bytes as usize];
            let row_bytes = out.len() / 24;
            for (w, out) in w.chunks(columns).zip(out.chunks_mut(row_bytes)) {
                (info.encode.unwrap())(w, importance, out);
            }
            cost(&x, &w, &decoded(&out, columns, to), columns)
        };
        let fed = |options| {
            let out = rounded(&x, &w, columns, to, options, Isa::detect());
            cost(&x, &w, &decoded(&out, columns, to), columns)
        };
        let (nearest, gptq) = (plain(None), fed(group(32)));
        assert!(gptq < 0.5 * nearest, "{to}: {gptq} {nearest}");
        if to == TypeId::Q4_0 {
            let compat = fed(Options { group: 32, compat: true, ..Options::default() });
            let wide = fed(group(128));
            assert!(gptq < compat && gptq < wide, "{gptq} {compat} {wide}");
            assert!(wide < 0.5 * nearest, "{wide} {nearest}");
        }
    }
}

#[test]
fn neither_threads_nor_instruction_sets_change_a_byte() {
    for to in TYPES {
        // Widths that are no multiple of a group of 128, strips that are not full, and a single row.
        let columns = match to.info().unwrap().block {
            512 => 1536,
            256 => 768,
            128 => 384,
            64 => 448,
            _ => 416,
        };
        let pools = [1, 2, 7].map(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap());
        for (rows, pools) in [(1, &pools[1..2]), (37, &pools[..])] {
            let (x, w) = (inputs(90, columns), weights(rows, columns));
            let want = pools[0].install(|| rounded(&x, &w, columns, to, group(128), Isa::scalar()));
            // Every number of threads, and every set.
            let ways = Isa::available().zip(pools.iter().cycle());
            for (isa, pool) in ways.chain(pools.iter().map(|pool| (Isa::detect(), pool))) {
                let got = pool.install(|| rounded(&x, &w, columns, to, group(128), isa));
                assert!(got == want, "{to} {isa}, {} threads", pool.current_num_threads());
            }
        }
    }
}

#[test]
fn groups_of_128_have_one_scale_and_dead_columns_are_zero() {
    let columns = 416;
    let (x, w) = (inputs(200, columns), weights(5, columns));
    let out = rounded(&x, &w, columns, TypeId::Q4_0, group(128), Isa::detect());
    for row in out.chunks(out.len() / 5) {
        let scales: Vec<&[u8]> = row.chunks(18).map(|b| &b[..2]).collect();
        for group in scales.chunks(4) {
            assert!(group.iter().all(|s| s == &group[0]));
        }
    }
    for row in decoded(&out, columns, TypeId::Q4_0).chunks(columns) {
        assert_eq!(row[77], 0.0);
    }
}

#[test]
fn a_hessian_that_is_nearly_singular_is_damped_more_and_says_so() {
    let options = Options { damp: 0.1, ..Options::default() };
    let factor = |off: f64| Factor::new(&[1.0, off, 1.0], 2, 2, &options, Isa::scalar());
    assert_eq!(factor(0.9).unwrap().damp(), 0.1);
    assert_eq!(factor(1.15).unwrap().damp(), 0.2);
    assert_eq!(factor(1.7).unwrap().damp(), 0.8);
    assert_eq!(factor(1.95).unwrap().damp(), 1.0);
    // The column that fails is the first in reverse order.
    assert_eq!(factor(2.5).err(), Some(HessianFault::Singular(0)));
    // One direction alone is what damping is for.
    assert_eq!(factor(1.0).unwrap().damp(), 0.1);
}

#[test]
fn damaged_hessians_and_weights_are_named() {
    for (at, value, row, column) in [(4, f64::NAN, 2, 1), (3, f64::INFINITY, 2, 0), (2, -1.0, 1, 1)] {
        let mut sums = vec![1.0, 0.0, 1.0, 0.0, 0.0, 1.0];
        sums[at] = value;
        let fault = Factor::new(&sums, 3, 1, &group(32), Isa::scalar()).err();
        let Some(HessianFault::BadValue { row: r, column: c, value: v }) = fault else {
            panic!("{fault:?}");
        };
        assert_eq!((r, c, v.to_bits()), (row, column, value.to_bits()));
    }
    let columns = 64;
    let factor = Factor::new(&sums(&inputs(9, columns), columns), columns, 9, &group(32), Isa::scalar());
    let factor = factor.unwrap();
    let mut w = weights(3, columns);
    w[70] = f32::NAN;
    let round = |w: &[f32], to| {
        let row = row(columns, 3, to);
        round(&row, 0, &bytes(w), &factor, &group(32), Isa::scalar())
    };
    let fault = round(&w, TypeId::Q4_0);
    assert!(matches!(fault, Err(RowFault::Input { block: 70, .. })), "{fault:?}");
    w[70] = 3e38;
    for to in [TypeId::Q4_0, TypeId::Q8_0] {
        let fault = round(&w, to);
        assert!(matches!(fault, Err(RowFault::Output { .. })), "{fault:?}");
    }
}
