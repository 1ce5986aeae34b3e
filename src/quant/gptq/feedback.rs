//! The method: rounds whole tensors, those that read one input together.

use std::collections::HashMap;
use std::ops::Range;

use trine_formats::types::TypeId;

use super::factor::Factor;
use super::fault::NoHessian;
use super::options::Gptq;
use super::tensor::round;
use crate::quant::plan::{Draft, Fault, Method, Plan};
use crate::quant::problem::Problem;
use crate::quant::row::Row;
use crate::quant::work::Run;

/// The name that rows have which are rounded with error feedback.
pub const NAME: &str = "gptq";

/// Rounds tensors with error feedback.
#[derive(Debug)]
pub struct Feedback {
    gptq: Gptq,
    /// The numbers of its rows, and that of the input they read.
    inputs: HashMap<usize, usize>,
    report: FeedbackReport,
}

/// The report about the tensors that were rounded with error feedback.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedbackReport {
    /// Number of these tensors.
    pub tensors: usize,
    /// Tensors whose Hessian needed more damping than was asked for, and how much.
    pub damped: Vec<(String, f64)>,
}

impl FeedbackReport {
    /// One more tensor, for which the share `damp` of the mean of the diagonal was added and `asked` was asked for.
    pub(in crate::quant) fn add(&mut self, row: &Row, damp: f64, asked: f64) {
        self.tensors += 1;
        if damp > asked {
            self.damped.push((row.name.clone(), damp));
        }
    }
}

impl Feedback {
    pub(in crate::quant) fn new(gptq: &Gptq) -> Feedback {
        Feedback { gptq: gptq.clone(), inputs: HashMap::new(), report: FeedbackReport::default() }
    }

    /// The report about the tensors.
    pub fn report(&self) -> &FeedbackReport {
        &self.report
    }

    /// How many tensors of its plan are rounded with error feedback, and which are quantized without, because they have
    /// no Hessian.
    pub fn tensors<'p>(&self, plan: &'p Plan) -> (usize, Vec<&'p str>) {
        let without = plan.rows.iter().filter(|r| r.is_encoded() && r.method != NAME);
        (self.inputs.len(), without.map(|r| r.name.as_str()).collect())
    }

    /// The reason against error feedback for a row whose input has `columns` columns.
    fn problem(&self, row: &Row, columns: u64) -> Option<Problem> {
        let (tensor, ty) = (row.name.clone(), row.to);
        if columns != row.columns() {
            return Some(Problem::WrongHessian { tensor, found: columns, expected: row.columns() });
        }
        if ty.grid().is_none() {
            return Some(Problem::NoFeedback { tensor, ty });
        }
        let unpruned = self.gptq.options.sparse && ty != TypeId::Q4_0;
        unpruned.then_some(Problem::NotPruned { tensor, ty })
    }

    /// Rounds the tensors that read the same input as tensor `index`, when that is the first of them, on the pool's
    /// threads: so the Hessian is factored once.
    fn round(&mut self, index: usize, plan: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        let input = self.inputs[&index];
        let mut mates: Vec<usize> = self.inputs.iter().filter(|(_, of)| **of == input).map(|(&mate, _)| mate).collect();
        mates.sort_unstable();
        if mates[0] != index || run.only_measures() {
            return Ok(());
        }
        let (Gptq { hessians, options }, isa) = (&self.gptq, run.options.isa);
        let factor = Factor::read(hessians, input, options, isa).map_err(|fault| plan.rows[index].blame(fault))?;
        for mate in mates {
            let row = &plan.rows[mate];
            let data = run.read(row)?;
            let bytes = round(row, &data, &factor, options, isa).map_err(|fault| fault.of(row))?;
            run.output(mate).write(0, &bytes)?;
            self.report.add(row, factor.damp(), options.damp);
        }
        Ok(())
    }
}

impl Method for Feedback {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Takes the tensors that become a quantized type and whose input has a Hessian.
    fn plan(&mut self, draft: &mut Draft<'_>) -> Result<(), Fault> {
        let header = self.gptq.hessians.header();
        let mut problems = Vec::new();
        for (index, row) in draft.plan.rows.iter_mut().enumerate() {
            let input = header.weights.get(&row.source.name);
            let Some(&input) = input.filter(|_| row.is_encoded() && row.shape.len() == 2) else {
                continue;
            };
            match self.problem(row, header.inputs[input].columns) {
                Some(problem) => problems.push(problem),
                None => {
                    row.method = NAME;
                    self.inputs.insert(index, input);
                }
            }
        }
        if self.inputs.is_empty() && problems.is_empty() {
            return Err(NoHessian.into());
        }
        draft.plan.problems.append(&mut problems);
        Ok(())
    }

    fn begin(&mut self, _: &Plan, _: &mut Run<'_>) -> Result<(), Fault> {
        self.report = FeedbackReport::default();
        Ok(())
    }

    fn make(&mut self, rows: Range<usize>, plan: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        let pool = run.pool;
        for index in rows {
            pool.install(|| self.round(index, plan, run))?;
            run.news.tell(|i| &plan.rows[i].name, index, plan.rows[index].bytes_from);
        }
        Ok(())
    }
}
