//! Products of all types and shapes: the exact ones have the processor's bits, those in half precision the bits of a
//! token whatever stands beside it, near the product in double precision.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use trine::Isa;
use trine::ops::matmul::{Activations, Matrix, matmul};
use trine_cuda::driver::Context;
use trine_formats::gguf::Blob;
use trine_formats::types::{REGISTRY, TypeId};

use super::product::{Product, Shape, Way};
use super::{Options, Report};
use crate::inputs::{Rng, tame};

/// Rows and columns of the matrices of models that are run.
const SHAPES: &[(usize, usize)] = &[
    (3840, 2560),
    (13824, 2560),
    (2560, 6912),
    (20480, 3200),
    (4096, 4096),
    (12288, 4096),
    (22016, 4096),
    (4096, 11008),
    (768, 3072),
    (57344, 8192),
    (8192, 28672),
];
const SMALL: &[(usize, usize)] = &[(40, 256)];
/// Whole tiles of the kernels for two of four weights.
const SMALL_PRUNED: (usize, usize) = (64, 256);
/// Tokens, so that every kernel is asked for and every tile has an end.
const TOKENS: &[usize] = &[1, 5, 8, 9, 16, 17, 33, 64, 130];
const SMALL_TOKENS: &[usize] = &[1, 9];
/// Types with kernels of their own, whose products are exact.
const EXACT: &[TypeId] =
    &[TypeId::TQ2_0, TypeId::TQ1_0, TypeId::Q8_0, TypeId::Q4_0, TypeId::F16, TypeId::BF16, TypeId::F32];
/// Types that are integers and checked on all shapes: the files of most models. The others are checked on small ones.
const USUAL: &[TypeId] = &[TypeId::Q4_K, TypeId::Q6_K];
/// Types that have products in half precision, and what the zero of their codes is.
const HALVES: &[TypeId] = &[TypeId::TQ2_0, TypeId::Q4_0, TypeId::F16, TypeId::BF16];
/// The largest matrix whose floats are multiplied, because the processor takes long, and of all types that are integers.
const MOST_SIMPLE: usize = 20_000_000;

/// Runs all products, from the small ones to the large ones, until the time is up.
///
/// # Errors
/// The device's error.
pub fn run(context: &mut Context, options: &Options, report: &mut Report) -> Result<()> {
    let start = Instant::now();
    let (shapes, tokens) = match options.small {
        true => (SMALL, SMALL_TOKENS),
        false => (SHAPES, TOKENS),
    };
    let mut shapes = shapes.to_vec();
    shapes.sort_by_key(|(rows, columns)| rows * columns);
    let mut left = Vec::new();
    for shape in shapes {
        let of_integers = REGISTRY.iter().map(|info| info.id).filter(|&ty| trine_cuda::plan::integers(ty).is_some());
        let exact = EXACT.iter().copied().chain(of_integers).map(|ty| (ty, Way::Exact));
        let halves = HALVES.iter().map(|&ty| (ty, Way::Halves));
        for (ty, way) in exact.chain(halves).chain([(TypeId::Q4_0, Way::Pruned)]) {
            let (rows, columns) = match way {
                Way::Pruned if options.small => SMALL_PRUNED,
                _ => shape,
            };
            let simple =
                [TypeId::F16, TypeId::BF16, TypeId::F32].contains(&ty) || !EXACT.contains(&ty) && !USUAL.contains(&ty);
            if simple && rows * columns > MOST_SIMPLE {
                continue;
            }
            let shape = Shape { ty, rows, columns, tokens: 1, way };
            if start.elapsed() > options.limit {
                left.push(shape.name());
                continue;
            }
            of_matrix(context, shape, tokens, report)?;
        }
    }
    report.set("checks_without_time", json!(left))
}

/// The products of one matrix with all numbers of tokens.
fn of_matrix(context: &mut Context, shape: Shape, tokens: &[usize], report: &mut Report) -> Result<()> {
    let most = tokens.iter().copied().max().unwrap_or(1);
    let seed = (shape.rows * 31 + shape.columns) as u64;
    let mut rng = Rng::new(seed);
    let data = weights(&mut rng, shape)?;
    let x: Vec<f32> = (0..most * shape.columns).map(|_| rng.normal()).collect();
    let isa = Isa::detect();
    let matrix = Matrix::new(shape.ty, shape.columns, shape.rows, Blob::from_vec(data.clone()), isa);
    let matrix = matrix.context("a matrix")?;
    let [expected] = matmul([&matrix], &Activations::new(&x, shape.columns, isa));
    // In half precision: the first token of all passes.
    let mut alone: Option<Vec<f32>> = None;
    for &tokens in tokens {
        let shape = Shape { tokens, ..shape };
        let mut product = Product::new(context, shape, &data, 1)?;
        let x = &x[..tokens * shape.columns];
        let found = product.run(context, x)?;
        let again = product.run(context, x)?;
        let expected = &expected[..tokens * shape.rows];
        let differing = differing(&found, expected);
        let unsteady = self::differing(&found, &again);
        let mut about = json!({"seed": seed, "differing": differing, "between_runs": unsteady});
        let passed = if shape.way != Way::Exact {
            let error = error(&found, expected);
            let first = alone.get_or_insert_with(|| found[..shape.rows].to_vec());
            let beside = self::differing(&found[..shape.rows], first);
            about["error"] = json!(error);
            about["by_batch"] = json!(beside);
            // The processor's activations have eight bits, so that the two differ by their rounding alone.
            error < 0.02 && beside == 0
        } else {
            differing == 0
        };
        report.check(&shape.name(), passed && unsteady == 0, about)?;
    }
    Ok(())
}

/// Random codes with small scales; with two of four zeros where that is asked for.
///
/// # Errors
/// A type without blocks.
pub fn weights(rng: &mut Rng, shape: Shape) -> Result<Vec<u8>> {
    let info = shape.ty.info().context("a type")?;
    let mut data = rng.bytes(shape.bytes());
    let rows = data.len() / shape.rows;
    data.chunks_exact_mut(rows).for_each(|row| tame(info, row));
    if shape.way == Way::Pruned {
        data.chunks_exact_mut(info.bytes).for_each(|block| prune(rng, block));
    }
    ensure!(data.len() == shape.bytes(), "{}", shape.name());
    Ok(data)
}

/// Makes two of four weights of a block of Q4_0 zeros. Its bytes hold a column in the lower half and that 16 behind it in the
/// upper one.
fn prune(rng: &mut Rng, block: &mut [u8]) {
    for four in block[2..].chunks_exact_mut(4) {
        for (zero, place) in [(8, 15), (8 << 4, 15 << 4)] {
            let first = rng.below(4);
            for at in [first, first + 1 + rng.below(3)] {
                four[at % 4] = four[at % 4] & !place | zero;
            }
        }
    }
}

/// How many bits patterns differ; the payload of a NaN is not promised.
fn differing(a: &[f32], b: &[f32]) -> usize {
    let same = |(a, b): &(&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    let pairs = a.iter().zip(b);
    pairs.filter(|pair| !same(pair)).count() + a.len().abs_diff(b.len())
}

/// The root of the mean square of the difference, beside that of what is expected. NaN where anything is.
fn error(found: &[f32], expected: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let pairs = found.iter().zip(expected);
    let apart: f64 = pairs.map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let size: f64 = expected.iter().map(|&x| square(f64::from(x))).sum();
    (apart / size).sqrt()
}
