//! Converts chunks of a tensor, each on its own.

use trine_formats::types::ternary::{Packing, first_bad_byte};
use trine_formats::types::{DecodeFn, TypeId};

use crate::cancel::CancelToken;
use crate::kernels::{self, CompareRows, Isa};
use crate::quant::encoder::Encoder;
use crate::quant::row::{Reason, Row};
use crate::quant::source::Chunk;
use crate::quant::ternary::{Loss, is_ternary_type};
use crate::quant::unbiased::RowEncoder;
use crate::quant::validate::first_bad;
use crate::quant::work::RunError;

/// A value that is not finite; blocks are counted from the start of the tensor.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowFault {
    Input {
        block: u64,
        what: &'static str,
    },
    Output {
        block: u64,
        what: &'static str,
    },
    /// None of a value: the work is to end.
    Cancelled,
}

impl RowFault {
    /// The error that names the tensor of a row.
    pub fn of(self, row: &Row) -> RunError {
        let tensor = row.name.clone();
        match self {
            RowFault::Input { block, what } => RunError::BadInput { tensor, ty: row.from, block, what },
            RowFault::Cancelled => RunError::Cancelled,
            RowFault::Output { block, what } => {
                let option = if let Reason::Option(option) = row.reason { option } else { "--tensor-type" };
                RunError::BadOutput { tensor, ty: row.to, block, what, option }
            }
        }
    }
}

/// One tensor's conversion.
pub struct Converter<'a> {
    from: TypeId,
    to: TypeId,
    codec: Option<Codec>,
    columns: usize,
    /// Rows of each of the stacked matrices.
    matrix_rows: u64,
    /// The shape and layout of a matrix of bitnet.cpp's types that is copied.
    packed: Option<((usize, usize), Option<Packing>)>,
    importance: Option<&'a [f32]>,
}

struct Codec {
    decode: DecodeFn,
    encode: RowEncoder,
    /// The decoder of the output type, where the result is to be compared with the source.
    decode_back: Option<(DecodeFn, CompareRows)>,
    row_bytes: (usize, usize),
}

/// The buffers of a thread, which keeps them from chunk to chunk.
#[derive(Default)]
pub struct Scratch {
    row: Vec<f32>,
    back: Vec<f32>,
    out: Vec<u8>,
}

fn take(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    &mut buffer[..len]
}

/// The facts that [`Converter`] has about the data of a tensor of bitnet.cpp's types that stays as it is.
fn packed(row: &Row) -> Option<((usize, usize), Option<Packing>)> {
    let per_tensor = row.from.info().is_some_and(|t| t.is_per_tensor());
    if row.converts() || !per_tensor {
        return None;
    }
    let rows: u64 = row.shape.iter().skip(1).product();
    let shape = (row.columns() as usize, usize::try_from(rows).ok()?);
    Some((shape, row.packing))
}

impl<'a> Converter<'a> {
    /// `importance` has one weight per column and stacked matrix. Types that cannot be converted are
    /// copied: the plan has refused them before.
    pub fn new(row: &Row, importance: Option<&'a [f32]>, encoder: Encoder, isa: Isa) -> Converter<'a> {
        let codec = || {
            let (from, to) = (row.from.info()?, row.to.info()?);
            let bytes = |n: Option<u64>| usize::try_from(n?).ok().filter(|&n| n > 0);
            Some(Codec {
                decode: kernels::decode_rows(row.from, isa)?,
                encode: encoder.of(row.to, row.columns() as usize, isa)?,
                decode_back: kernels::decode_rows(row.to, isa)
                    .filter(|_| is_ternary_type(row.to))
                    .map(|decode| (decode, kernels::compare_rows(isa))),
                row_bytes: (bytes(from.row_bytes(row.columns()))?, bytes(to.row_bytes(row.columns()))?),
            })
        };
        Converter {
            from: row.from,
            to: row.to,
            codec: if row.converts() { codec() } else { None },
            columns: row.columns() as usize,
            matrix_rows: row.shape.get(1).copied().unwrap_or(1),
            packed: packed(row),
            importance,
        }
    }

    /// The output bytes of a chunk, and for ternary types what was lost.
    ///
    /// # Errors
    /// A value of the input that is not finite, the first one; else one of the output. The work is to end.
    pub fn convert<'b>(
        &self,
        chunk: Chunk,
        data: &'b [u8],
        scratch: &'b mut Scratch,
        cancel: &CancelToken,
    ) -> Result<(&'b [u8], Option<Loss>), RowFault> {
        let info = self.from.info();
        let by_rows = self.codec.is_some() || info.is_some_and(|t| t.row_scale().is_some());
        let per_unit = match by_rows {
            true => self.columns as u64 / info.map_or(1, |t| t.block as u64),
            false => 1,
        };
        if let Some((block, what)) = first_bad(self.from, self.columns, data) {
            let block = chunk.first * per_unit + block as u64;
            return Err(RowFault::Input { block, what });
        }
        if let Some((shape, packing)) = self.packed {
            let start = chunk.from as usize;
            if let Some((at, what)) = first_bad_byte(self.from, packing, shape, start, data) {
                let size = self.from.info().map_or(1, |t| t.bytes);
                let block = ((start + at) / size) as u64;
                return Err(RowFault::Input { block, what });
            }
        }
        let Some(codec) = &self.codec else {
            return Ok((data, None));
        };
        if scratch.out.len() < chunk.to_bytes {
            scratch.out.resize(chunk.to_bytes, 0);
        }
        let row = take(&mut scratch.row, self.columns);
        let out = &mut scratch.out[..chunk.to_bytes];
        let mut loss = Loss::default();
        let rows = data.chunks_exact(codec.row_bytes.0).zip(out.chunks_exact_mut(codec.row_bytes.1));
        for (i, (data, out)) in rows.enumerate() {
            // Some types take tenths of a second for a chunk.
            if cancel.is_cancelled() {
                return Err(RowFault::Cancelled);
            }
            (codec.decode)(data, row);
            let matrix = ((chunk.first + i as u64) / self.matrix_rows.max(1)) as usize;
            let importance = self.importance.and_then(|w| w.chunks_exact(self.columns).nth(matrix));
            codec.encode.encode(row, importance, out, &mut scratch.back);
            if let Some((decode_back, compare)) = codec.decode_back {
                let back = take(&mut scratch.back, self.columns);
                decode_back(out, back);
                loss.add(&Loss::of_row(row, back, compare));
            }
        }
        if let Some((block, what)) = first_bad(self.to, self.columns, out) {
            let per_row = self.columns as u64 / self.to.info().map_or(1, |t| t.block as u64);
            let block = chunk.first * per_row + block as u64;
            return Err(RowFault::Output { block, what });
        }
        Ok((out, codec.decode_back.map(|_| loss)))
    }
}
