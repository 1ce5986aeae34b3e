//! The method: rounds whole tensors, those that read one input together.

use std::collections::HashMap;
use std::ops::Range;

use trine_formats::hessian::Reads;
use trine_formats::types::TypeId;
use trine_formats::types::cells::CELL;

use super::experts::{InputSums, Inputs};
use super::factor::Factor;
use super::fault::{HessianFault, NoHessian};
use super::options::{Gptq, Options};
use super::paired::PAIR;
use super::source::{Calibration, Measurements, Sums};
use super::tensor::{lost, round};
use crate::kernels::Isa;
use crate::quant::plan::{Draft, Fault, Method, Plan};
use crate::quant::problem::Problem;
use crate::quant::row::Row;
use crate::quant::ternary::{NotTernary, TernaryReport};
use crate::quant::work::{Run, go_on};

/// The name that rows have which are rounded with error feedback.
pub const NAME: &str = "gptq";

/// Rounds tensors with error feedback.
#[derive(Debug)]
pub struct Feedback {
    gptq: Gptq,
    /// The numbers of its rows, and the inputs that they read.
    inputs: HashMap<usize, Reads>,
    report: FeedbackReport,
    ternary: TernaryReport,
    /// True if the tensors were rounded in the order of the graph.
    is_done: bool,
}

/// The report about the tensors that were rounded with error feedback.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedbackReport {
    /// Number of these tensors.
    pub tensors: usize,
    /// Tensors whose Hessian needed more damping than was asked for, and how much.
    pub damped: Vec<(String, f64)>,
    /// Inputs of experts.
    pub experts: usize,
    /// Inputs of experts with fewer tokens than columns, which had the mean of all experts for the others.
    pub filled: usize,
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
        Feedback {
            gptq: gptq.clone(),
            inputs: HashMap::new(),
            report: FeedbackReport::default(),
            ternary: TernaryReport::default(),
            is_done: false,
        }
    }

    /// The report about the tensors.
    pub fn report(&self) -> &FeedbackReport {
        &self.report
    }

    /// The report about those of them that were made ternary.
    pub fn ternary(&self) -> &TernaryReport {
        &self.ternary
    }

    /// How many tensors of its plan are rounded with error feedback, and which are quantized without, because they have
    /// no Hessian.
    pub fn tensors<'p>(&self, plan: &'p Plan) -> (usize, Vec<&'p str>) {
        let without = plan.rows.iter().filter(|r| r.is_encoded() && r.method != NAME);
        (self.inputs.len(), without.map(|r| r.name.as_str()).collect())
    }

    /// The reason against error feedback for a row that reads these inputs of so many columns.
    fn problem(&self, row: &Row, reads: Reads, columns: u64) -> Option<Problem> {
        let (tensor, ty) = (row.name.clone(), row.to);
        if columns != row.columns() {
            return Some(Problem::WrongHessian { tensor, found: columns, expected: row.columns(), of: "columns" });
        }
        let stacked = row.shape.get(2..).map_or(1, |matrices| matrices.iter().product());
        let found = reads.experts.max(1) as u64;
        if found != stacked {
            return Some(Problem::WrongHessian { tensor, found, expected: stacked, of: "experts" });
        }
        if !takes(ty) {
            return Some(Problem::NoFeedback { tensor, ty });
        }
        let unpruned = self.gptq.options.sparse && ty != TypeId::Q4_0;
        unpruned.then_some(Problem::NotPruned { tensor, ty })
    }

    /// The tensors that read some inputs, in ascending order.
    fn mates(&self, reads: Reads) -> Vec<usize> {
        let mates = self.inputs.iter().filter(|(_, of)| **of == reads).map(|(&mate, _)| mate);
        let mut mates: Vec<usize> = mates.collect();
        mates.sort_unstable();
        mates
    }

    /// Rounds `mates`, which read the same inputs, on the pool's threads: so each Hessian is factored once. The matrices of
    /// experts are taken one after the other. `made` is given each that is rounded.
    fn round(
        &mut self,
        (reads, mates): (Reads, &[usize]),
        sums: &dyn Sums,
        (plan, run): (&Plan, &mut Run<'_>),
        made: &mut (dyn FnMut(usize, &[u8]) + Send),
    ) -> Result<(), Fault> {
        let (Gptq { hessians, options }, isa) = (&self.gptq, run.options.isa);
        let blame = |fault| plan.rows[mates[0]].blame(fault);
        let columns = hessians.header().inputs[reads.first].columns as usize;
        let inputs = Inputs::new(sums, reads, columns).map_err(blame)?;
        let matrices = reads.experts.max(1) as u64;
        // Columns that are chosen together have a factor of their own, in which they are side by side.
        let mut damps = [(1, 0.0), (PAIR, 0.0), (CELL, 0.0)];
        let mut buffer = Vec::new();
        for number in 0..matrices {
            let InputSums { sums, tokens, is_filled } = inputs.of(number as usize).map_err(blame)?;
            self.report.experts += usize::from(reads.experts > 0);
            self.report.filled += usize::from(is_filled);
            for (together, damp) in &mut damps {
                let mut mates = mates.iter().filter(|mate| side_by_side(plan.rows[**mate].to) == *together).peekable();
                if mates.peek().is_none() {
                    continue;
                }
                let options = &options.together(*together);
                let factor = factor((&sums, tokens), inputs.columns, options, *together, isa).map_err(blame)?;
                *damp = factor.damp().max(*damp);
                for &mate in mates {
                    let row = &plan.rows[mate];
                    go_on(&run.options.cancel)?;
                    let (bytes, rows) = (row.bytes_from / matrices, row.weights() / row.columns().max(1) / matrices);
                    let reader = &run.readers[row.source.shard];
                    let data = reader.read_chunk(row, number * bytes, bytes as usize, &mut buffer)?;
                    let rounded =
                        round(row, number * rows, data, &factor, options, isa).map_err(|fault| fault.of(row))?;
                    if let Some(loss) = lost(row, data, &rounded, isa) {
                        self.ternary.add(row, loss);
                        if !run.options.force && self.ternary.worst().is_some() {
                            return Err(NotTernary(self.ternary.clone()).into());
                        }
                    }
                    run.output(mate).write(number * (row.bytes / matrices), &rounded)?;
                    made(mate, &rounded);
                }
            }
        }
        for &mate in mates {
            let row = &plan.rows[mate];
            let own = damps.iter().filter(|(together, _)| side_by_side(row.to) == *together);
            own.for_each(|&(together, damp)| self.report.add(row, damp, options.together(together).damp));
        }
        Ok(())
    }

    /// Rounds all tensors in the order of the graph, each behind those before it.
    fn in_order(&mut self, measurements: &Measurements, plan: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        let mut all: Vec<Reads> = self.inputs.values().copied().collect();
        all.sort_unstable_by_key(|reads| reads.first);
        all.dedup();
        let mut measure = measurements.lock();
        for reads in all {
            let mates = self.mates(reads);
            let bytes: u64 = mates.iter().map(|&mate| plan.rows[mate].bytes_from).sum();
            // Half of the work of a matrix is to find its inputs, as far as the bar is concerned.
            let (mut told, cancel) = (0, run.options.cancel.clone());
            let progress = &mut *run.news.progress;
            let sums = measure.measure(reads, &mut |done, of| {
                let now = (u128::from(bytes / 2) * done as u128 / of.max(1) as u128) as u64;
                progress.advance(now.saturating_sub(told));
                told = told.max(now);
                !cancel.is_cancelled()
            });
            go_on(&cancel)?;
            let sums = sums?;
            let mut made: HashMap<usize, Vec<u8>> = HashMap::new();
            let pool = run.pool;
            pool.install(|| {
                let mut keep = |mate: usize, data: &[u8]| made.entry(mate).or_default().extend_from_slice(data);
                self.round((reads, &mates), &sums, (plan, run), &mut keep)
            })?;
            for mate in mates {
                let row = &plan.rows[mate];
                measure.rounded(&row.source.name, row.to, made.remove(&mate).unwrap_or_default())?;
            }
            run.news.progress.advance(bytes - told);
        }
        Ok(())
    }
}

