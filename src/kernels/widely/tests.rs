//! Every kernel against the definitions of `trine_formats::widely`, bit by bit.

use trine_formats::widely::{Lanes, axis_is_imaginary, is_positive};
use trine_formats::widely::{Rule, Scope, Shape, combine, int8, pack_row, product_row};

use super::{CodeLayout, Path, ROWS, Unit, batch, multiply, tables};
use crate::testing::{Random, isas, same};
use crate::{AlignedBytes, Isa, Level};

/// Complex rows and columns whose chunks, tiles and units end early, or are whole.
const ROW_COUNTS: [usize; 4] = [1, 2, 31, 32];
const COLUMNS: [usize; 9] = [1, 15, 16, 17, 48, 64, 145, 2048, 5504];
const SCOPES: [Scope; 3] = [Scope::Tensor, Scope::Row, Scope::Tile64];

struct Matrix {
    shape: Shape,
    words: Vec<u8>,
    scales: Vec<f32>,
}

fn shape(rows: usize, columns: usize, stages: usize, scope: Scope) -> Shape {
    let rule = Rule { stages, scope, profile: Default::default(), tie: Default::default() };
    rule.shape(2 * rows, 2 * columns).expect("even sides")
}

impl Matrix {
    /// Random codes, also behind the last column, where a file may have any; of one row all on the real axis, of
    /// another one on the imaginary axis.
    fn random(shape: Shape, random: &mut Random) -> Matrix {
        let scales = shape.groups() * shape.group_scales();
        let row = 4 * shape.row_words();
        let mut words = random.bytes(row * shape.rows);
        let mut rows = words.chunks_exact_mut(row);
        let axes: [fn(&mut u8); 2] = [|codes| *codes &= 0x55, |codes| *codes |= 0xAA];
        for on_axis in axes {
            rows.nth(1).into_iter().flatten().for_each(on_axis);
        }
        Matrix { words, scales: (0..scales).map(|_| random.float().abs() + 1e-3).collect(), shape }
    }

    fn words(&self, row: usize) -> Vec<u32> {
        let bytes = 4 * self.shape.row_words();
        let words = self.words[row * bytes..][..bytes].as_chunks().0;
        words.iter().map(|&w| u32::from_le_bytes(w)).collect()
    }

    /// All rows times all tokens in a form, `[row][real, imaginary][token]`.
    fn multiply(&self, isa: Isa, form: CodeLayout, acts: &[u8], tokens: usize) -> Vec<f32> {
        let row_bytes = 4 * self.shape.row_words();
        let mut out = vec![f32::NAN; 2 * self.shape.rows * tokens];
        let units = self.words.chunks(form.rows() * row_bytes);
        let outs = out.chunks_mut(2 * form.rows() * tokens);
        for (i, (words, out)) in units.zip(outs).enumerate() {
            let mut weights = vec![0xFF; form.unit_bytes(&self.shape)];
            form.pack(&self.shape, words, &mut weights);
            let unit = Unit {
                shape: &self.shape,
                first: i * form.rows(),
                rows: words.len() / row_bytes,
                form,
                weights: &weights,
                scales: &self.scales,
                ahead: 8192,
            };
            if form == CodeLayout::Lanes {
                by_tables(isa, &unit, acts, tokens, out);
            } else {
                multiply(isa, &unit, acts, tokens, out);
            }
        }
        out
    }
}

/// [`multiply`] for a unit whose products are looked up.
fn by_tables(isa: Isa, unit: &Unit<'_>, acts: &[u8], tokens: usize, out: &mut [f32]) {
    let mut x = vec![f32::NAN; tables::floats(unit.shape)];
    for (t, acts) in acts.chunks(acts.len() / tokens).enumerate() {
        tables::arrange(isa, unit.shape, acts, &mut x);
        let mut sums = [[f32::NAN; ROWS]; 2];
        tables::multiply(isa, unit, &x, &mut sums);
        for (r, out) in out.chunks_exact_mut(2 * tokens).enumerate() {
            (out[t], out[tokens + t]) = (sums[0][r], sums[1][r]);
        }
    }
}

/// Activations that hurt: zeros of both signs, denormals, magnitudes of 1e30; one of them what is no number.
fn activations(columns: usize, random: &mut Random, wild: Option<f32>) -> Vec<f32> {
    let number = |_| match random.below(12) {
        0 => -0.0,
        1 => 0.0,
        2 => f32::from_bits(random.below(1 << 23) as u32),
        3 => -f32::from_bits(random.below(1 << 23) as u32),
        4 => 1e30,
        5 => -1e30,
        _ => random.float(),
    };
    let mut x: Vec<f32> = (0..2 * columns).map(number).collect();
    if let Some(wild) = wild {
        x[random.below(2 * columns)] = wild;
    }
    x
}

