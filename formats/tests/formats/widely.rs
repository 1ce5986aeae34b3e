//! Widely linear matrices against what Fairy2i's own quantizer and an independent product gave (`testdata/widely`).

use proptest::prelude::*;
use trine_formats::types::num::{f16_to_f32, f32_to_f16};
use trine_formats::widely::{
    Profile, Rule, Scope, Shape, TieRule, dense_rows, int8, product_row, quantize, split, tile64, unpack_row,
};
use trine_testkit::npz::Npz;

const GOLDEN: &str = "widely/fairy2i_w2_64x96.npz";
const ROWS: usize = 64;
const COLUMNS: usize = 96;

fn rule(profile: Profile) -> Rule {
    Rule { stages: 2, scope: Scope::Tensor, profile, tie: TieRule::Phase }
}

fn shape() -> Shape {
    rule(Profile::F32).shape(ROWS, COLUMNS).expect("even sides")
}

/// Distance in units of the last place.
fn ulps(a: f32, b: f32) -> u32 {
    a.to_bits().abs_diff(b.to_bits())
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn the_split_is_that_of_the_formulas() {
    let npz = Npz::open(GOLDEN);
    let a = npz.f32("A");
    for r in 0..ROWS / 2 {
        let row = |r: usize| &a[r * COLUMNS..(r + 1) * COLUMNS];
        let [u, w] = split(Profile::F32, row(r), row(r + ROWS / 2));
        for (part, name) in [(&u.re, "U_re"), (&u.im, "U_im"), (&w.re, "W_re"), (&w.im, "W_im")] {
            let want = &npz.f32(name)[r * COLUMNS / 2..(r + 1) * COLUMNS / 2];
            assert_eq!(bits(part), bits(want), "{name} row {r}");
        }
    }
}

#[test]
fn codes_and_scales_are_those_of_the_reference() {
    let npz = Npz::open(GOLDEN);
    for (profile, prefix, most) in [(Profile::F32, "", 2), (Profile::ScriptBf16, "bf16_", 0)] {
        let name = |key: &str| format!("{prefix}{key}");
        let quantized = quantize::quantize(&rule(profile), ROWS, COLUMNS, &npz.f32(&name("A")));
        let (words, scales) = quantized.expect("even sides");
        assert_eq!(words, npz.u32(&name("wl_codes")), "{profile:?}");
        for (&scale, want) in scales.iter().zip(npz.f32(&name("wl_scale"))) {
            assert!(ulps(scale, want) <= most, "{profile:?}: {scale:e} for {want:e}");
        }
    }
}

#[test]
fn words_hold_the_codes_of_each_stream() {
    let npz = Npz::open(GOLDEN);
    let (words, shape) = (npz.u32("wl_codes"), shape());
    for (stream, name) in ["U0_code", "U1_code", "W0_code", "W1_code"].iter().enumerate() {
        let want = npz.u8(name);
        let rows = words.chunks(shape.row_words());
        let codes: Vec<u8> = rows.flat_map(|row| unpack_row(&shape, stream, row)).collect();
        assert_eq!(codes, want, "{name}");
    }
}

#[test]
fn products_have_the_bits_of_the_definition() {
    let npz = Npz::open(GOLDEN);
    for prefix in ["", "bf16_"] {
        let name = |key: &str| format!("{prefix}{key}");
        let (words, scales) = (npz.u32(&name("wl_codes")), npz.f32(&name("wl_scale")));
        let (x, y32, y64) = (npz.f32("X"), npz.f32(&name("Y32")), npz.f64(&name("Y64")));
        let shape = shape();
        for ((x, y32), y64) in x.chunks(COLUMNS).zip(y32.chunks(ROWS)).zip(y64.chunks(ROWS)) {
            let quantized = int8::quantize(&shape, x);
            let (mut error, mut energy) = (0.0, 0.0);
            for (row, words) in words.chunks(shape.row_words()).enumerate() {
                let (re, im) = product_row(&shape, row, words, &scales, x);
                let got = [re, im];
                let fast = int8::product_row(&shape, row, words, &scales, &quantized);
                for ((i, got), fast) in got.into_iter().enumerate().zip([fast.0, fast.1]) {
                    let at = row + i * ROWS / 2;
                    assert_eq!(got.to_bits(), y32[at].to_bits(), "{prefix} output {at}");
                    assert!((f64::from(got) - y64[at]).abs() <= 1e-6 * y64[at].abs().max(0.1));
                    let off = f64::from(fast) - y64[at];
                    error += off * off;
                    energy += y64[at] * y64[at];
                }
            }
            assert!((error / energy).sqrt() <= 0.01, "8-bit activations");
        }
    }
}

#[test]
fn the_dense_matrix_is_that_of_the_reference() {
    let npz = Npz::open(GOLDEN);
    let (words, scales, want) = (npz.u32("wl_codes"), npz.f32("wl_scale"), npz.f32("A_q_f32"));
    let shape = shape();
    let (mut top, mut bottom) = (vec![0.0; COLUMNS], vec![0.0; COLUMNS]);
    for (row, words) in words.chunks(shape.row_words()).enumerate() {
        dense_rows(&shape, row, words, &scales, &mut top, &mut bottom);
        assert_eq!(top, want[row * COLUMNS..(row + 1) * COLUMNS], "row {row}");
        let at = (row + ROWS / 2) * COLUMNS;
        assert_eq!(bottom, want[at..at + COLUMNS], "row {row}, imaginary part");
    }
}

#[test]
fn ties_and_axes() {
    let v = 0.25;
    let (minus, plus, minus_i, plus_i) = (0, 1, 2, 3);
    let cases = [
        ((v, v), plus_i, plus_i),
        ((-v, v), minus, plus_i),
        ((-v, -v), minus_i, minus_i),
        ((v, -v), plus, minus_i),
        ((0.0, 0.0), plus, plus_i),
        ((-0.0, -0.0), plus, plus_i),
        ((v, 0.0), plus, plus),
        ((-v, -0.0), minus, minus),
        ((0.0, v), plus_i, plus_i),
        ((-0.0, -v), minus_i, minus_i),
        ((v, 0.2), plus, plus),
        ((-0.2, v), plus_i, plus_i),
    ];
    for ((re, im), phase, tile64) in cases {
        assert_eq!(TieRule::Phase.code(re, im), phase, "({re}, {im})");
        assert_eq!(TieRule::Tile64.code(re, im), tile64, "({re}, {im})");
    }
}

/// The output of the fork's own quantizer and packer for a matrix of 128 rows and 256 columns: its blocks become the
/// words and scales that trine makes of the same matrix, but for the rounding of the scales to f16.
#[test]
fn blocks_of_the_fork_are_those_of_its_rule() {
    let (rows, columns) = (128, 256);
    let mut state = 9u64;
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) % 4001) as f32 / 4096.0 - 2000.0 / 4096.0
    };
    let weights: Vec<f32> = (0..rows * columns).map(|_| number()).collect();
    let rule = Rule { stages: 2, scope: Scope::Tile64, profile: Profile::F32, tie: TieRule::Tile64 };
    let quantized = quantize::quantize(&rule, rows, columns, &weights);
    let (words, scales) = quantized.expect("even sides");
    let file = trine_testkit::read(&trine_testkit::testdata("widely/tile64_v2.bin"));
    let row_bytes = columns / 2 / 64 * tile64::BLOCK_BYTES;
    let streams: Vec<&[u8]> = file.chunks(rows / 2 * row_bytes).collect();
    let shape = rule.shape(rows, columns).expect("even sides");
    for (row, words) in words.chunks(shape.row_words()).enumerate() {
        let blocks = std::array::from_fn(|s| &streams[s][row * row_bytes..][..row_bytes]);
        let mut got = vec![0; words.len()];
        tile64::words(blocks, &mut got);
        assert_eq!(got, words, "row {row}");
        for (stream, blocks) in blocks.iter().enumerate() {
            for (tile, block) in blocks.as_chunks().0.iter().enumerate() {
                let all = shape.scales_of(&scales, row, tile);
                let halves = [all[2 * stream], all[2 * stream + 1]].map(|s| f16_to_f32(f32_to_f16(s)));
                assert_eq!(tile64::scales(block), Some(halves), "row {row}, stream {stream}");
            }
        }
    }
}

