//! Products with any-precision weights: at every width and on both number paths the bits of their definitions.

use std::borrow::Cow;
use std::time::Instant;

use anyhow::Result;
use serde_json::json;
use trine_cuda::driver::Context;
use trine_cuda::planes::Path;
use trine_cuda::program::PlaneMatrix;
use trine_formats::anyprec::{ApView, FixedLut, dot_f32, dot_i16, quantize_activations, words};
use trine_formats::gguf::Blob;
use trine_formats::types::TypeId;
use trine_formats::types::num::f32_to_f16;

use super::product::{Product, Shape, Way};
use super::{Options, Report};
use crate::inputs::Rng;

/// Rows and columns of a model's matrices, whole words of 64 columns.
const SHAPES: &[(usize, usize)] = &[(768, 3072), (2560, 2560)];
const SMALL: &[(usize, usize)] = &[(40, 256)];
/// Widths, of which a matrix has all.
const WIDTHS: &[u8] = &[3, 4, 5, 6, 7, 8];
const SMALL_WIDTHS: &[u8] = &[3, 8];
/// Tokens, so that every kernel is asked for.
const TOKENS: &[usize] = &[1, 3, 9];
const SMALL_TOKENS: &[usize] = &[1, 9];

/// Runs the products until the time is up.
///
/// # Errors
/// The device's error.
pub fn run(context: &mut Context, options: &Options, report: &mut Report) -> Result<()> {
    let start = Instant::now();
    let (shapes, widths, tokens) = match options.small {
        true => (SMALL, SMALL_WIDTHS, SMALL_TOKENS),
        false => (SHAPES, WIDTHS, TOKENS),
    };
    let mut left = Vec::new();
    for &(rows, columns) in shapes {
        let mut rng = Rng::new((rows * 37 + columns) as u64);
        let views = views(&mut rng, (rows, columns), widths);
        let most = tokens.iter().copied().max().unwrap_or(1);
        let x: Vec<f32> = (0..most * columns).map(|_| rng.normal()).collect();
        for (path, name) in [(Path::Fixed, "i16"), (Path::Floats, "f32")] {
            for view in &views {
                let what = format!("any-precision on {name} with {} bits, {rows} x {columns}", view.width);
                if start.elapsed() > options.limit {
                    left.push(what);
                    continue;
                }
                let expected = expected(view, path, &x);
                for &tokens in tokens {
                    let shape = Shape { ty: TypeId::F32, rows, columns, tokens, way: Way::Exact };
                    let mut product = Product::of(context, shape, 1, view.width, |recorder, x| {
                        let views = views.iter().map(Cow::Borrowed).collect();
                        recorder.planes_product(PlaneMatrix { name: "planes", path, views }, x)
                    })?;
                    let found = product.run(context, &x[..tokens * columns])?;
                    let again = product.run(context, &x[..tokens * columns])?;
                    let differ = |found: &[f32], expected: &[f32]| {
                        found.iter().zip(expected).filter(|(a, b)| a.to_bits() != b.to_bits()).count()
                    };
                    let (differing, unsteady) = (differ(&found, &expected), differ(&again, &found));
                    let about = json!({"differing": differing, "between_runs": unsteady});
                    report.check(&format!("{what}, {tokens} tokens"), differing + unsteady == 0, about)?;
                }
            }
        }
    }
    report.set("planes_without_time", json!(left))
}

/// A matrix at some widths, with planes of random bits and tables of numbers within one hundredth.
fn views(rng: &mut Rng, (rows, columns): (usize, usize), widths: &[u8]) -> Vec<ApView> {
    let widest = widths.iter().copied().max().unwrap_or(0);
    let planes: Vec<Blob> = (0..widest).map(|_| Blob::from_vec(rng.bytes(8 * words(columns) * rows))).collect();
    let mut view = |&width: &u8| {
        let entries = (0..rows << width).map(|_| f32_to_f16(0.02 * rng.unit() - 0.01));
        ApView {
            width,
            columns,
            rows,
            groups: 1,
            planes: planes[..width.into()].to_vec(),
            lut: Blob::from_vec(entries.flat_map(u16::to_le_bytes).collect()),
            sparse: None,
        }
    };
    widths.iter().map(&mut view).collect()
}

/// Products by the definition, `[token][row]`.
fn expected(view: &ApView, path: Path, x: &[f32]) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.len() / view.columns * view.rows);
    for x in x.chunks_exact(view.columns) {
        let quants = quantize_activations(x);
        out.extend((0..view.rows).map(|row| match path {
            Path::Floats => dot_f32(view.dense_row(row).iter().copied(), x),
            Path::Fixed => {
                let lut = FixedLut::new(view.row_lut(row));
                dot_i16(view.entries(row).into_iter().map(|entry| lut.centroids[entry]), lut.scale, &quants)
            }
        }));
    }
    out
}