/// The rows of `xs`, arranged where a buffer was that held something else.
fn arranged(isa: Isa, path: Path, shape: &Shape, xs: &[Vec<f32>]) -> AlignedBytes {
    let row = path.act_bytes(shape);
    let mut acts = AlignedBytes::scratch(row * xs.len());
    acts.fill(0xFF);
    for (x, out) in xs.iter().zip(acts.chunks_exact_mut(row)) {
        path.arrange(isa, shape, x, out);
    }
    acts
}

/// The forms of a path that an instruction set has kernels for.
fn forms(isa: Isa, path: Path, shape: &Shape) -> Vec<CodeLayout> {
    let mut forms = [false, true].map(|packed| CodeLayout::of(isa, path, packed, shape)).to_vec();
    if path == Path::Exact && isa.has(Level::Avx512) {
        // what tiles read, for the other scopes too
        forms.push(CodeLayout::Planes);
    }
    forms.dedup();
    forms
}

/// Compares all kernels of a path with what `definition(matrix, row, x)` says.
fn compare(path: Path, definition: impl Fn(&Matrix, usize, &[f32]) -> (f32, f32)) {
    let mut random = Random(7);
    let shapes = COLUMNS.iter().flat_map(|&columns| {
        let rows = ROW_COUNTS.iter().filter(move |&&rows| columns < 2048 || rows == 2);
        rows.map(move |&rows| (rows, columns))
    });
    for (rows, columns) in shapes.chain([(2048, 17), (5504, 1)]) {
        for scope in SCOPES {
            let stages = 1 + random.below(4);
            let matrix = Matrix::random(shape(rows, columns, stages, scope), &mut random);
            let wild = [None, Some(f32::INFINITY), Some(f32::NAN)];
            let xs = wild.map(|wild| activations(columns, &mut random, wild));
            for isa in isas() {
                let acts = arranged(isa, path, &matrix.shape, &xs);
                for form in forms(isa, path, &matrix.shape) {
                    let out = matrix.multiply(isa, form, &acts, xs.len());
                    for (i, &got) in out.iter().enumerate() {
                        let (row, part, token) = (i / 6, i / 3 % 2, i % 3);
                        let (re, im) = definition(&matrix, row, &xs[token]);
                        let want = [re, im][part];
                        assert!(
                            same(got, want),
                            "{isa} {form:?} {rows} x {columns}, {stages} stages, {scope:?}: row {row}, part {part}, token {token}: {got:e} for {want:e}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn every_kernel_has_the_bits_of_the_definition() {
    compare(Path::Exact, |m, row, x| product_row(&m.shape, row, &m.words(row), &m.scales, x));
}

#[test]
fn every_kernel_has_the_bits_of_the_definition_with_8_bit_activations() {
    compare(Path::Int8, |m, row, x| {
        let x = int8::quantize(&m.shape, x);
        int8::product_row(&m.shape, row, &m.words(row), &m.scales, &x)
    });
}

/// The product as sixteen (for one stage: eight) products of ternary matrices, each with its own pass over the row.
fn unfused(m: &Matrix, row: usize, x: &[f32]) -> (f32, f32) {
    let (shape, words) = (&m.shape, m.words(row));
    let (x_re, x_im) = x.split_at(shape.columns);
    let streams = shape.streams();
    let (mut y, of_tile) = ((0.0, 0.0), 16 * shape.chunks_of_tile());
    for (tile, first) in (0..shape.columns).step_by(of_tile).enumerate() {
        let columns = first..shape.columns.min(first + of_tile);
        let ternary = |stream: usize, imaginary: bool, x: &[f32]| {
            let mut lanes = [0.0f32; 16];
            for j in columns.clone() {
                let word = words[j / 16 * streams + stream];
                let code = (word >> (2 * (j % 16)) & 3) as u8;
                if axis_is_imaginary(code) == imaginary {
                    let lane = &mut lanes[j % 16];
                    *lane = if is_positive(code) { *lane + x[j] } else { *lane - x[j] };
                }
            }
            Lanes { rr: lanes, ..Lanes::default() }.sums()[0]
        };
        let sums: Vec<[f32; 4]> = (0..streams)
            .map(|s| {
                [(false, x_re), (false, x_im), (true, x_re), (true, x_im)]
                    .map(|(imaginary, x)| ternary(s, imaginary, x))
            })
            .collect();
        let scales = shape.scales_of(&m.scales, row, tile);
        combine(&mut y, &sums, |i| scales[i]);
    }
    y
}

#[test]
fn fused_and_sixteen_separate_products_have_the_same_bits() {
    compare(Path::Exact, unfused);
}

/// All rows times up to sixteen tokens at once in a form.
fn batches(m: &Matrix, isa: Isa, form: CodeLayout, acts: &[u8]) -> Vec<batch::Outputs> {
    let shape = &m.shape;
    let (unit, row) = (form.unit_bytes(shape), 4 * shape.row_words());
    let mut weights = vec![0; shape.rows.div_ceil(form.rows()) * unit];
    let words = m.words.chunks(row * form.rows());
    let packed = weights.chunks_mut(unit).zip(words);
    packed.for_each(|(out, words)| form.pack(shape, words, out));
    let acts = batch::Acts::arrange(isa, form.path(), shape, acts);
    let mut out = vec![[[f32::NAN; batch::TOKENS]; 2]; shape.rows];
    for (i, out) in out.chunks_mut(batch::ROWS).enumerate() {
        let first = i * batch::ROWS;
        let units = first / form.rows()..(first + out.len()).div_ceil(form.rows());
        let rows = batch::WeightRows {
            shape,
            first,
            form,
            weights: &weights[units.start * unit..units.end * unit],
            scales: &m.scales,
        };
        batch::multiply(isa, &rows, &acts, out);
    }
    out
}

/// Compares the products of up to sixteen tokens at once with what `definition(matrix, row, x)` says.
fn compare_batches(path: Path, definition: impl Fn(&Matrix, usize, &[f32]) -> (f32, f32)) {
    let mut random = Random(23);
    for (rows, columns) in [(8, 16), (3, 100), (21, 1030), (1, 2048), (150, 33), (5, 1024)] {
        for scope in SCOPES {
            let stages = 1 + random.below(4);
            let matrix = Matrix::random(shape(rows, columns, stages, scope), &mut random);
            let (shape, tokens) = (&matrix.shape, 1 + random.below(16));
            let wild = |i| [None, Some(f32::NAN), Some(f32::INFINITY)][if i < 3 { i } else { 0 }];
            let xs: Vec<Vec<f32>> = (0..tokens).map(|i| activations(columns, &mut random, wild(i))).collect();
            // also without the instructions that only some processors of a level have
            for isa in isas().flat_map(|isa| [isa, isa.plain()]) {
                let acts = arranged(isa, path, shape, &xs);
                for form in forms(isa, path, shape) {
                    if !batch::serves(isa, form, shape) {
                        let narrow = path == Path::Exact && scope == Scope::Tile64;
                        let vectors = isa.has(Level::Avx2) || isa.has(Level::Neon);
                        assert!(narrow || !vectors, "{isa} has kernels of its own");
                        continue;
                    }
                    let out = batches(&matrix, isa, form, &acts);
                    for (row, out) in out.iter().enumerate() {
                        for (t, x) in xs.iter().enumerate() {
                            let (re, im) = definition(&matrix, row, x);
                            assert!(
                                same(out[0][t], re) && same(out[1][t], im),
                                "{isa} {form:?} {columns} columns, {stages} stages, {scope:?}: row {row}, token {t}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn sixteen_tokens_at_once_have_the_bits_of_the_definition() {
    compare_batches(Path::Exact, |m, row, x| product_row(&m.shape, row, &m.words(row), &m.scales, x));
}

#[test]
fn sixteen_tokens_at_once_have_the_bits_of_the_definition_with_8_bit_activations() {
    compare_batches(Path::Int8, |m, row, x| {
        let x = int8::quantize(&m.shape, x);
        int8::product_row(&m.shape, row, &m.words(row), &m.scales, &x)
    });
}

#[test]
fn packing_moves_the_bits_of_words() {
    let shape = shape(1, 20, 1, Scope::Tensor);
    let codes: Vec<u8> = (0..20).map(|j| (j * j % 4) as u8).collect();
    let mut words = vec![0; shape.row_words()];
    pack_row(&shape, 1, &codes, &mut words);
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let mut planes = vec![0; bytes.len()];
    CodeLayout::Planes.pack(&shape, &bytes, &mut planes);
    let mut rows = vec![0; CodeLayout::Rows16.unit_bytes(&shape)];
    CodeLayout::Rows16.pack(&shape, &bytes, &mut rows);
    for (j, &code) in codes.iter().enumerate() {
        let word = planes[4 * (j / 16 * 2 + 1)..].as_chunks().0[0];
        let word = u32::from_le_bytes(word) >> (j % 16);
        assert_eq!((word & 1 == 0, word >> 16 & 1 == 1), (is_positive(code), axis_is_imaginary(code)));
        // stream 1 follows the four chunks of stream 0
        let byte = rows[64 * (4 + j / 16) + j % 4];
        assert_eq!(byte >> (2 * (j % 16 / 4)) & 3, code, "column {j}");
    }
    let mut lanes = vec![0; CodeLayout::Lanes.unit_bytes(&shape)];
    CodeLayout::Lanes.pack(&shape, &bytes, &mut lanes);
    for (j, &code) in codes.iter().enumerate() {
        // of sixteen rows the first, of two streams the second
        let word = lanes[64 * (j % 16 * 2 + 1)..].as_chunks().0[0];
        let word = u32::from_le_bytes(word);
        assert_eq!((word >> (2 * (j / 16)) & 3) as u8, code, "column {j}");
    }
    assert_eq!([CodeLayout::Rows16.rows(), CodeLayout::Lanes.rows()], [ROWS; 2]);
    for (form, rows) in [(CodeLayout::Words, &bytes), (CodeLayout::Planes, &planes)] {
        let mut again = vec![0xFF; lanes.len()];
        form.pack_lanes(&shape, rows, &mut again);
        assert_eq!(again, lanes, "{form:?}");
    }
}
