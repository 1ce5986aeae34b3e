//! How every plan is carried out: the remarks before, the bar meanwhile.

use std::path::Path;

use anyhow::Result;
use trine::quant::{Plan, Progress, QuantError, Report, RunOptions, run};
use trine_formats::gguf::ModelFile;

use crate::inputs;
use crate::progress::TensorBar;

/// Says what a plan warns of, and what it decided that nobody asked for.
pub fn remark(plan: &Plan) {
    for warning in &plan.warnings {
        note!("warning: {warning}");
    }
    for note in &plan.notes {
        note!("note: {note}");
    }
}

/// Shows the work on stderr; there is a line for each row, or none at all.
pub struct Display {
    bar: TensorBar,
    lines: Vec<String>,
}

impl Display {
    /// Work of `total` bytes. Without lines nothing is left of it.
    pub fn new(total: u64, lines: Vec<String>) -> Display {
        Display { bar: TensorBar::new(total, !lines.is_empty()), lines }
    }

    /// The work is over.
    pub fn finish(&self) {
        self.bar.finish();
    }
}

impl Progress for Display {
    fn tensor(&mut self, index: usize, name: &str) {
        self.bar.tensor(name, || self.lines.get(index).cloned().unwrap_or_default());
    }

    fn advance(&mut self, bytes: u64) {
        self.bar.advance(bytes);
    }
}

/// Carries out a plan. With `verbose` every row has a `line`.
///
/// # Errors
/// The output is an input; inside, what the methods say.
pub fn carry_out(
    model: &ModelFile,
    plan: &mut Plan,
    out: &Path,
    options: RunOptions,
    verbose: bool,
    line: impl Fn(&Plan, usize) -> String,
) -> Result<Result<Report, QuantError>> {
    inputs::spare_output(out)?;
    plan.paths(out).iter().try_for_each(|path| inputs::spare_output(path))?;
    let lines = if verbose { (0..plan.rows.len()).map(|i| line(plan, i)).collect() } else { Vec::new() };
    let mut display = Display::new(plan.work(), lines);
    let report = run(model, plan, out, options, &mut display);
    display.finish();
    Ok(report)
}
