//! The form of a table.

use anyhow::{Result, anyhow};

use crate::bench::synth::Spec;

/// A row of a paper's table: its name there, the model as ARCH:SIZE, and for each test what the paper says of each type.
pub type Row = (&'static str, &'static str, &'static [&'static [f64]]);

/// A table of a paper.
#[derive(Debug)]
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// The paper, its table and its machine.
    pub source: &'static str,
    /// Tokens of the prompt and of the text of each test.
    pub tests: &'static [(usize, usize)],
    /// Types, or whole models where rows have none.
    pub types: &'static [&'static str],
    pub rows: &'static [Row],
    /// Parts of the paper that trine has not, and doubts about it.
    pub missing: &'static str,
}

impl Experiment {
    /// The model of a row in a type, with `layers` of its layers.
    ///
    /// # Errors
    /// A mistake in the tables.
    pub fn spec(&self, row: &Row, ty: &str, layers: Option<usize>) -> Result<Spec> {
        let text = if row.1.is_empty() { ty.to_owned() } else { format!("{}:{ty}", row.1) };
        let text = match (layers, text.rsplit_once(':')) {
            (Some(layers), Some((model, ty))) => format!("{model},layers={layers}:{ty}"),
            _ => text,
        };
        text.parse().map_err(|e: String| anyhow!("{text}: {e}"))
    }
}
