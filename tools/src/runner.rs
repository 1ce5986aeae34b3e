//! How every plan is carried out: the remarks before, the bar meanwhile.

use std::path::Path;

use anyhow::Result;
use trine::quant::{Method, Progress, RunOptions, run};
use trine_formats::gguf::ModelFile;

use crate::inputs;
use crate::progress::TensorBar;

/// Says what a plan warns of, and what it decided that nobody asked for.
pub fn remark<'a>(warnings: impl IntoIterator<Item = &'a String>, notes: &[String]) {
    for warning in warnings {
        note!("warning: {warning}");
    }
    for note in notes {
        note!("note: {note}");
    }
}

/// Shows the work on stderr; the line of a row is what is said of it.
struct Display<F> {
    bar: TensorBar,
    line: F,
}

impl<F: Fn(usize) -> String + Send> Progress for Display<F> {
    fn tensor(&mut self, index: usize, name: &str) {
        self.bar.tensor(name, || (self.line)(index));
    }

    fn advance(&mut self, bytes: u64) {
        self.bar.advance(bytes);
    }
}

/// Carries out a plan. With `verbose` every row has a `line`.
///
/// # Errors
/// The output is an input; inside, what the method says.
pub fn carry_out<M: Method>(
    model: &ModelFile,
    method: M,
    out: &Path,
    options: RunOptions,
    verbose: bool,
    line: impl Fn(usize) -> String + Send,
) -> Result<Result<M::Report, M::Error>> {
    inputs::spare_output(out)?;
    let mut display = Display { bar: TensorBar::new(method.work(), verbose), line };
    let report = run(model, method, out, options, &mut display);
    display.bar.finish();
    Ok(report)
}
