//! Carries out a plan, a few megabytes of weights at a time.

use std::path::Path;

use rayon::prelude::*;
use trine_formats::gguf::ModelFile;
use trine_formats::gguf::write::Writer;
use trine_formats::types::num::{f16_to_f32, f32_to_f16};
use trine_formats::types::{EncodeFn, TypeId};
use trine_formats::widely::{Rule, Shape, WidelyMatrix, dense_rows, find};

use super::plan::{Content, Plan, Row};
use super::rows::Tensor;
use super::{WidelyQuantError, fork, plan};
use crate::arch::source_row;
use crate::kernels::{self, Isa};
use crate::quant::options::RunOptions;
use crate::widely::encode;

/// Weights that are encoded between two writes.
const CHUNK_WEIGHTS: usize = 1 << 21;

/// Is told how far the work is.
pub trait Progress {
    /// The next tensor of the plan.
    fn tensor(&mut self, row: &Row);
    /// So many more bytes of [`Plan::work`] are done.
    fn advance(&mut self, bytes: u64);
}

/// No news.
impl Progress for () {
    fn tensor(&mut self, _: &Row) {}
    fn advance(&mut self, _: u64) {}
}

/// Carries out `plan` for the model it was made from; the size of the file, which appears under its name when it is
/// complete. The bytes depend on no option.
///
/// # Errors
/// I/O; weights that are not finite; a model that is damaged.
pub fn run(
    model: &ModelFile,
    plan: &Plan,
    out: &Path,
    options: RunOptions,
    progress: &mut (dyn Progress + Send),
) -> Result<u64, WidelyQuantError> {
    let threads = options.threads;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|e| WidelyQuantError::Threads { threads, why: e.to_string() })?;
    let inputs: Vec<&Path> = model.shards().iter().map(|s| s.path.as_path()).collect();
    let mut writer = Writer::create(out, plan.layout()?, &inputs)?;
    let rule = &plan.header.rule;
    pool.install(|| {
        let mut scales = Vec::new();
        for row in &plan.rows {
            progress.tensor(row);
            match row.content {
                Content::Copied { head } => copy(model, row, head, options.isa, &mut writer)?,
                Content::Codes { shape, head } => {
                    let size = (2 * shape.rows, 2 * shape.columns);
                    let mut masters = Tensor::open(model, &row.source, size, head, options.isa)?;
                    let bytes = row.work / (crate::widely::passes(rule) * size.0) as u64;
                    let sink = &mut |words: &[u8]| Ok(writer.write(words)?);
                    let done = &mut |rows| progress.advance(rows as u64 * bytes);
                    scales = encode(rule, &shape, &mut masters, sink, done)?;
                    masters.release();
                    continue;
                }
                Content::Tiles { shape } => {
                    scales = fork::write_codes(model, row, &shape, &mut writer)?;
                }
                Content::Embeddings => fork::write_embeddings(model, row, &mut writer)?,
                Content::Scales => {
                    let bytes: Vec<u8> = scales.drain(..).flat_map(f32::to_le_bytes).collect();
                    writer.tensor(&row.name, &bytes)?;
                }
                Content::Dense { shape, head } => {
                    expand(model, rule, row, &shape, head, options.isa, &mut writer)?;
                }
            }
            progress.advance(row.work);
        }
        Ok(writer.finish()?)
    })
}

/// The bytes of a tensor, its rows in another order where it has heads whose rows change places.
fn copy(
    model: &ModelFile,
    row: &Row,
    head: Option<u64>,
    isa: Isa,
    writer: &mut Writer,
) -> Result<(), WidelyQuantError> {
    if head.is_none() {
        let data = model.tensor(&row.source).map(|t| t.data);
        let data = data.ok_or_else(|| WidelyQuantError::CutOff { tensor: row.source.clone() })?;
        writer.write(&data)?;
        data.release();
        return Ok(());
    }
    // a vector has an element for each row of its matrix
    let size = match row.shape[..] {
        [columns, rows] => (rows as usize, columns as usize),
        _ => (row.shape.iter().product::<u64>() as usize, 1),
    };
    let back = plan::is_interleaved(model);
    let tensor = Tensor::open(model, &row.source, size, head.filter(|_| back), isa)?;
    let bytes: Vec<u8> = match back {
        true => tensor.bytes().flatten().copied().collect(),
        false => tensor.interleaved(head).flatten().copied().collect(),
    };
    Ok(writer.write(&bytes)?)
}

/// The real matrix that the stages of a matrix add up to.
fn expand(
    model: &ModelFile,
    rule: &Rule,
    row: &Row,
    shape: &Shape,
    head: Option<u64>,
    isa: Isa,
    writer: &mut Writer,
) -> Result<(), WidelyQuantError> {
    let (rows, columns) = (2 * shape.rows, 2 * shape.columns);
    let matrix = find(model, rule, &row.source, rows, columns)?;
    let matrix = matrix.ok_or_else(|| WidelyQuantError::CutOff { tensor: row.source.clone() })?;
    let codec = || {
        let row_bytes = row.to.info()?.row_bytes(columns as u64)? as usize;
        Some((kernels::encode_rows(row.to, isa)?, row_bytes))
    };
    let (encode, row_bytes) =
        codec().ok_or_else(|| WidelyQuantError::Codec { tensor: row.name.clone(), ty: row.to })?;
    let step = (CHUNK_WEIGHTS / columns).max(1);
    for first in (0..rows).step_by(step) {
        let count = step.min(rows - first);
        let mut bytes = vec![0; count * row_bytes];
        bytes.par_chunks_mut(row_bytes).enumerate().try_for_each(|(i, out)| {
            let source = source_row(head, (first + i) as u64) as usize;
            expand_row(&matrix, source, row, encode, out)
        })?;
        writer.write(&bytes)?;
    }
    matrix.codes.release();
    Ok(())
}

/// Real row `real` of a matrix, encoded.
fn expand_row(
    matrix: &WidelyMatrix,
    real: usize,
    row: &Row,
    encode: EncodeFn,
    out: &mut [u8],
) -> Result<(), WidelyQuantError> {
    let shape = &matrix.shape;
    let complex = real % shape.rows;
    let mut halves = [(); 2].map(|()| vec![0.0; 2 * shape.columns]);
    let [top, bottom] = &mut halves;
    let words = matrix.words(complex);
    dense_rows(shape, complex, &words, &matrix.scales, top, bottom);
    let weights = &halves[real / shape.rows];
    let too_large = |v: &&f32| row.to == TypeId::F16 && !f16_to_f32(f32_to_f16(**v)).is_finite();
    if let Some(&value) = weights.iter().find(too_large) {
        return Err(WidelyQuantError::Overflow { tensor: row.name.clone(), row: real, value, ty: row.to });
    }
    encode(weights, None, out);
    Ok(())
}