/// True of types that weights can be rounded to with error feedback.
pub fn takes(ty: TypeId) -> bool {
    ty.grid().is_some() || ty.cells().is_some() || ty.pairs().is_some()
}

/// The factor of an input's sums over so many tokens, for types of which so many columns are chosen together.
pub(super) fn factor(
    (sums, tokens): (&[f64], u64),
    columns: usize,
    options: &Options,
    together: usize,
    isa: Isa,
) -> Result<Factor, HessianFault> {
    let factor = Factor::together(sums, columns, tokens, options, together, isa)?;
    Ok(match options.descends() && together != PAIR {
        true => factor.with_metric(sums, tokens, together),
        false => factor,
    })
}

/// Columns of a type that are chosen together, 1, [`PAIR`] or [`CELL`].
pub(super) fn side_by_side(ty: TypeId) -> usize {
    match (ty.cells(), ty.pairs()) {
        (Some(_), _) => CELL,
        (_, Some(_)) => PAIR,
        _ => 1,
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
            let Some(&reads) = input.filter(|_| row.is_encoded() && row.shape.len() >= 2) else {
                continue;
            };
            match self.problem(row, reads, header.inputs[reads.first].columns) {
                Some(problem) => problems.push(problem),
                None => {
                    row.method = NAME;
                    self.inputs.insert(index, reads);
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
        self.ternary = TernaryReport::default();
        Ok(())
    }

    fn make(&mut self, rows: Range<usize>, plan: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        let name = |i: usize| &plan.rows[i].name[..];
        let calibration = self.gptq.hessians.clone();
        if let Calibration::Sequential(measurements) = &calibration {
            if !std::mem::replace(&mut self.is_done, true) && !run.only_measures() {
                self.in_order(measurements, plan, run)?;
            }
            rows.for_each(|index| run.news.tell(name, index, 0));
            return Ok(());
        }
        let (pool, file) = (run.pool, calibration.file()?);
        for index in rows {
            let reads = self.inputs[&index];
            let mates = self.mates(reads);
            if mates[0] == index && !run.only_measures() {
                pool.install(|| self.round((reads, &mates), &(file, reads), (plan, run), &mut |_, _| {}))?;
            }
            run.news.tell(name, index, plan.rows[index].bytes_from);
        }
        Ok(())
    }
}
