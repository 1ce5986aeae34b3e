//! Moves one tensor: takes it apart, puts it together in the other format, and compares the two.

use rayon::prelude::*;
use thiserror::Error;
use trine_formats::types::ternary::{Packing, TernaryError, ternarize};
use trine_formats::types::{EncodeFn, TypeId};

use super::codes::{Codes, NoCodes};
use super::compare::compare;
use super::decode::{Decoder, Scratch, value};
use super::report::{Inexact, Moved, Why};
use super::types::is_packed;
use crate::quant::round::RowFault;
use crate::quant::row::{Move, Row};
use crate::quant::validate::first_bad;

/// Why a tensor could not be moved at all.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
pub enum MoveFault {
    #[error("a value is not finite: {0:?}")]
    Row(RowFault),
    #[error(transparent)]
    Ternary(#[from] TernaryError),
    #[error("its scale is {0}; the model is damaged")]
    Scale(f32),
    #[error("{0} cannot be converted")]
    Codec(TypeId),
}

/// The data of `row` in its new type, and what became of its weights. Where they cannot be held exactly
/// the data is the nearest there is: codes are kept and the largest scale stands for all, as bitnet.cpp's
/// quantizer does; weights that are no codes are quantized.
///
/// # Errors
/// Data that cannot be read, scales too large for the target.
pub fn carry(row: &Row, how: Move, data: &[u8]) -> Result<(Vec<u8>, Moved), MoveFault> {
    if let Some((block, what)) = first_bad(row.from, row.columns() as usize, data) {
        let block = block as u64;
        return Err(MoveFault::Row(RowFault::Input { block, what }));
    }
    let columns = row.columns() as usize;
    let rows: u64 = row.shape.iter().skip(1).product();
    let shape = (columns, rows as usize);
    let source = Decoder::new(row.from, how.from, shape.0, shape.1, data)?.ok_or(MoveFault::Codec(row.from))?;
    let (out, why) = match Codes::read(row.from, &source) {
        Ok(codes) => write(row.to, how.to, shape, codes)?,
        Err(NoCodes::NotTernary { row: r, column }) => {
            let out = quantize(row.to, how.to, &source)?;
            (out, Some(Why::NotTernary { row: r, column }))
        }
        Err(NoCodes::Scale(scale)) => return Err(MoveFault::Scale(scale)),
        Err(NoCodes::Damaged(e)) => return Err(MoveFault::Ternary(e)),
    };
    if let Some((block, what)) = first_bad(row.to, columns, &out) {
        let block = block as u64;
        return Err(MoveFault::Row(RowFault::Output { block, what }));
    }
    let result = Decoder::new(row.to, how.to, shape.0, shape.1, &out)?.ok_or(MoveFault::Codec(row.to))?;
    let comparison = compare(&source, &result)?;
    let inexact = comparison.first.map(|first| Inexact {
        why: why.unwrap_or(Why::Rounded { scale: first.was.abs(), stored: first.is.abs() }),
        comparison,
    });
    let moved = Moved {
        name: row.name.clone(),
        from: row.from,
        to: row.to,
        weights: comparison.weights,
        zero_signs: comparison.zero_signs,
        inexact,
    };
    Ok((out, moved))
}

/// Puts a matrix together. The second value says so when scales had to be given up.
fn write(
    to: TypeId,
    packing: Option<Packing>,
    (columns, rows): (usize, usize),
    mut codes: Codes,
) -> Result<(Vec<u8>, Option<Why>), MoveFault> {
    let reach = match packing {
        Some(_) => codes.codes.len().max(1),
        None if to.info().is_some_and(|t| t.row_scale().is_some()) => columns,
        None => to.info().map_or(1, |t| t.block),
    };
    let why = spread(&mut codes, reach);
    if let Some(packing) = packing {
        let scale = codes.used_scales().next().unwrap_or(0.0);
        return Ok((packing.pack(columns, rows, scale, &codes.codes)?, why));
    }
    let (encode, row_bytes) = encoder(to, columns)?;
    let mut out = vec![0; rows * row_bytes];
    out.par_chunks_mut(row_bytes.max(1)).enumerate().for_each_init(
        || vec![0f32; columns],
        |x, (row, out)| {
            for (column, x) in x.iter_mut().enumerate() {
                let at = row * columns + column;
                *x = value(codes.codes[at], codes.scales[at / codes.span]);
            }
            encode(x, None, out);
        },
    );
    Ok((out, why))
}

/// Gives all spans within `reach` weights their largest scale, and tells when they had several.
fn spread(codes: &mut Codes, reach: usize) -> Option<Why> {
    if reach <= codes.span {
        return None;
    }
    let mut groups = 0;
    for scales in codes.scales.chunks_mut(reach.div_ceil(codes.span)) {
        let largest = scales.iter().fold(0f32, |a, &s| a.max(s));
        groups += usize::from(scales.iter().any(|&s| s > 0.0 && s != largest));
    }
    let why = (groups > 0).then(|| {
        let mut distinct: Vec<f32> = codes.used_scales().collect();
        distinct.sort_by(f32::total_cmp);
        distinct.dedup();
        Why::Scales {
            distinct: distinct.len(),
            smallest: distinct[0],
            largest: distinct[distinct.len() - 1],
            reach: (reach < codes.codes.len()).then_some(reach),
        }
    });
    for scales in codes.scales.chunks_mut(reach.div_ceil(codes.span)) {
        let largest = scales.iter().fold(0f32, |a, &s| a.max(s));
        scales.fill(largest);
    }
    why
}

/// The quantizer of the target for weights that are not ternary.
fn quantize(to: TypeId, packing: Option<Packing>, source: &Decoder<'_>) -> Result<Vec<u8>, MoveFault> {
    let (columns, rows) = (source.columns(), source.rows());
    let mut scratch = Scratch::default();
    if let Some(packing) = packing {
        let mut x = vec![0f32; columns * rows];
        for (row, x) in x.chunks_exact_mut(columns.max(1)).enumerate() {
            source.row(row, &mut scratch, x)?;
        }
        let mut codes = vec![0; x.len()];
        let scale = ternarize(&x, &mut codes);
        return Ok(packing.pack(columns, rows, scale, &codes)?);
    }
    let (encode, row_bytes) = encoder(to, columns)?;
    let (mut x, mut out) = (vec![0f32; columns], vec![0; rows * row_bytes]);
    for (row, out) in out.chunks_exact_mut(row_bytes.max(1)).enumerate() {
        source.row(row, &mut scratch, &mut x)?;
        encode(&x, None, out);
    }
    Ok(out)
}

fn encoder(to: TypeId, columns: usize) -> Result<(EncodeFn, usize), MoveFault> {
    let parts = || {
        let info = to.info().filter(|_| !is_packed(to))?;
        let row_bytes = usize::try_from(info.row_bytes(columns as u64)?).ok()?;
        Some((info.encode?, row_bytes))
    };
    parts().ok_or(MoveFault::Codec(to))
}
