//! How much each weight of the matrices of a plan matters: what its error is weighed with.
//!
//! Per column from an importance matrix (the mean square of the activations, which weighs every row as the
//! factored Fisher information does), per weight from files: see [`WeightFiles`], or in pairs of columns, which is
//! what error feedback wants: see [`Metrics`].

use std::path::PathBuf;
use std::sync::Arc;

use trine_formats::gguf::Metadata;

use super::cluster::Method;
use super::error::ApError;
use super::feedback::{Metric, Metrics};
use super::gradients::WeightFiles;
use super::sensitivity::Sensitivity;
use super::sensitivity_error::{SensitivityError, check_values};
use super::target::Options;
use crate::kernels::Isa;
use crate::quant::gptq::FeedbackReport;
use crate::quant::imatrix::Importance;
use crate::quant::row::Row;

/// The sensitivities of some rows of a matrix.
pub(super) enum RowWeights<'a> {
    /// A sensitivity of 1 for each weight.
    Uniform,
    /// A sensitivity for each column, the same in every row.
    Columns(&'a [f32]),
    /// A sensitivity for each weight, row after row.
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

/// Sensitivities of the matrices of a plan.
#[derive(Debug)]
pub(super) enum Opened {
    Uniform,
    Columns(Importance),
    Weights(WeightFiles),
    Hessians(Metrics),
}

impl Opened {
    /// Opens those that `options` name, for the matrices of a model with the keys `meta`. The second value is a remark
    /// worth a line.
    ///
    /// # Errors
    /// Sizes of another model; values that make no sense; files that cannot be read; options that do not go together.
    pub fn new(options: &Options, meta: &Metadata, matrices: &[&Row]) -> Result<(Opened, Option<String>), ApError> {
        let mut without = Vec::new();
        let (opened, what) = match &options.sensitivity {
            Sensitivity::Uniform => (Opened::Uniform, ""),
            Sensitivity::Columns(importance, _) => {
                for row in matrices {
                    match importance.get(&row.source.name) {
                        Some(columns) => check_columns(row, columns)?,
                        None => without.push(&row.name),
                    }
                }
                (Opened::Columns(importance.clone()), "importance matrix has no weights")
            }
            Sensitivity::Weights { files, square } => {
                let files = WeightFiles::open(files, *square, meta, matrices);
                (Opened::Weights(files.map_err(|e| ApError::Files(e.into()))?), "")
            }
            Sensitivity::Hessians(gptq) => {
                let unfit = [
                    (options.outliers.is_some(), "--outliers"),
                    (options.groups != 1, "--row-groups"),
                    (options.method != Method::Exact, "--best-at and --compat"),
                ];
                if let Some((_, option)) = unfit.into_iter().find(|u| u.0) {
                    return Err(SensitivityError::Unfit(option).into());
                }
                let metrics = Metrics::new(gptq.clone());
                for row in matrices {
                    if !metrics.fits(row)? {
                        without.push(&row.name);
                    }
                }
                if without.len() == matrices.len() {
                    return Err(SensitivityError::NoHessian.into());
                }
                (Opened::Hessians(metrics), "Hessians have none")
            }
        };
        let (n, all) = (without.len(), matrices.len());
        let remark = without.first().map(|first| {
            format!("the {what} for {n} of {all} tensors, which are quantized without; the first is {first}")
        });
        Ok((opened, remark))
    }

    /// Inputs beside the model.
    pub fn files(&self) -> Vec<PathBuf> {
        match self {
            Opened::Weights(files) => files.paths(),
            _ => Vec::new(),
        }
    }

    /// Makes sure, when all is read, that nobody wrote to these meanwhile.
    pub fn unchanged(&self) -> Result<(), SensitivityError> {
        match self {
            Opened::Weights(files) => files.unchanged(),
            _ => Ok(()),
        }
    }

    /// The report of error feedback.
    pub fn report(&self) -> Option<&FeedbackReport> {
        match self {
            Opened::Hessians(metrics) => Some(metrics.report()),
            _ => None,
        }
    }

    /// True if each weight has its own, so that they can be compared across rows and columns.
    pub fn is_per_weight(&self) -> bool {
        matches!(self, Opened::Weights(_))
    }

    /// The matrix's input, for error feedback; `None` where there is none. On the current rayon pool.
    pub fn metric(&mut self, row: &Row, isa: Isa) -> Result<Option<Arc<Metric>>, SensitivityError> {
        match self {
            Opened::Hessians(metrics) => metrics.load(row, isa),
            _ => Ok(None),
        }
    }

    /// Sensitivities of `rows` rows of a matrix from row `first` on.
    pub fn rows(&mut self, row: &Row, first: u64, rows: u64) -> Result<RowWeights<'_>, SensitivityError> {
        let columns = match self {
            Opened::Uniform => None,
            Opened::Columns(importance) => importance.get(&row.source.name),
            Opened::Weights(files) => return files.rows(row, first, rows).map(RowWeights::Rows),
            Opened::Hessians(metrics) => metrics.known(row).map(Metric::importance),
        };
        Ok(columns.map_or(RowWeights::Uniform, RowWeights::Columns))
    }
}

fn check_columns(row: &Row, columns: &[f32]) -> Result<(), SensitivityError> {
    let tensor = row.name.clone();
    if columns.len() as u64 != row.columns() {
        return Err(SensitivityError::Columns { tensor, found: columns.len(), expected: row.columns() });
    }
    check_values(&tensor, 0, columns, "")
}
