//! Rounding a tensor: its rows in strips that threads take.

use rayon::prelude::*;
use trine_formats::types::{TypeId, ik};

use super::celled::Celled;
use super::coded::Coded;
use super::descent::Descent;
use super::factor::Factor;
use super::options::Options;
use super::paired::Paired;
use super::rows::{Strip, round_rows};
use crate::kernels::{self, Isa};
use crate::quant::round::RowFault;
use crate::quant::row::Row;
use crate::quant::ternary::{Loss, is_ternary_type};
use crate::quant::validate::first_bad;

/// Rows that a thread rounds together: they share the reading of the triangle.
const STRIP: usize = 32;

/// Rounds the weights `data` of a tensor, whole rows from number `first` on, which read the input of `factor`; the bytes
/// of the result. In parallel.
///
/// # Errors
/// A value of the input that is not finite; else one of the output.
pub fn round(
    row: &Row,
    first: u64,
    data: &[u8],
    factor: &Factor,
    options: &Options,
    isa: Isa,
) -> Result<Vec<u8>, RowFault> {
    let columns = factor.columns();
    // Faults are counted from the start of the tensor.
    let before = |ty: TypeId| first * (columns / ty.info().map_or(1, |info| info.block)) as u64;
    if let Some((block, what)) = first_bad(row.from, columns, data) {
        let block = before(row.from) + block as u64;
        return Err(RowFault::Input { block, what });
    }
    let rows_of_all = (row.weights() / row.columns().max(1)).max(1);
    let (from, to) = ((row.bytes_from / rows_of_all) as usize, (row.bytes / rows_of_all) as usize);
    let mut out = vec![0; data.len() / from * to];
    // The plan has asked for all of these before.
    let (Some(info), Some(decode)) = (row.to.info(), kernels::decode_rows(row.from, isa)) else {
        unreachable!("{} to {} is no conversion", row.from, row.to);
    };
    let Some(encode) = kernels::encode_rows(row.to, isa) else {
        unreachable!("the plan takes types that are written");
    };
    let strip = || -> Box<dyn Strip + '_> {
        match (row.to.grid(), row.to.cells()) {
            (Some(grid), _) => Box::new(Coded::new(info, grid, encode, factor, options, isa)),
            (_, Some(cells)) => Box::new(Celled::new(info, cells, encode, factor)),
            _ => match (row.to.pairs(), ik::by_importance(row.to)) {
                (Some(pairs), Some(encode)) => Box::new(Paired::new(info, pairs, encode, factor)),
                _ => unreachable!("the plan takes types with a grid, a codebook or pairs"),
            },
        }
    };
    let strips = data.par_chunks(STRIP * from);
    strips.zip(out.par_chunks_mut(STRIP * to)).for_each(|(data, out)| {
        let mut floats = vec![0.0; columns];
        let mut weights = Vec::with_capacity(data.len() / from * columns);
        let mut strip = strip();
        for (data, blocks) in data.chunks_exact(from).zip(out.chunks_exact_mut(to)) {
            decode(data, &mut floats);
            for (j, w) in floats.iter_mut().enumerate() {
                *w = if factor.is_dead(j) { 0.0 } else { *w };
            }
            strip.push(&floats, blocks);
            weights.extend(factor.order().iter().map(|&j| f64::from(floats[j])));
        }
        let before = factor.metric().map(|metric| (metric, weights.clone()));
        round_rows(isa, factor, &mut *strip, &mut weights);
        if let Some((metric, before)) = before {
            let rows = before.chunks_exact(columns).zip(weights.chunks_exact_mut(columns));
            for (number, (weights, values)) in rows.enumerate() {
                strip.descend(number, &mut Descent::new(metric, factor.order(), weights, values));
            }
        }
        strip.write(out);
    });
    match first_bad(row.to, columns, &out) {
        Some((block, what)) => {
            let block = before(row.to) + block as u64;
            Err(RowFault::Output { block, what })
        }
        None => Ok(out),
    }
}

/// The loss of weights `data` that became `out`, where the type is ternary.
pub fn lost(row: &Row, data: &[u8], out: &[u8], isa: Isa) -> Option<Loss> {
    let columns = row.columns();
    let bytes = |ty: TypeId| usize::try_from(ty.info()?.row_bytes(columns)?).ok().filter(|&bytes| bytes > 0);
    let (from, to) = (bytes(row.from)?, bytes(row.to)?);
    let [decode, decode_back] = [row.from, row.to].map(|ty| kernels::decode_rows(ty, isa));
    let (decode, decode_back) = (decode?, decode_back.filter(|_| is_ternary_type(row.to))?);
    let mut loss = Loss::default();
    let [mut weights, mut back] = [(); 2].map(|()| vec![0.0; columns as usize]);
    for (data, out) in data.chunks_exact(from).zip(out.chunks_exact(to)) {
        decode(data, &mut weights);
        decode_back(out, &mut back);
        loss.add(&Loss::of_row(&weights, &back, kernels::compare_rows(isa)));
    }
    Some(loss)
}
