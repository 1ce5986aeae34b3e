//! Rounding a tensor: its rows in strips that threads take.

use rayon::prelude::*;

use super::factor::Factor;
use super::options::Options;
use super::rows::round_rows;
use super::strip::Strip;
use crate::kernels::{self, Isa};
use crate::quant::round::RowFault;
use crate::quant::row::Row;
use crate::quant::validate::first_bad;

/// Rows that a thread rounds together: they share the reading of the triangle.
const STRIP: usize = 32;

/// Rounds the weights `data` of a tensor whose rows read the input of `factor`; the bytes of the result. In parallel.
///
/// # Errors
/// A value of the input that is not finite; else one of the output.
pub fn round(row: &Row, data: &[u8], factor: &Factor, options: &Options, isa: Isa) -> Result<Vec<u8>, RowFault> {
    if let Some((block, what)) = first_bad(row.from, factor.columns(), data) {
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
    let (Some(grid), Some(encode)) = (row.to.grid(), kernels::encode_rows(row.to, isa)) else {
        unreachable!("the plan takes types with a grid");
    };
    let strips = data.par_chunks(STRIP * from);
    strips.zip(out.par_chunks_mut(STRIP * to)).for_each(|(data, out)| {
        let mut floats = vec![0.0; columns];
        let mut weights = Vec::with_capacity(data.len() / from * columns);
        let mut strip = Strip::new(info, grid, encode, factor, options, isa);
        for (data, blocks) in data.chunks_exact(from).zip(out.chunks_exact_mut(to)) {
            decode(data, &mut floats);
            for (j, w) in floats.iter_mut().enumerate() {
                *w = if factor.is_dead(j) { 0.0 } else { *w };
            }
            strip.push(&floats, blocks);
            weights.extend(factor.order().iter().map(|&j| f64::from(floats[j])));
        }
        round_rows(isa, factor, &mut strip, &mut weights);
        strip.write(out);
    });
    match first_bad(row.to, columns, &out) {
        Some((block, what)) => {
            let block = block as u64;
            Err(RowFault::Output { block, what })
        }
        None => Ok(out),
    }
}
