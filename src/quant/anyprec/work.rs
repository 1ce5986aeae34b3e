//! Rows of a matrix from their bytes to planes, tables and sparse entries, in parallel and each on its own.

use rayon::prelude::*;
use trine_formats::anyprec::{pack_row, words};
use trine_formats::types::TypeId;
use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use super::cluster::{ClusterError, Clusterer, Method, Nesting};
use super::feedback::{Coded, Feedback, STRIP};
use super::opened::RowWeights;

/// Weights that one task takes: small rows are bundled.
const TASK_WEIGHTS: usize = 1 << 14;

/// Decodes whole rows. Types were checked by the plan.
pub fn decode(ty: TypeId, columns: usize, data: &[u8]) -> Vec<f32> {
    let info = ty.info();
    let row_bytes = info.and_then(|t| t.row_bytes(columns as u64)).unwrap_or(0) as usize;
    let (Some(decode), 1..) = (info.and_then(|t| t.decode), row_bytes) else {
        return Vec::new();
    };
    let rows = data.len() / row_bytes;
    let mut out = vec![0.0; rows * columns];
    let per_task = (TASK_WEIGHTS / columns.max(1)).max(1);
    out.par_chunks_mut(per_task * columns).zip(data.par_chunks(per_task * row_bytes)).for_each(|(out, data)| {
        let rows = out.chunks_exact_mut(columns);
        for (out, data) in rows.zip(data.chunks_exact(row_bytes)) {
            decode(data, out);
        }
    });
    out
}

/// Which weights of a matrix are kept as they are.
#[derive(Debug, Default)]
pub struct Kept {
    /// Places of the most sensitive weights in the matrix, ascending.
    pub places: Vec<usize>,
    /// All of at least this magnitude as well; infinity for none.
    pub threshold: f32,
}

impl Kept {
    /// None at all.
    pub fn none() -> Kept {
        Kept { places: Vec::new(), threshold: f32::INFINITY }
    }

    /// Columns of a row that are kept, ascending.
    fn columns(&self, row: u64, weights: &[f32]) -> Vec<usize> {
        let start = row as usize * weights.len();
        let from = self.places.partition_point(|&p| p < start);
        let listed = self.places[from..].iter().map(|p| p - start).take_while(|&c| c < weights.len());
        let mut columns: Vec<usize> = listed.collect();
        if self.threshold.is_finite() {
            let large = |c: &usize| weights[*c].abs() >= self.threshold;
            columns.extend((0..weights.len()).filter(large));
            columns.sort_unstable();
            columns.dedup();
        }
        columns
    }
}

/// The results for some rows.
#[derive(Default)]
pub struct Clustered {
    /// For each plane its rows, one after the other.
    pub planes: Vec<Vec<u8>>,
    /// For each width of the code, from the seed's on, the tables of the rows in half precision, or those that they
    /// share.
    pub luts: Vec<Vec<u8>>,
    /// For each width the factors of the rows in half precision, where they share tables.
    pub scales: Vec<Vec<u8>>,
    /// Which table each row takes, where they share them.
    pub classes: Vec<u8>,
    /// How many weights of each row are kept as they are.
    pub kept: Vec<usize>,
    /// Their columns.
    pub columns: Vec<u8>,
    /// Their values in half precision.
    pub values: Vec<u8>,
    /// For each width of the code `Σ s (w − c)²` with the tables as they are stored, over all weights that are
    /// not kept, and `Σ s w²` of these.
    pub errors: Vec<f64>,
    /// See [`Clustered::errors`].
    pub energy: f64,
}

/// How the rows of a matrix are clustered.
pub struct Work<'a> {
    /// Widths of the code.
    pub nesting: Nesting,
    /// Widths that have tables in the file.
    pub bits: Vec<u8>,
    /// Method of clustering.
    pub method: Method,
    /// Weights per row.
    pub columns: usize,
    /// Groups of columns.
    pub groups: usize,
    /// Weights that are kept as they are.
    pub kept: &'a Kept,
    /// Error feedback; with one group and nothing kept.
    pub feedback: Option<Feedback<'a>>,
}

/// The results for one row: planes, tables, kept columns, errors.
struct Row {
    planes: Vec<Vec<u8>>,
    luts: Vec<Vec<u8>>,
    kept: Vec<usize>,
    errors: Vec<f64>,
    energy: f64,
}

struct Scratch {
    clusterer: Clusterer,
    weights: Vec<f32>,
    sensitivities: Vec<f32>,
    codes: Vec<u8>,
}

