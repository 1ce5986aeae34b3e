//! `--profile`: where the time of a model goes, operation by operation.
//!
//! Operations that do the same in several blocks are one row. An operation that multiplies reads its matrices once for
//! each pass, and multiplies every weight once for each token; the larger share of what the machine reads or multiplies
//! in that time says how near it is to the machine's limit.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use trine::Isa;
use trine::exec::Profile;
use trine::model::Weights;
use trine::program::Line as Described;

use super::Subject;
use super::args::Args;
use super::grid::{self, Test};
use super::machine::Machine;
use super::models;
use super::output::{Line, Table, object};
use crate::args::threads;
use crate::table::Cell;

/// Measures the models.
///
/// # Errors
/// A model that cannot be loaded, or that a GPU runs; nothing to do; output that cannot be written.
pub fn run(args: &Args, subjects: &[Subject], out: &mut dyn Write) -> Result<()> {
    let isa = Isa::from_env()?;
    let tests = grid::tests(args)?;
    let counts = models::thread_counts(args, &[threads(None)]);
    let mut table = Table::new(args.output, "rbench.profile/1", out)?;
    let loading = args.only_loading("--profile")?;
    for subject in subjects {
        let name = subject.name();
        let file = subject.open(args)?;
        table.about(subject, &file);
        let options = args.load_options(isa, loading)?;
        let model = Weights::load(&file, &options).with_context(|| format!("'{name}'"))?;
        if model.is_offloaded() {
            bail!("--profile times the operations of the processor; leave -ngl out");
        }
        for &threads in &counts {
            let pool = models::start_pool(threads)?;
            let machine = Machine::new(threads)?;
            let limits = Limits { read: machine.bandwidth(), multiply: machine.int8(isa) };
            for test in &tests {
                let profile = Arc::new(Profile::default());
                let times = (args.repetitions, Some(&profile));
                models::measure_with(&model, &pool, test, times, args, &|_| ())?;
                let rows = rows(&model, &profile, test, args.repetitions);
                let total = rows.iter().map(|row| row.time).sum();
                for row in &rows {
                    table.row(&row.line(&name, test, threads, total, &limits))?;
                }
            }
        }
    }
    table.finish()?;
    Ok(())
}

/// Peak rates of the machine, per second.
struct Limits {
    /// Bytes read from memory.
    read: f64,
    /// Products of bytes.
    multiply: f64,
}

/// Operations that do the same in several blocks.
struct Row {
    operation: String,
    runs: u64,
    time: Duration,
    /// Bytes of matrices that were read in all runs.
    bytes: f64,
    /// Multiplications by their weights in all runs.
    macs: f64,
}

/// The rows of a profile, the longest time first.
fn rows(model: &Weights, profile: &Profile, test: &Test, repetitions: usize) -> Vec<Row> {
    let program = model.program();
    let mut rows: Vec<Row> = Vec::new();
    let tokens = (test.tokens() * repetitions) as f64;
    let operations = program.operations().iter().zip(program.lines());
    for ((operation, described), (runs, time)) in operations.zip(profile.times()).filter(|(_, (runs, _))| *runs > 0) {
        let name = name(&described);
        // an expert is read where a token chose it: at most once in a pass
        let experts: usize = described.matrices.iter().map(|m| m.count).max().unwrap_or(1);
        let chosen = match described.outputs.first() {
            Some(output) if output.rows == "experts" => {
                let in_pass = tokens / runs as f64;
                (in_pass * program.experts_per_token(operation) as f64).min(experts as f64) / experts as f64
            }
            _ => 1.0,
        };
        let embeds = described.operation.starts_with("embed");
        let weights: f64 = described.matrices.iter().map(|m| (m.rows * m.columns * m.count) as f64).sum();
        let used = match described.outputs.first() {
            Some(output) if output.rows == "experts" => program.experts_per_token(operation) as f64 / experts as f64,
            // the logits of each run are of the last token of a prompt, or of the only one
            Some(output) if output.rows == "wanted" => runs as f64 / tokens,
            _ => 1.0,
        };
        let (bytes, macs) = match embeds {
            true => (0.0, 0.0),
            false => (model.matrix_bytes(operation) as f64 * runs as f64 * chosen, weights * tokens * used),
        };
        match rows.iter_mut().find(|row| row.operation == name) {
            Some(row) => {
                row.runs += runs;
                row.time += time;
                row.bytes += bytes;
                row.macs += macs;
            }
            None => rows.push(Row { operation: name, runs, time, bytes, macs }),
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.time));
    rows
}

/// The operation and its tensors, or its first result, without the block.
fn name(line: &Described) -> String {
    let prefix = line.block.map(|block| format!("blk.{block}.")).unwrap_or_default();
    let short = |name: &str| {
        let name = name.strip_prefix(&prefix).unwrap_or(name);
        name.strip_suffix(".weight").unwrap_or(name).to_owned()
    };
    let parts: Vec<String> = match line.matrices.is_empty() {
        true => line.outputs.iter().take(1).map(|output| short(&output.name)).collect(),
        false => line.matrices.iter().map(|matrix| short(&matrix.tensor)).collect(),
    };
    format!("{} {}", line.operation.replace('_', " "), parts.join(" "))
}

impl Row {
    fn line(&self, file: &str, test: &Test, threads: usize, total: Duration, limits: &Limits) -> Line {
        let seconds = self.time.as_secs_f64().max(1e-12);
        let share = seconds / total.as_secs_f64().max(1e-12);
        let (read, multiplied) = (self.bytes / seconds, self.macs / seconds);
        let of_limit = (read / limits.read).max(multiplied / limits.multiply);
        let number = |x: f64| if x > 0.0 { format!("{x:.1}") } else { String::new() };
        let cells = vec![
            Cell::right("test", 7, test.name()).above(),
            Cell::left("operation", 44, self.operation.clone()).key().cut_to(24),
            Cell::right("runs", 7, self.runs.to_string()).wide_only(),
            Cell::right("ms", 8, format!("{:.2}", seconds * 1e3)),
            Cell::right("time", 6, format!("{:.1} %", share * 100.0)),
            Cell::right("GB/s", 5, number(read / 1e9)),
            Cell::right("GMAC/s", 6, number(multiplied / 1e9)),
            Cell::right(
                "of limit",
                8,
                if self.macs > 0.0 { format!("{:.0} %", of_limit * 100.0) } else { String::new() },
            ),
        ];
        let fields = object([
            ("version", json!(env!("CARGO_PKG_VERSION"))),
            ("model_filename", json!(file)),
            ("n_threads", json!(threads)),
            ("test", json!(test.name())),
            ("operation", json!(self.operation)),
            ("runs", json!(self.runs)),
            ("seconds", json!(seconds)),
            ("share", json!(share)),
            ("matrix_bytes", json!(self.bytes)),
            ("macs", json!(self.macs)),
            ("read_gbs", json!(limits.read / 1e9)),
            ("int8_gmacs", json!(limits.multiply / 1e9)),
            ("of_limit", json!(of_limit)),
        ]);
        Line { cells, fields }
    }
}
