//! The Hessians of a model's inputs, factored when a matrix wants them.

use std::fmt;
use std::sync::Arc;

use trine_formats::anyprec::Calibration;

use super::Metric;
use crate::kernels::Isa;
use crate::quant::anyprec::plan::Plan;
use crate::quant::anyprec::{Method, SensitivityError};
use crate::quant::gptq::{FeedbackReport, Gptq};
use crate::quant::row::Row;

/// Inputs that are in memory at once: another may come between two matrices that read the same one.
const MOST: usize = 2;

/// Hessians for error feedback. Their diagonals are the sensitivities of the clusters that it starts from.
pub struct Metrics {
    gptq: Gptq,
    /// The inputs that were used last, the last one at the end.
    known: Vec<(usize, Arc<Metric>)>,
    report: FeedbackReport,
}

impl Metrics {
    /// With the damping of its options, which mean nothing else here.
    pub fn new(gptq: Gptq) -> Metrics {
        Metrics { gptq, known: Vec::new(), report: FeedbackReport::default() }
    }

    /// The tensors that were rounded with feedback so far.
    pub fn report(&self) -> &FeedbackReport {
        &self.report
    }

    /// The share of the mean of the diagonal that is added to it.
    pub fn damp(&self) -> f64 {
        self.gptq.options.damp
    }

    pub(in crate::quant::anyprec) fn calibration(&self) -> Calibration {
        let header = self.gptq.hessians.header();
        Calibration {
            dataset: Some(header.origin.dataset.clone()),
            samples: Some(header.chunks),
            seq_len: Some(header.origin.chunk_size),
            sha256: Some(header.origin.dataset_sha256.clone()),
        }
    }

    /// Checks that they fit the matrices of a plan, and the plan to them. Returns remarks worth a line.
    pub(in crate::quant::anyprec) fn check(&self, plan: &Plan) -> Result<Vec<String>, SensitivityError> {
        let unfit = [
            (plan.outliers.is_some(), "--outliers"),
            (plan.header.groups != 1, "--row-groups"),
            (plan.method != Method::Exact, "--best-at and --compat"),
        ];
        if let Some((_, option)) = unfit.into_iter().find(|u| u.0) {
            return Err(SensitivityError::Unfit(option));
        }
        let header = self.gptq.hessians.header();
        let mut without: Vec<&str> = Vec::new();
        for row in plan.matrices() {
            let Some(&input) = header.weights.get(&row.source.name) else {
                without.push(&row.name);
                continue;
            };
            let found = header.inputs[input].columns;
            if found != row.columns() {
                return Err(SensitivityError::Hessian { tensor: row.name.clone(), found, expected: row.columns() });
            }
        }
        let all = plan.quantized.len();
        match without.first() {
            None => Ok(Vec::new()),
            Some(_) if without.len() == all => Err(SensitivityError::NoHessian),
            Some(first) => Ok(vec![format!(
                "the Hessians have none for {} of {all} tensors, which are quantized without; the first is {first}",
                without.len()
            )]),
        }
    }

    /// The number of the input that a matrix reads.
    fn input(&self, row: &Row) -> Option<usize> {
        let weights = &self.gptq.hessians.header().weights;
        weights.get(&row.source.name).copied()
    }

    /// What the matrix reads, factored now where it was not; `None` where there is no Hessian. On the current rayon
    /// pool.
    pub(in crate::quant::anyprec) fn load(
        &mut self,
        row: &Row,
        isa: Isa,
    ) -> Result<Option<Arc<Metric>>, SensitivityError> {
        let Some(input) = self.input(row) else {
            return Ok(None);
        };
        let known = self.known.iter().position(|(number, _)| *number == input);
        let metric = match known {
            Some(at) => self.known.remove(at).1,
            None => {
                // Before the next is made, so that no more than these are there at once.
                self.known.drain(..(self.known.len() + 1).saturating_sub(MOST));
                let Gptq { hessians, options } = &self.gptq;
                let metric = Metric::read(hessians, input, options, isa);
                Arc::new(metric.map_err(|fault| SensitivityError::Fault { tensor: row.name.clone(), fault })?)
            }
        };
        self.known.push((input, metric.clone()));
        self.report.tensors += 1;
        if metric.damp() > self.damp() {
            self.report.damped.push((row.name.clone(), metric.damp()));
        }
        Ok(Some(metric))
    }

    /// What the matrix reads, if it was loaded last.
    pub(in crate::quant::anyprec) fn known(&self, row: &Row) -> Option<&Metric> {
        let input = self.input(row)?;
        let known = self.known.iter().find(|(number, _)| *number == input);
        known.map(|(_, metric)| &**metric)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Metrics").field(&self.gptq).finish()
    }
}
