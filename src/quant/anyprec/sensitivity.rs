//! How much each weight matters: what its error is weighed with.
//!
//! Per column from an importance matrix (the mean square of the activations, which weighs every row as the
//! factored Fisher information does), per weight from files: see [`WeightFiles`], or in pairs of columns, which is
//! what error feedback wants: see [`Metrics`].

use std::sync::Arc;

use trine_formats::anyprec::Calibration;

use super::feedback::{Metric, Metrics};
use super::gradients::WeightFiles;
use super::plan::Plan;
use super::sensitivity_error::{SensitivityError, check_values};
use crate::kernels::Isa;
use crate::quant::imatrix::Importance;
use crate::quant::row::Row;

/// Where sensitivities come from.
#[derive(Debug)]
pub enum Sensitivity {
    /// All weights matter alike.
    Uniform,
    /// One per column.
    Columns(Importance, Calibration),
    /// One per weight.
    Weights(WeightFiles),
    /// Hessians, for error feedback.
    Hessians(Metrics),
}

/// The sensitivities of some rows of a matrix.
pub(super) enum RowWeights<'a> {
    /// 1 each.
    Uniform,
    /// The same in every row.
    Columns(&'a [f32]),
    /// Row after row.
    Rows(Vec<f32>),
}

impl RowWeights<'_> {
    /// Puts those of row `i` into `out`.
    pub fn copy(&self, i: usize, out: &mut [f32]) {
        match self {
            RowWeights::Uniform => out.fill(1.0),
            RowWeights::Columns(columns) => out.copy_from_slice(columns),
            RowWeights::Rows(rows) => {
                let columns = out.len();
                out.copy_from_slice(&rows[i * columns..(i + 1) * columns]);
            }
        }
    }
}

impl Sensitivity {
    /// What the output says of the source.
    pub fn name(&self) -> &'static str {
        match self {
            Sensitivity::Uniform => "uniform",
            Sensitivity::Columns(..) => "imatrix",
            Sensitivity::Weights(_) => "file",
            Sensitivity::Hessians(_) => "hessian",
        }
    }

    /// On what they were computed, as far as it is known.
    pub fn calibration(&self) -> Calibration {
        match self {
            Sensitivity::Columns(_, calibration) => calibration.clone(),
            Sensitivity::Hessians(metrics) => metrics.calibration(),
            _ => Calibration::default(),
        }
    }

    /// Whether each weight has its own, so that they can be compared across rows and columns.
    pub(super) fn is_per_weight(&self) -> bool {
        matches!(self, Sensitivity::Weights(_))
    }

    /// Checks that they fit the matrices of a plan. Returns remarks worth a line.
    ///
    /// # Errors
    /// Sizes of another model; values that make no sense; of weights also what is missing.
    pub fn check(&self, plan: &Plan) -> Result<Vec<String>, SensitivityError> {
        let importance = match self {
            Sensitivity::Columns(importance, _) => importance,
            Sensitivity::Hessians(metrics) => return metrics.check(plan),
            _ => return Ok(Vec::new()),
        };
        let mut without: Vec<&str> = Vec::new();
        for row in plan.matrices() {
            let Some(columns) = importance.get(&row.source.name) else {
                without.push(&row.name);
                continue;
            };
            let tensor = row.name.clone();
            if columns.len() as u64 != row.columns() {
                return Err(SensitivityError::Columns { tensor, found: columns.len(), expected: row.columns() });
            }
            check_values(&tensor, 0, columns, "")?;
        }
        let all = plan.quantized.len();
        Ok(without
            .first()
            .map(|first| {
                format!(
                    "the importance matrix has no weights for {} of {all} tensors, which are quantized without; the first is {first}",
                    without.len()
                )
            })
            .into_iter()
            .collect())
    }

    /// What the matrix reads, for error feedback; `None` where there is none. On the current rayon pool.
    pub(super) fn metric(&mut self, row: &Row, isa: Isa) -> Result<Option<Arc<Metric>>, SensitivityError> {
        match self {
            Sensitivity::Hessians(metrics) => metrics.load(row, isa),
            _ => Ok(None),
        }
    }

    /// Those of `rows` rows of a matrix from row `first` on.
    pub(super) fn rows(&mut self, row: &Row, first: u64, rows: u64) -> Result<RowWeights<'_>, SensitivityError> {
        match self {
            Sensitivity::Uniform => Ok(RowWeights::Uniform),
            Sensitivity::Columns(importance, _) => {
                Ok(importance.get(&row.source.name).map_or(RowWeights::Uniform, RowWeights::Columns))
            }
            Sensitivity::Weights(files) => files.rows(row, first, rows).map(RowWeights::Rows),
            Sensitivity::Hessians(metrics) => {
                Ok(metrics.known(row).map_or(RowWeights::Uniform, |m| RowWeights::Columns(m.importance())))
            }
        }
    }
}