impl Work<'_> {
    /// Clusters whole rows, the first of which is row `first` of the matrix.
    ///
    /// # Errors
    /// The first weight, in order of the rows, that cannot be clustered; its index is counted through the
    /// matrix.
    pub fn run(&self, first: u64, weights: &[f32], sensitivities: &RowWeights<'_>) -> Result<Clustered, ClusterError> {
        let scratch = || Scratch {
            clusterer: Clusterer::new(self.nesting, self.method),
            weights: vec![0.0; self.columns],
            sensitivities: vec![0.0; self.columns],
            codes: vec![0; self.columns],
        };
        let per_task = (TASK_WEIGHTS / self.columns.max(1)).max(1);
        if let Some(feedback) = &self.feedback {
            let strips = weights.par_chunks(STRIP * self.columns).enumerate();
            let rows = strips.map_init(scratch, |scratch, (strip, weights)| {
                self.strip(feedback, (first, strip * STRIP), weights, sensitivities, scratch)
            });
            let strips: Vec<_> = rows.collect::<Result<_, ClusterError>>()?;
            return self.join(strips.into_iter().flatten().map(Ok), weights);
        }
        let rows: Vec<Result<Row, ClusterError>> = weights
            .par_chunks(self.columns)
            .enumerate()
            .with_min_len(per_task)
            .map_init(scratch, |scratch, (i, weights)| {
                scratch.weights.copy_from_slice(weights);
                sensitivities.copy(i, &mut scratch.sensitivities);
                let row = first + i as u64;
                self.row(row, scratch).map_err(|e| e.after(row as usize * self.columns))
            })
            .collect();
        self.join(rows.into_iter(), weights)
    }

    /// Puts rows with these weights together.
    fn join(
        &self,
        rows: impl Iterator<Item = Result<Row, ClusterError>>,
        weights: &[f32],
    ) -> Result<Clustered, ClusterError> {
        let widths = self.nesting.widths().len();
        let mut out = Clustered {
            planes: vec![Vec::new(); usize::from(self.nesting.parent_bits)],
            luts: vec![Vec::new(); widths],
            errors: vec![0.0; widths],
            ..Clustered::default()
        };
        for (row, weights) in rows.zip(weights.chunks_exact(self.columns)) {
            let row = row?;
            let parts = out.planes.iter_mut().zip(row.planes);
            parts.for_each(|(all, one)| all.extend(one));
            let parts = out.luts.iter_mut().zip(row.luts);
            parts.for_each(|(all, one)| all.extend(one));
            for &c in &row.kept {
                out.columns.extend((c as i32).to_le_bytes());
                out.values.extend(f32_to_f16(weights[c]).to_le_bytes());
            }
            out.kept.push(row.kept.len());
            let errors = out.errors.iter_mut().zip(row.errors);
            errors.for_each(|(all, one)| *all += one);
            out.energy += row.energy;
        }
        Ok(out)
    }

    /// Clusters rows of a strip, the first of which is row `first.1` behind row `first.0` of the matrix, and feeds
    /// their errors back.
    fn strip(
        &self,
        feedback: &Feedback<'_>,
        first: (u64, usize),
        weights: &[f32],
        sensitivities: &RowWeights<'_>,
        scratch: &mut Scratch,
    ) -> Result<Vec<Row>, ClusterError> {
        let mut rows = Vec::with_capacity(STRIP);
        for (i, weights) in weights.chunks_exact(self.columns).enumerate() {
            let Scratch { clusterer, sensitivities: own, codes, .. } = scratch;
            sensitivities.copy(first.1 + i, own);
            let clustered = clusterer.cluster(weights, own, codes);
            let row = first.0 as usize + first.1 + i;
            clustered.map_err(|e| e.after(row * self.columns))?;
            let halves = |lut: &Vec<f32>| lut.iter().map(|&c| f32_to_f16(c)).collect();
            rows.push(Coded {
                codes: codes.clone(),
                luts: clusterer.luts().iter().map(halves).collect(),
                ..Coded::default()
            });
        }
        feedback.improve(&mut rows, weights);
        let rows = rows.into_iter().map(|coded| {
            let bytes = |lut: &Vec<u16>| lut.iter().flat_map(|c| c.to_le_bytes()).collect();
            Row {
                planes: self.planes(&coded.codes),
                luts: coded.luts.iter().map(bytes).collect(),
                kept: Vec::new(),
                errors: coded.errors,
                energy: coded.energy,
            }
        });
        Ok(rows.collect())
    }

    /// The planes of a row with these codes.
    pub(super) fn planes(&self, codes: &[u8]) -> Vec<Vec<u8>> {
        let plane = vec![0; 8 * words(self.columns)];
        let mut planes = vec![plane; usize::from(self.nesting.parent_bits)];
        let mut places: Vec<&mut [u8]> = planes.iter_mut().map(|p| &mut p[..]).collect();
        pack_row(codes, &mut places);
        planes
    }

    fn row(&self, row: u64, scratch: &mut Scratch) -> Result<Row, ClusterError> {
        let Scratch { clusterer, weights, sensitivities, codes } = scratch;
        let kept = self.kept.columns(row, weights);
        for &c in &kept {
            // checked here because the clusterer does not see them
            super::cluster::check(&weights[c..=c], &sensitivities[c..=c]).map_err(|e| e.after(c))?;
            weights[c] = 0.0;
            sensitivities[c] = 0.0;
        }
        let widths = self.nesting.widths();
        let mut out = Row {
            planes: Vec::new(),
            luts: vec![Vec::new(); widths.len()],
            kept,
            errors: vec![0.0; widths.len()],
            energy: 0.0,
        };
        let group = self.columns / self.groups.max(1);
        let mut centroids = Vec::new();
        for start in (0..self.columns).step_by(group.max(1)) {
            let range = start..start + group;
            let (w, s) = (&weights[range.clone()], &sensitivities[range.clone()]);
            let codes = &mut codes[range];
            clusterer.cluster(w, s, codes).map_err(|e| e.after(start))?;
            let squares = w.iter().zip(s).map(|(&w, &s)| f64::from(s) * sq(w.into()));
            out.energy += squares.sum::<f64>();
            let tables = out.luts.iter_mut().zip(clusterer.luts());
            for (((bytes, lut), error), width) in tables.zip(&mut out.errors).zip(widths.clone()) {
                centroids.clear();
                for &c in lut {
                    let half = f32_to_f16(c);
                    bytes.extend(half.to_le_bytes());
                    centroids.push(f64::from(f16_to_f32(half)));
                }
                let shift = self.nesting.parent_bits - width;
                let terms = w.iter().zip(s).zip(&*codes);
                *error += terms
                    .map(|((&w, &s), &code)| f64::from(s) * sq(f64::from(w) - centroids[usize::from(code >> shift)]))
                    .sum::<f64>();
            }
        }
        out.planes = self.planes(codes);
        Ok(out)
    }
}

fn sq(x: f64) -> f64 {
    x * x
}
