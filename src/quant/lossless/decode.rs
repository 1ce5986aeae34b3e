//! The weights of any tensor, row by row.

use trine_formats::types::ternary::{Packing, TernaryData, TernaryError};
use trine_formats::types::{DecodeFn, TypeId};

/// A matrix, or a stack of them, whose rows can be decoded in any order.
pub struct Decoder<'a> {
    columns: usize,
    rows: usize,
    storage: WeightStorage<'a>,
}

/// The encoded weights: rows of blocks, or a ternary matrix that is packed as a whole.
enum WeightStorage<'a> {
    Rows { decode: DecodeFn, row_bytes: usize, data: &'a [u8] },
    Packed(TernaryData<'a>),
}

impl<'a> Decoder<'a> {
    /// Looks at `data` as `rows` x `columns` weights of `ty`; `packing` is needed by I2_S, TL1 and TL2.
    /// `None` for types without decoder.
    ///
    /// # Errors
    /// Data that is no such matrix.
    pub fn new(
        ty: TypeId,
        packing: Option<Packing>,
        columns: usize,
        rows: usize,
        data: &'a [u8],
    ) -> Result<Option<Decoder<'a>>, TernaryError> {
        let storage = if let Some(packing) = packing {
            WeightStorage::Packed(TernaryData::new(packing, columns, rows, data)?)
        } else {
            let parts = || {
                let info = ty.info()?;
                let row_bytes = usize::try_from(info.row_bytes(columns as u64)?).ok()?;
                (row_bytes.checked_mul(rows)? == data.len()).then_some((info.decode?, row_bytes))
            };
            let Some((decode, row_bytes)) = parts() else {
                return Ok(None);
            };
            WeightStorage::Rows { decode, row_bytes, data }
        };
        Ok(Some(Decoder { columns, rows, storage }))
    }

    pub fn columns(&self) -> usize {
        self.columns
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The matrix, where it has one scale.
    pub fn packed(&self) -> Option<&TernaryData<'a>> {
        match &self.storage {
            WeightStorage::Packed(data) => Some(data),
            WeightStorage::Rows { .. } => None,
        }
    }

    /// Decodes one row into `out`, which must have one place per column. A ternary zero is +0.
    ///
    /// # Errors
    /// A code that stands for no weight.
    pub fn row(&self, row: usize, scratch: &mut Scratch, out: &mut [f32]) -> Result<(), TernaryError> {
        match &self.storage {
            WeightStorage::Rows { decode, row_bytes, data } => {
                decode(&data[row * row_bytes..(row + 1) * row_bytes], out)
            }
            WeightStorage::Packed(data) => {
                scratch.0.resize(self.columns, 0);
                data.unpack_rows(row..row + 1, &mut scratch.0)?;
                let scale = data.scale();
                for (out, &code) in out.iter_mut().zip(&scratch.0) {
                    *out = value(code, scale);
                }
            }
        }
        Ok(())
    }
}

/// Room for the codes of a row.
#[derive(Default)]
pub struct Scratch(Vec<i8>);

/// The weight of a code.
pub fn value(code: i8, scale: f32) -> f32 {
    match code {
        0 => 0.0,
        1 => scale,
        _ => -scale,
    }
}
