//! The method: moves whole tensors, each by all threads together.

use std::ops::Range;
use std::sync::atomic::Ordering;

use rayon::prelude::*;
use trine_formats::gguf::PackingOptions;

use super::carry::{MoveFault, carry};
use super::report::{MoveReport, NotExact};
use super::tiles::record;
use super::types::MOVES;
use crate::quant::plan::{Draft, Fault, Method, Plan};
use crate::quant::work::Run;

/// Bytes of a moved tensor that one thread writes at a time.
const WRITE_BYTES: usize = 1 << 22;

/// Moves ternary weights without changing one.
#[derive(Debug, Default)]
pub struct Moves {
    input: PackingOptions,
    report: MoveReport,
}

impl Moves {
    pub(in crate::quant) fn new(input: &PackingOptions) -> Moves {
        Moves { input: input.clone(), ..Moves::default() }
    }

    /// The result for the weights.
    pub fn report(&self) -> &MoveReport {
        &self.report
    }
}

impl Moves {
    /// Moves a whole tensor, on the pool's threads.
    fn carry(&mut self, index: usize, plan: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        let row = &plan.rows[index];
        let Some(how) = row.moves.filter(|_| row.bytes_from > 0) else {
            return Ok(());
        };
        let data = run.read(row)?;
        let (bytes, moved) = carry(row, how, &data).map_err(|fault| match fault {
            MoveFault::Row(fault) => Fault::from(fault.of(row)),
            fault => row.blame(fault).into(),
        })?;
        drop(data);
        if moved.inexact.is_some() && !run.options.force {
            run.measure_only.store(true, Ordering::Relaxed);
        }
        self.report.tensors.push(moved);
        if !run.only_measures() {
            let output = run.output(index);
            let chunks = bytes.par_chunks(WRITE_BYTES).enumerate();
            chunks.try_for_each(|(i, bytes)| output.write((i * WRITE_BYTES) as u64, bytes))?;
        }
        Ok(())
    }
}

impl Method for Moves {
    fn name(&self) -> &'static str {
        MOVES
    }

    /// Its rows are taken where types are chosen: what is left to say is how their data is laid out.
    fn plan(&mut self, draft: &mut Draft<'_>) -> Result<(), Fault> {
        let plan = &mut draft.plan;
        plan.notes.extend(record(&plan.rows, &mut plan.shards, draft.meta, &self.input)?);
        Ok(())
    }

    fn begin(&mut self, _: &Plan, _: &mut Run<'_>) -> Result<(), Fault> {
        self.report = MoveReport::default();
        Ok(())
    }

    fn make(&mut self, rows: Range<usize>, plan: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        let pool = run.pool;
        for index in rows {
            pool.install(|| self.carry(index, plan, run))?;
            run.news.tell(|i| &plan.rows[i].name, index, plan.rows[index].bytes_from);
        }
        Ok(())
    }

    fn end(&mut self, _: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        match run.options.force || self.report.is_exact() {
            true => Ok(()),
            false => Err(NotExact(self.report.clone()).into()),
        }
    }
}
