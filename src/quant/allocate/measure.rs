//! The losses of tensors in types, found by encoding them.

use rayon::prelude::*;
use trine_formats::gguf::ModelFile;
use trine_formats::hessian::Reads;
use trine_formats::types::TypeId;

use crate::kernels;
use crate::progress::Progress;
use crate::quant::encoder::Encoder;
use crate::quant::error::QuantError;
use crate::quant::gptq::Sample;
use crate::quant::plan::Fault;
use crate::quant::recipe::Recipe;
use crate::quant::round::RowFault;
use crate::quant::row::Row;
use crate::quant::source::ShardReader;
use crate::quant::validate::first_bad;
use crate::quant::work::{News, RunError, RunOptions, go_on};

/// Weights of a tensor that are encoded at most, in whole rows at equal distances: the mean over more of them moves by
/// less than types differ.
const SAMPLE: u64 = 1 << 17;
/// The same of one that is rounded with error feedback, which takes longer.
const FED_SAMPLE: u64 = 1 << 14;
/// Rows at least.
const ROWS: u64 = 8;
/// Tensors whose results are told at a time.
const BATCH: usize = 8;

/// For each tensor, and each of its types: the squared error of its products relative to them. That is Σ w (x - x')² / Σ w x²
/// over its weights x, with the importance w of their columns, and for tensors that are rounded with error feedback
/// Σ r H rᵀ / Σ x H xᵀ over its rows. Summed in order, so the digits are the same everywhere.
pub fn losses(
    model: &ModelFile,
    rows: &[&Row],
    types: &[Vec<TypeId>],
    recipe: &Recipe,
    options: &RunOptions,
    progress: &mut dyn Progress,
) -> Result<Vec<Vec<f64>>, QuantError> {
    let pool = options.pool()?;
    let readers: Vec<ShardReader> = model.shards().iter().map(ShardReader::new).collect();
    let of = |i: usize| {
        let row = rows[i];
        let weights = recipe.importance.as_ref().and_then(|all| all.get(&row.source.name)).filter(|_| row.weighted);
        tensor(row, &types[i], &readers[row.source.shard], weights, recipe.encoder, options)
    };
    let mut out = vec![Vec::new(); rows.len()];
    // Tensors that read the same input lie side by side: its Hessian is factored once.
    let reads: Vec<Option<Reads>> =
        rows.iter().map(|row| recipe.gptq.as_ref().and_then(|gptq| Sample::reads(gptq, row))).collect();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&i| reads[i].map(|reads| (reads.first, reads.experts)));
    let mut news = News::new(progress);
    let mut told = 0;
    let mut tell = |some: &[usize]| {
        for &i in some {
            news.tell(|at| rows[order[at]].name.as_str(), told, rows[i].bytes_from);
            told += 1;
        }
    };
    for some in order.chunk_by(|&a, &b| reads[a] == reads[b]) {
        let Some((gptq, reads)) = recipe.gptq.as_ref().zip(reads[some[0]]) else {
            for some in some.chunks(BATCH) {
                let losses = pool.install(|| some.par_iter().map(|&i| of(i)).collect::<Result<Vec<_>, _>>())?;
                some.iter().zip(losses).for_each(|(&i, losses)| out[i] = losses);
                tell(some);
            }
            continue;
        };
        let sample = Sample::new(gptq, reads, options.isa).map_err(|fault| rows[some[0]].blame(fault));
        let mut sample = sample.map_err(Fault::from)?;
        for &i in some {
            go_on(&options.cancel)?;
            let data = sampled(rows[i], &readers[rows[i].source.shard])?;
            out[i] = pool.install(|| sample.losses(rows[i], &types[i], &data))?;
            tell(&[i]);
        }
    }
    readers.iter().try_for_each(ShardReader::unchanged).map_err(RunError::from)?;
    Ok(out)
}

/// Row number `r` of a tensor, as it is in the file.
///
/// # Errors
/// I/O; a value that is not finite.
fn read_row<'b>(row: &Row, reader: &'b ShardReader, r: u64, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], RunError> {
    let columns = row.columns();
    let bytes = row.bytes_from / (row.weights() / columns.max(1)).max(1);
    let data = reader.read_chunk(row, r * bytes, bytes as usize, buffer)?;
    if let Some((block, what)) = first_bad(row.from, columns as usize, data) {
        let per_row = columns / row.from.info().map_or(1, |info| info.block as u64);
        return Err(RowFault::Input { block: r * per_row + block as u64, what }.of(row));
    }
    Ok(data)
}

/// Some rows of the first matrix of a tensor, at equal distances.
fn sampled(row: &Row, reader: &ShardReader) -> Result<Vec<u8>, RunError> {
    let rows = row.shape.get(1).copied().unwrap_or(1);
    let count = rows.min(ROWS.max(FED_SAMPLE / row.columns().max(1)));
    let (mut data, mut buffer) = (Vec::new(), Vec::new());
    for i in 0..count {
        data.extend_from_slice(read_row(row, reader, i * rows / count, &mut buffer)?);
    }
    Ok(data)
}

/// The losses of one tensor.
fn tensor(
    row: &Row,
    types: &[TypeId],
    reader: &ShardReader,
    weights: Option<&[f32]>,
    encoder: Encoder,
    options: &RunOptions,
) -> Result<Vec<f64>, RunError> {
    let columns = row.columns() as usize;
    let rows = row.weights() / row.columns().max(1);
    let sampled = rows.min(ROWS.max(SAMPLE / row.columns().max(1)));
    let per_matrix = row.shape.get(1).copied().unwrap_or(1).max(1);
    let decode = kernels::decode_rows(row.from, options.isa);
    let encoders: Vec<_> = types.iter().map(|&ty| encoder.of(ty, columns, options.isa)).collect();
    let mut energy = 0.0;
    let mut errors = vec![0.0; types.len()];
    let (mut source, mut back) = (vec![0.0; columns], vec![0.0; columns]);
    let (mut buffer, mut encoded) = (Vec::new(), Vec::new());
    for i in 0..sampled {
        go_on(&options.cancel)?;
        let r = i * rows / sampled;
        let data = read_row(row, reader, r, &mut buffer)?;
        let Some(decode) = decode else { continue };
        decode(data, &mut source);
        let weights = weights.and_then(|all| all.chunks_exact(columns).nth((r / per_matrix) as usize));
        energy += weighted(&source, None, weights);
        for ((&ty, encoder), error) in
            types.iter().zip(&encoders).zip(&mut errors).filter(|((ty, _), _)| **ty != row.from)
        {
            let (Some(encoder), Some(decode), Some(info)) = (encoder, kernels::decode_rows(ty, options.isa), ty.info())
            else {
                *error = f64::INFINITY;
                continue;
            };
            encoded.resize(info.row_bytes(row.columns()).unwrap_or(0) as usize, 0);
            encoder.encode(&source, weights, &mut encoded, &mut back);
            decode(&encoded, &mut back);
            *error += weighted(&source, Some(&back), weights);
        }
    }
    // A tensor of zeros loses nothing in any type.
    Ok(errors.into_iter().map(|error| if energy > 0.0 { error / energy } else { 0.0 }).collect())
}

/// Σ w (a - b)²; without `b` that of `a` alone, without weights all are 1.
fn weighted(a: &[f32], b: Option<&[f32]>, weights: Option<&[f32]>) -> f64 {
    let mut sum = 0.0;
    for (i, &a) in a.iter().enumerate() {
        let difference = f64::from(a) - b.map_or(0.0, |b| f64::from(b[i]));
        sum += difference * difference * weights.map_or(1.0, |w| f64::from(w[i]));
    }
    sum
}
