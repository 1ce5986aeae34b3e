//! Makes tensors, a few megabytes of weights at a time.

use rayon::prelude::*;
use trine_formats::gguf::ModelFile;
use trine_formats::types::num::{f16_to_f32, f32_to_f16};
use trine_formats::types::{EncodeFn, TypeId};
use trine_formats::widely::{Header, Rule, Shape, WidelyMatrix, dense_rows, find};

use super::content::Content;
use super::error::WidelyQuantError;
use super::fork;
use super::rows::{Tensor, Writer};
use crate::arch::source_row;
use crate::kernels::{self, Isa};
use crate::quant::plan::Plan;
use crate::quant::row::Row;
use crate::quant::work::{Output, Run};
use crate::widely::{encode, passes};

/// Weights that are encoded between two writes.
const CHUNK_WEIGHTS: usize = 1 << 21;

/// Makes row number `index` of a plan. The `scales` of a matrix come after its words.
pub(super) fn row(
    rule: &Rule,
    content: Content,
    index: usize,
    plan: &Plan,
    scales: &mut Vec<f32>,
    run: &mut Run<'_>,
) -> Result<(), WidelyQuantError> {
    let (model, isa, row) = (run.model, run.options.isa, &plan.rows[index]);
    let writer = &mut Writer { output: Output::of(&run.files, run.places[index]), at: 0 };
    let mut tell = |bytes| run.news.tell(|i| &plan.rows[i].name, index, bytes);
    tell(0);
    match content {
        Content::Copied { head } => reorder(model, row, head, isa, writer)?,
        Content::Codes { shape, head } => {
            let size = (2 * shape.rows, 2 * shape.columns);
            let mut masters = Tensor::open(model, &row.source.name, size, head, isa)?;
            let bytes = row.bytes_from / (passes(rule) * size.0) as u64;
            let sink = &mut |words: &[u8]| Ok(writer.write(words)?);
            *scales = encode(rule, &shape, &mut masters, sink, &mut |rows| tell(rows as u64 * bytes))?;
            masters.release();
            return Ok(());
        }
        Content::Tiles { shape } => *scales = fork::write_codes(model, row, &shape, writer)?,
        Content::Embeddings => fork::write_embeddings(model, row, writer)?,
        Content::Scales => {
            let bytes: Vec<u8> = scales.drain(..).flat_map(f32::to_le_bytes).collect();
            writer.write(&bytes)?;
        }
        Content::Dense { shape, head } => expand(model, rule, row, &shape, head, isa, writer)?,
    }
    tell(row.bytes_from);
    Ok(())
}

/// The bytes of a tensor, the rows of its heads in another order.
fn reorder(
    model: &ModelFile,
    row: &Row,
    head: Option<u64>,
    isa: Isa,
    writer: &mut Writer<'_>,
) -> Result<(), WidelyQuantError> {
    // a vector has an element for each row of its matrix
    let size = match row.shape[..] {
        [columns, rows] => (rows as usize, columns as usize),
        _ => (row.shape.iter().product::<u64>() as usize, 1),
    };
    // files with widely linear matrices have the order of checkpoints already
    let back = !Header::is_in(model.meta());
    let tensor = Tensor::open(model, &row.source.name, size, head.filter(|_| back), isa)?;
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
    writer: &mut Writer<'_>,
) -> Result<(), WidelyQuantError> {
    let (rows, columns) = (2 * shape.rows, 2 * shape.columns);
    let matrix = find(model, rule, &row.source.name, rows, columns)?;
    let matrix = matrix.ok_or_else(|| WidelyQuantError::CutOff { tensor: row.source.name.clone() })?;
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