/// The matrix that the stages of a quantization add up to.
fn dense(rule: &Rule, rows: usize, columns: usize, weights: &[f32]) -> Vec<f32> {
    let shape = rule.shape(rows, columns).expect("even sides");
    let (words, scales) = quantize::quantize(rule, rows, columns, weights).expect("even sides");
    let mut out = vec![0.0; rows * columns];
    let (top, bottom) = out.split_at_mut(rows / 2 * columns);
    let pairs = top.chunks_mut(columns).zip(bottom.chunks_mut(columns));
    for ((row, words), (top, bottom)) in words.chunks(shape.row_words()).enumerate().zip(pairs) {
        dense_rows(&shape, row, words, &scales, top, bottom);
    }
    out
}

#[test]
fn every_stage_and_every_finer_scope_lessens_the_error() {
    let weights = Npz::open(GOLDEN).f32("A");
    let error = |stages, scope| {
        let rule = Rule { stages, scope, ..rule(Profile::F32) };
        let dense = dense(&rule, ROWS, COLUMNS, &weights);
        let errors = dense.iter().zip(&weights).map(|(a, b)| f64::from(a - b) * f64::from(a - b));
        errors.sum::<f64>()
    };
    for scope in [Scope::Tensor, Scope::Row, Scope::Tile64] {
        let errors = [1, 2, 3, 4].map(|stages| error(stages, scope));
        assert!(errors.is_sorted_by(|a, b| a > b), "{scope:?} {errors:?}");
    }
    assert!(error(2, Scope::Row) < error(2, Scope::Tensor));
}

