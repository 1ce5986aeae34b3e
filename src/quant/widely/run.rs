//! Carries out a plan, a few megabytes of weights at a time.

use rayon::prelude::*;
use trine_formats::gguf::ModelFile;
use trine_formats::types::num::{f16_to_f32, f32_to_f16};
use trine_formats::types::{EncodeFn, TypeId};
use trine_formats::widely::{Rule, Shape, WidelyMatrix, dense_rows, find};

use super::plan::{Content, Plan, Row};
use super::rows::{Tensor, Writer};
use super::{WidelyQuantError, fork, plan};
use crate::arch::source_row;
use crate::kernels::{self, Isa};
use crate::quant::method::{Method, News, Run};
use crate::widely::encode;

/// Weights that are encoded between two writes.
const CHUNK_WEIGHTS: usize = 1 << 21;

/// Weights that are not finite and a model that is damaged are errors. The report is the size of the file.
impl Method for &Plan {
    type Report = u64;
    type Error = WidelyQuantError;

    fn work(&self) -> u64 {
        self.rows.iter().map(|r| r.work).sum()
    }

    fn make(self, run: &mut Run<'_>) -> Result<u64, WidelyQuantError> {
        run.create(run.out, self.layout()?, &[])?;
        let (pool, model, isa) = (run.pool, run.model, run.options.isa);
        let (file, news) = (&run.files[0], &mut run.news);
        let mut scales = Vec::new();
        pool.install(|| {
            self.rows.iter().enumerate().try_for_each(|(tensor, row)| {
                let writer = &mut Writer { file: &file.writer, tensor, at: 0 };
                self.make_row(model, isa, row, &mut scales, writer, news)
            })
        })?;
        Ok(file.layout.file_bytes())
    }
}

impl Plan {
    /// Makes one tensor. The `scales` of a matrix come after its words.
    fn make_row(
        &self,
        model: &ModelFile,
        isa: Isa,
        row: &Row,
        scales: &mut Vec<f32>,
        writer: &mut Writer<'_>,
        news: &mut News<'_>,
    ) -> Result<(), WidelyQuantError> {
        let (rule, tensor) = (&self.header.rule, writer.tensor);
        let mut tell = |bytes| news.tell(|i| &self.rows[i].name, tensor, bytes);
        tell(0);
        match row.content {
            Content::Copied { head } => copy(model, row, head, isa, writer)?,
            Content::Codes { shape, head } => {
                let size = (2 * shape.rows, 2 * shape.columns);
                let mut masters = Tensor::open(model, &row.source, size, head, isa)?;
                let bytes = row.work / (crate::widely::passes(rule) * size.0) as u64;
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
        tell(row.work);
        Ok(())
    }
}

/// The bytes of a tensor, its rows in another order where it has heads whose rows change places.
fn copy(
    model: &ModelFile,
    row: &Row,
    head: Option<u64>,
    isa: Isa,
    writer: &mut Writer<'_>,
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
    writer: &mut Writer<'_>,
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
