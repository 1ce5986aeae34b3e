//! The report of a run.

use std::path::Path;
use std::time::Instant;

use serde_json::Value;
use trine::quant::{Plan, Recipe, Report};
use trine_formats::gguf::ModelFile;

/// A plan, and what became of it where it was carried out.
pub struct Shown<'a> {
    pub plan: &'a Plan,
    pub recipe: &'a Recipe,
    /// The path that was asked for.
    pub out: &'a Path,
    pub model: &'a ModelFile,
    /// The files that were written; none after a dry run.
    pub report: Option<&'a Report>,
    pub start: Instant,
    /// The divergence that was wanted, predicted and measured, in JSON; null where none was asked for.
    pub divergence: &'a Value,
}