proptest! {
    /// Nothing is lost by the split alone: `U x + W conj(x)` is what the real matrix makes of `x`.
    #[test]
    fn the_split_is_the_matrix(rows in 1usize..20, columns in 1usize..40, seed in any::<u64>()) {
        let mut state = seed | 1;
        let mut number = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let weights: Vec<f32> = (0..4 * rows * columns).map(|_| number()).collect();
        let x: Vec<f64> = (0..2 * columns).map(|_| number().into()).collect();
        let (x_re, x_im) = x.split_at(columns);
        let (top, bottom) = weights.split_at(2 * rows * columns);
        let dot = |row: &[f32], x: &[f64]| -> f64 {
            row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum()
        };
        for (top, bottom) in top.chunks(2 * columns).zip(bottom.chunks(2 * columns)) {
            let [u, w] = split(Profile::F32, top, bottom);
            let re = dot(&u.re, x_re) - dot(&u.im, x_im) + dot(&w.re, x_re) + dot(&w.im, x_im);
            let im = dot(&u.re, x_im) + dot(&u.im, x_re) - dot(&w.re, x_im) + dot(&w.im, x_re);
            for (got, row) in [(re, top), (im, bottom)] {
                let size: f64 = row.iter().zip(&x).map(|(w, x)| (f64::from(*w) * x).abs()).sum();
                prop_assert!((got - dot(row, &x)).abs() <= 1e-6 * size);
            }
        }
    }

    /// A product is that of the dense matrix, whatever the shape and what has scales.
    #[test]
    fn products_are_those_of_the_dense_matrix(
        rows in 1usize..70, columns in 1usize..150, stages in 1usize..=4, scope in 0usize..3, seed in any::<u64>(),
    ) {
        let scope = [Scope::Tensor, Scope::Row, Scope::Tile64][scope];
        let rule = Rule { stages, scope, ..rule(Profile::F32) };
        let (rows, columns) = (2 * rows, 2 * columns);
        let mut state = seed | 1;
        let mut number = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let weights: Vec<f32> = (0..rows * columns).map(|_| number()).collect();
        let x: Vec<f32> = (0..columns).map(|_| number()).collect();
        let shape = rule.shape(rows, columns).expect("even sides");
        let (words, scales) = quantize::quantize(&rule, rows, columns, &weights).expect("even sides");
        let dense = dense(&rule, rows, columns, &weights);
        let want = |r: usize| -> f64 {
            let row = &dense[r * columns..(r + 1) * columns];
            row.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum()
        };
        for (row, words) in words.chunks(shape.row_words()).enumerate() {
            let (re, im) = product_row(&shape, row, words, &scales, &x);
            for (got, r) in [(re, row), (im, rows / 2 + row)] {
                prop_assert!((f64::from(got) - want(r)).abs() < 1e-4 * columns as f64);
            }
        }
    }
}
