//! Rows of a matrix of a GGUF file in the order of the checkpoint, and back; and tensors that are written row by row.

use std::ops::Range;

use rayon::prelude::*;
use trine_formats::gguf::{Blob, ModelFile};
use trine_formats::types::TypeId;

use super::error::WidelyQuantError;
use crate::arch::source_row;
use crate::kernels::{self, Isa};
use crate::quant::work::{Output, RunError};
use crate::widely::Masters;

/// The row of a GGUF file that is row `r` of the checkpoint: the inverse of [`source_row`].
pub(super) fn stored_row(head: Option<u64>, r: u64) -> u64 {
    let Some(d) = head else { return r };
    let (head, i) = (r / d, r % d);
    head * d + i % (d / 2) * 2 + i / (d / 2)
}

/// A matrix, or a vector as a matrix of one column.
pub(super) struct Tensor {
    name: String,
    ty: TypeId,
    data: Blob,
    row_bytes: usize,
    columns: usize,
    rows: usize,
    /// Elements of the heads whose rows are interleaved in the file.
    head: Option<u64>,
    isa: Isa,
}

impl Tensor {
    /// The tensor `name`, `rows` x `columns`.
    pub fn open(
        model: &ModelFile,
        name: &str,
        (rows, columns): (usize, usize),
        head: Option<u64>,
        isa: Isa,
    ) -> Result<Tensor, WidelyQuantError> {
        let cut_off = || WidelyQuantError::CutOff { tensor: name.to_owned() };
        let view = model.tensor(name).ok_or_else(cut_off)?;
        let ty = view.info.ty;
        let row_bytes = ty.info().and_then(|t| t.row_bytes(columns as u64));
        let row_bytes = row_bytes.unwrap_or(0) as usize;
        if row_bytes.checked_mul(rows) != Some(view.data.len()) {
            return Err(cut_off());
        }
        if let Some(head_dim) = head.filter(|&d| d < 2 || !(rows as u64).is_multiple_of(d)) {
            return Err(WidelyQuantError::Heads { tensor: name.to_owned(), rows, head_dim });
        }
        Ok(Tensor { name: name.to_owned(), ty, data: view.data, row_bytes, columns, rows, head, isa })
    }

    /// The bytes in the order of the checkpoint, a row after the other.
    pub fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        let rows = 0..self.rows as u64;
        let rows = rows.map(|r| stored_row(self.head, r) as usize * self.row_bytes);
        rows.map(|at| &self.data[at..at + self.row_bytes])
    }

    /// The bytes of a file whose heads are interleaved from those in the order of the checkpoint, which these are.
    pub fn interleaved(&self, head: Option<u64>) -> impl Iterator<Item = &[u8]> {
        let rows = 0..self.rows as u64;
        let rows = rows.map(move |r| source_row(head, r) as usize * self.row_bytes);
        rows.map(|at| &self.data[at..at + self.row_bytes])
    }

    /// Lets the file's pages go.
    pub fn release(&self) {
        self.data.release();
    }
}

impl Masters for Tensor {
    type Error = WidelyQuantError;

    fn read(&mut self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WidelyQuantError> {
        let decode = kernels::decode_rows(self.ty, self.isa);
        let decode = decode.ok_or_else(|| WidelyQuantError::Codec { tensor: self.name.clone(), ty: self.ty })?;
        out.resize(rows.len() * self.columns, 0.0);
        out.par_chunks_mut(self.columns).enumerate().try_for_each(|(i, out)| {
            let row = stored_row(self.head, (rows.start + i) as u64) as usize;
            decode(&self.data[row * self.row_bytes..][..self.row_bytes], out);
            match out.iter().position(|v| !v.is_finite()) {
                None => Ok(()),
                Some(column) => {
                    Err(WidelyQuantError::NotFinite { tensor: self.name.clone(), row, column, value: out[column] })
                }
            }
        })
    }
}

/// A tensor that is written from its first byte to its last.
pub(super) struct Writer<'a> {
    pub output: Output<'a>,
    /// Number of bytes that are written.
    pub at: u64,
}

impl Writer<'_> {
    /// Writes the next bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), RunError> {
        self.output.write(self.at, bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_heads_go_there_and_back() {
        for head in [None, Some(2), Some(6), Some(64)] {
            for r in 0..192 {
                assert_eq!(source_row(head, stored_row(head, r)), r);
                assert_eq!(stored_row(head, source_row(head, r)), r);
            }
        }
    }
}
