//! Converts the rows of a chunk, in parallel and each on its own.

use rayon::prelude::*;
use trine_formats::types::{DecodeFn, EncodeFn, TypeId};

use crate::kernels::{self, Isa};

use super::plan::Row;
use super::source::Chunk;
use super::ternary::{Loss, is_ternary_type};
use super::validate::first_bad;

/// Weights that one task takes: small rows are bundled.
const TASK_WEIGHTS: usize = 1 << 14;

/// A value that is not finite; blocks are counted from the start of the tensor.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowFault {
    Input { block: u64, what: &'static str },
    Output { block: u64, what: &'static str },
}

/// One tensor's conversion.
pub struct Converter<'a> {
    from: TypeId,
    to: TypeId,
    codec: Option<Codec>,
    columns: usize,
    /// Rows of each of the stacked matrices.
    matrix_rows: u64,
    importance: Option<&'a [f32]>,
}

struct Codec {
    decode: DecodeFn,
    encode: EncodeFn,
    /// Of the output type, where the result is to be compared with the source.
    decode_back: Option<DecodeFn>,
    row_bytes: usize,
}

/// What a task needs room for.
struct Scratch {
    row: Vec<f32>,
    back: Vec<f32>,
}

impl<'a> Converter<'a> {
    /// `importance` has one weight per column and stacked matrix. Types that cannot be converted are
    /// copied: the plan has refused them before.
    pub fn new(row: &Row, importance: Option<&'a [f32]>, isa: Isa) -> Converter<'a> {
        let codec = || {
            let to = row.to.info()?;
            Some(Codec {
                decode: kernels::decode_rows(row.from, isa)?,
                encode: kernels::encode_rows(row.to, isa)?,
                decode_back: kernels::decode_rows(row.to, isa).filter(|_| is_ternary_type(row.to)),
                row_bytes: usize::try_from(to.row_bytes(row.columns())?).ok()?,
            })
        };
        Converter {
            from: row.from,
            to: row.to,
            codec: if row.converts() { codec() } else { None },
            columns: row.columns() as usize,
            matrix_rows: row.shape.get(1).copied().unwrap_or(1),
            importance,
        }
    }

    /// The output bytes of a chunk, and for ternary types what was lost.
    ///
    /// # Errors
    /// The first value, in order of the rows, that is not finite.
    pub fn convert(&self, chunk: Chunk) -> Result<(Vec<u8>, Option<Loss>), RowFault> {
        let rows = chunk.rows as usize;
        let source_bytes = chunk.data.len() / rows.max(1);
        let per_task = (TASK_WEIGHTS / self.columns.max(1)).max(1);
        let Some(codec) = &self.codec else {
            let tasks = chunk
                .data
                .par_chunks((per_task * source_bytes).max(1))
                .enumerate();
            let faults: Vec<_> = tasks
                .filter_map(|(i, data)| {
                    let first_row = chunk.first_row + (i * per_task) as u64;
                    self.fault(self.from, first_row, data)
                })
                .collect();
            return match faults.first() {
                Some(&(block, what)) => Err(RowFault::Input { block, what }),
                None => Ok((chunk.data, None)),
            };
        };
        let mut out = vec![0; rows * codec.row_bytes];
        let scratch = || Scratch {
            row: vec![0.0; self.columns],
            back: vec![0.0; self.columns],
        };
        let results: Vec<Result<Loss, RowFault>> = out
            .par_chunks_mut(per_task * codec.row_bytes)
            .zip(chunk.data.par_chunks(per_task * source_bytes))
            .enumerate()
            .map_init(scratch, |scratch, (i, (out, data))| {
                let first_row = chunk.first_row + (i * per_task) as u64;
                self.task(codec, scratch, first_row, data, out)
            })
            .collect();
        let mut total = Loss::default();
        for result in results {
            total.add(&result?);
        }
        Ok((out, codec.decode_back.map(|_| total)))
    }

    fn task(
        &self,
        codec: &Codec,
        scratch: &mut Scratch,
        first_row: u64,
        data: &[u8],
        out: &mut [u8],
    ) -> Result<Loss, RowFault> {
        if let Some((block, what)) = self.fault(self.from, first_row, data) {
            return Err(RowFault::Input { block, what });
        }
        let mut loss = Loss::default();
        let source_bytes = data.len() / (out.len() / codec.row_bytes);
        for (i, (data, out)) in data
            .chunks(source_bytes)
            .zip(out.chunks_mut(codec.row_bytes))
            .enumerate()
        {
            (codec.decode)(data, &mut scratch.row);
            let matrix = ((first_row + i as u64) / self.matrix_rows.max(1)) as usize;
            let importance = self
                .importance
                .and_then(|w| w.chunks_exact(self.columns).nth(matrix));
            (codec.encode)(&scratch.row, importance, out);
            if let Some(decode_back) = codec.decode_back {
                decode_back(out, &mut scratch.back);
                loss.add(&Loss::of_row(&scratch.row, &scratch.back));
            }
        }
        match self.fault(self.to, first_row, out) {
            Some((block, what)) => Err(RowFault::Output { block, what }),
            None => Ok(loss),
        }
    }

    /// The first block that is not finite in rows from `first_row` on, counted through the tensor.
    fn fault(&self, ty: TypeId, first_row: u64, data: &[u8]) -> Option<(u64, &'static str)> {
        let (block, what) = first_bad(ty, data)?;
        let per_row = self.columns as u64 / ty.info()?.block as u64;
        Some((first_row * per_row + block as u64, what))
    }
}
