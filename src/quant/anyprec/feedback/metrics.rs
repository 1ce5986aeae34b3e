//! The Hessians of a model's inputs, factored when a matrix wants them.

use std::fmt;
use std::sync::Arc;

use super::metric::Metric;
use crate::kernels::Isa;
use crate::quant::anyprec::sensitivity_error::SensitivityError;
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

    /// True if there is a Hessian for a matrix.
    ///
    /// # Errors
    /// The Hessian has another number of columns than the matrix.
    pub fn fits(&self, row: &Row) -> Result<bool, SensitivityError> {
        let found = self.input(row).map(|input| self.gptq.hessians.header().inputs[input].columns);
        let (tensor, expected) = (row.name.clone(), row.columns());
        match found.filter(|&found| found != expected) {
            Some(found) => Err(SensitivityError::Hessian { tensor, found, expected }),
            None => Ok(found.is_some()),
        }
    }

    /// The number of the input that a matrix reads; none of stacked matrices, whose inputs are several.
    fn input(&self, row: &Row) -> Option<usize> {
        let reads = self.gptq.hessians.header().weights.get(&row.source.name);
        reads.filter(|reads| reads.experts == 0).map(|reads| reads.first)
    }

    /// The matrix's input, factored now where it was not; `None` where there is no Hessian. On the current rayon
    /// pool.
    pub fn load(&mut self, row: &Row, isa: Isa) -> Result<Option<Arc<Metric>>, SensitivityError> {
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
                let metric = hessians.file().and_then(|file| Metric::read(file, input, options, isa));
                Arc::new(metric.map_err(|fault| SensitivityError::Fault { tensor: row.name.clone(), fault })?)
            }
        };
        self.known.push((input, metric.clone()));
        self.report.add(row, metric.damp(), self.gptq.options.damp);
        Ok(Some(metric))
    }

    /// The matrix's input, if it was loaded last.
    pub fn known(&self, row: &Row) -> Option<&Metric> {
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
