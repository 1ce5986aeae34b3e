//! Rounding a tensor: its rows in strips that threads take.

use rayon::prelude::*;
use trine_formats::types::TypeInfo;

use super::Options;
use super::clip::Clip;
use super::encoded::Encoded;
use super::factor::Factor;
use super::rounding::Rounding;
use super::rows::round_rows;
use crate::kernels::{self, Isa};
use crate::quant::convert::RowFault;
use crate::quant::row::Row;
use crate::quant::validate::first_bad;

/// Rows that a thread rounds together: they share the reading of the triangle.
const STRIP: usize = 32;

/// Rounds the weights `data` of a tensor whose rows read the input of `factor`; the bytes of the result. In parallel.
///
/// # Errors
/// A value of the input that is not finite; else one of the output.
pub fn round(
    row: &Row,
    data: &[u8],
    factor: &Factor,
    options: &Options,
    isa: Isa,
) -> Result<Vec<u8>, RowFault> {
    if let Some((block, what)) = first_bad(row.from, data) {
        let block = block as u64;
        return Err(RowFault::Input { block, what });
    }
    let mut out = vec![0; row.bytes as usize];
    let columns = factor.columns();
    let rows = (row.weights() / row.columns().max(1)).max(1) as usize;
    let (from, to) = (data.len() / rows, out.len() / rows);
    // The plan has asked for all of these before.
    let (Some(info), Some(decode)) = (row.to.info(), kernels::decode_rows(row.from, isa)) else {
        unreachable!("{} to {} is no conversion", row.from, row.to);
    };
    let strips = data.par_chunks(STRIP * from);
    strips
        .zip(out.par_chunks_mut(STRIP * to))
        .for_each(|(data, out)| {
            let mut floats = vec![0.0; columns];
            let mut weights = Vec::with_capacity(data.len() / from * columns);
            for data in data.chunks_exact(from) {
                decode(data, &mut floats);
                let alive = |(j, &w): (usize, &f32)| if factor.is_dead(j) { 0.0 } else { w.into() };
                weights.extend(floats.iter().enumerate().map(alive));
            }
            let mut rounding = rounding(info, factor, *options, isa);
            round_rows(isa, factor, &mut *rounding, &mut weights, out);
        });
    match first_bad(row.to, &out) {
        Some((block, what)) => {
            let block = block as u64;
            Err(RowFault::Output { block, what })
        }
        None => Ok(out),
    }
}

/// How weights become a type.
fn rounding<'a>(
    info: &'static TypeInfo,
    factor: &'a Factor,
    options: Options,
    isa: Isa,
) -> Box<dyn Rounding + 'a> {
    let (Some(grid), Some(encode)) = (info.id.grid(), kernels::encode_rows(info.id, isa)) else {
        unreachable!("the plan takes types with a grid");
    };
    match Clip::new(info, grid, factor, options, isa) {
        Some(clip) => Box::new(clip),
        None => Box::new(Encoded::new(info, grid, encode, factor)),
    }
}
