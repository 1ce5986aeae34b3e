//! Decides for the whole model which weights are kept out of the codebooks: a pass over all matrices before
//! the first is clustered.

use rayon::prelude::*;

use super::cluster::Method;
use super::codes::Codes;
use super::error::{ApError, check_finite};
use super::matrices::NAME;
use super::opened::{Opened, RowWeights};
use super::outliers::{Range, Rule, Shares, Spread, find_range, most_sensitive};
use super::work::{Kept, decode};
use crate::progress::Progress;
use crate::quant::plan::Plan;
use crate::quant::row::Row;
use crate::quant::source::ShardReader;
use crate::quant::work::RunError;

/// Weights of matrices that are in memory at once, but for a single matrix that has more.
const BATCH_WEIGHTS: u64 = 1 << 26;
/// How many times the share that is looked for is remembered, at either end of a matrix.
const TAIL: f64 = 4.0;

/// The weights that are kept of every matrix, in order, and the share that the magnitude rule took.
#[derive(Debug)]
pub(super) struct Choice {
    pub kept: Vec<Kept>,
    /// Number of weights that are kept of each matrix.
    pub counts: Vec<u64>,
    /// Weights that the magnitude rule took, in percent of all.
    pub magnitude: f64,
}

/// Goes through the model and chooses.
pub(super) fn choose(
    codes: &Codes,
    plan: &Plan,
    readers: &[ShardReader],
    sensitivity: &mut Opened,
    progress: &mut dyn Progress,
) -> Result<Choice, ApError> {
    let rows: Vec<(usize, &Row)> = plan.rows_of(NAME).map(|i| (i, &plan.rows[i])).collect();
    let Some((rule, shares)) = codes.outliers() else {
        return Ok(Choice {
            kept: rows.iter().map(|_| Kept::none()).collect(),
            counts: vec![0; rows.len()],
            magnitude: 0.0,
        });
    };
    let mut tail = shares.magnitude * TAIL;
    loop {
        let (places, mut spreads) = measure(&rows, readers, sensitivity, rule, shares, tail, progress)?;
        let compat = matches!(codes.options.method, Method::Compat { .. });
        if !compat {
            spreads = spreads.into_iter().map(Spread::without_flat).collect();
        }
        let found = find_range(&spreads, shares.magnitude);
        let Range { range, percent, clipped } = match codes.options.method {
            Method::Exact | Method::BestAt(_) => found.nearest,
            Method::Compat { .. } => found.last,
        };
        if (clipped || found.last.clipped) && tail < 100.0 {
            tail = (tail * 4.0).min(100.0);
            continue;
        }
        let wanted = shares.magnitude > 0.0;
        let kept: Vec<Kept> = places
            .into_iter()
            .zip(&spreads)
            .map(|(places, spread)| {
                let threshold = single(spread.threshold(range), compat);
                Kept {
                    places,
                    // of a matrix that is 0 but for a few, T is 0 and would take all
                    threshold: if wanted && threshold > 0.0 { threshold } else { f32::INFINITY },
                }
            })
            .collect();
        let counts = kept.iter().zip(&spreads).map(|(k, s)| (k.places.len() + s.count_from(k.threshold)) as u64);
        return Ok(Choice { counts: counts.collect(), kept, magnitude: if wanted { percent } else { 0.0 } });
    }
}

/// A threshold in single precision. Rounded down it would take weights that lie below it, and where many weights have
/// one value, as ternary ones do, that can be most of them; the reference rounds to nearest all the same.
fn single(threshold: f64, compat: bool) -> f32 {
    let nearest = threshold as f32;
    if f64::from(nearest) < threshold && !compat { nearest.next_up() } else { nearest }
}

/// The most sensitive weights of each matrix, and how the others are spread.
fn measure(
    rows: &[(usize, &Row)],
    readers: &[ShardReader],
    sensitivity: &mut Opened,
    rule: Rule,
    shares: Shares,
    tail: f64,
    progress: &mut dyn Progress,
) -> Result<(Vec<Vec<usize>>, Vec<Spread>), ApError> {
    let per_weight = sensitivity.is_per_weight();
    let mut places = Vec::with_capacity(rows.len());
    let mut spreads = Vec::with_capacity(rows.len());
    let mut rest = rows;
    while !rest.is_empty() {
        let mut weights = 0;
        let fits = rest.iter().take_while(|(_, r)| {
            weights += r.weights();
            weights <= BATCH_WEIGHTS
        });
        let (batch, after) = rest.split_at(fits.count().max(1));
        rest = after;
        let mut loaded = Vec::with_capacity(batch.len());
        for &(index, row) in batch {
            progress.tensor(index, &row.name);
            let values = read_whole(row, readers)?;
            let scores = if shares.sensitive > 0.0 {
                let n = row.weights() / row.columns().max(1);
                let own = sensitivity.rows(row, 0, n)?;
                scores(&values, row.columns() as usize, &own, per_weight)
            } else {
                Vec::new()
            };
            progress.advance(row.bytes_from);
            loaded.push((values, scores));
        }
        let measured: Vec<(Vec<usize>, Spread)> = loaded
            .into_par_iter()
            .map(|(values, scores)| {
                let removed = most_sensitive(&scores, shares.sensitive, rule);
                let spread = Spread::measure(&values, &removed, rule, tail);
                (removed, spread)
            })
            .collect();
        for (removed, spread) in measured {
            places.push(removed);
            spreads.push(spread);
        }
    }
    Ok((places, spreads))
}

/// The measure by which the most sensitive weights are chosen. Sensitivities of columns alone would choose whole columns:
/// they are multiplied by the squares of the weights.
fn scores(values: &[f32], columns: usize, own: &RowWeights<'_>, per_weight: bool) -> Vec<f32> {
    let mut out = vec![0.0; values.len()];
    out.par_chunks_mut(columns.max(1)).zip(values.par_chunks(columns.max(1))).enumerate().for_each(
        |(r, (out, values))| {
            own.copy(r, out);
            if !per_weight {
                out.iter_mut().zip(values).for_each(|(s, w)| *s *= w * w);
            }
        },
    );
    out
}

fn read_whole(row: &Row, readers: &[ShardReader]) -> Result<Vec<f32>, RunError> {
    let data = readers[row.source.shard].read_whole(row)?;
    check_finite(row, 0, &data)?;
    Ok(decode(row.from, row.columns() as usize, &data))
}
