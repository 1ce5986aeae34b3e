//! How rquantize shows plans and results: a table and a few lines for people, JSON for programs.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use trine::quant::anyprec::Clusters;
use trine::quant::gptq::Feedback;
use trine::quant::lossless::{self, Inexact, MoveReport, Moved, Moves};
use trine::quant::widely::Widely;
use trine::quant::{Plan, Recipe, Report, Rounding, Row, Target, TensorLoss, TernaryReport};
use trine_formats::gguf::write::Layout;
use trine_formats::gguf::{Dialect, ModelFile, Program, programs};
use trine_formats::rotated::Rotated;

use super::outcome::Shown;
use super::{cells, clusters, widely};
use crate::progress::human_bytes;
use crate::provenance::Provenance;
use crate::table::{self, Cell, Form};
use crate::{gptq, load, shown};

fn bits_per_weight(bytes: u64, plan: &Plan) -> f64 {
    bytes as f64 * 8.0 / plan.weights().max(1) as f64
}

fn sizes(plan: &Plan) -> String {
    let size = |bytes| format!("{} ({:.2} bits per weight)", human_bytes(bytes), bits_per_weight(bytes, plan));
    let (n, weights) = (plan.rows.len(), plan.weights());
    let (from, to) = (size(plan.bytes_from()), size(plan.bytes()));
    format!("{n} tensors, {weights} weights: {from} -> {to}")
}

/// How many tensors there are of each type: `types: 42 tq2_0, 13 f32, 1 q6_K`.
fn type_counts(plan: &Plan) -> String {
    let mut counts: BTreeMap<u32, (usize, String)> = BTreeMap::new();
    for row in &plan.rows {
        counts.entry(row.to.0).or_insert_with(|| (0, row.to.to_string())).0 += 1;
    }
    let mut counts: Vec<_> = counts.into_values().collect();
    counts.sort_by_key(|c| std::cmp::Reverse(c.0));
    let counts: Vec<String> = counts.iter().map(|(n, ty)| format!("{n} {ty}")).collect();
    format!("types: {}", counts.join(", "))
}

/// The programs that load all types of the output, by name; trine does anyway.
fn readers(plan: &Plan) -> Vec<&'static str> {
    if plan.shards.first().is_some_and(|shard| Rotated::is_in(&shard.meta)) {
        let of_ik = plan.rows.iter().any(|row| Dialect::of(row.to) == Dialect::IkLlama);
        return if of_ik { vec!["trine"] } else { vec!["PrismML's fork of llama.cpp", "trine"] };
    }
    let programs = programs(plan.rows.iter().map(|row| row.to));
    let names = programs.into_iter().map(Program::name);
    names.chain(["trine"]).collect()
}

/// Which programs load the types: `loaded by: llama.cpp, trine`.
fn loaded_by(plan: &Plan) -> String {
    match readers(plan)[..] {
        [_] => "loaded by: trine alone".to_owned(),
        ref names => format!("loaded by: {}, where they know the architecture", names.join(", ")),
    }
}

fn plan_json(plan: &Plan, target: Target) -> Value {
    let row = |r: &Row| {
        json!({
            "name": r.name, "shape": r.shape, "from": r.from.to_string(), "to": r.to.to_string(),
            "bytes_from": r.bytes_from, "bytes": r.bytes, "reason": r.reason.to_string(),
            "importance": r.weighted,
        })
    };
    let gptq = gptq::to_json(plan, false);
    json!({
        "type": target.name(),
        "tensors": plan.rows.iter().map(row).collect::<Vec<_>>(),
        "weights": plan.weights(),
        "bytes_from": plan.bytes_from(),
        "bytes": plan.bytes(),
        "bits_per_weight_from": bits_per_weight(plan.bytes_from(), plan),
        "bits_per_weight": bits_per_weight(plan.bytes(), plan),
        "loaded_by": readers(plan),
        "fallbacks": plan.n_fallback(),
        "gptq": gptq,
        "notes": plan.notes,
        "problems": plan.problems.iter().map(|p| p.to_string()).collect::<Vec<_>>(),
    })
}

/// A line for each kind of tensor whose rows are no whole blocks of the type they should have had.
fn fallbacks(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    for ((wanted, got, columns), n) in plan.fallbacks() {
        let tensors = if n == 1 { "tensor" } else { "tensors" };
        writeln!(out, "fallback: {n} {tensors} with rows of {columns}: {got} instead of {wanted}")?;
    }
    Ok(())
}

fn ternary_json(report: &TernaryReport) -> Value {
    if report.tensors.is_empty() {
        return Value::Null;
    }
    let total = report.total();
    let tensor = |t: &TensorLoss| {
        json!({
            "name": t.name, "type": t.ty.to_string(), "weights": t.loss.weights,
            "changed": t.loss.changed, "relative_error": t.loss.relative_error(),
            "scale_error": t.loss.scale_error,
        })
    };
    json!({
        "lossless_digits": total.is_lossless(),
        "weights": total.weights,
        "changed": total.changed,
        "relative_error": total.relative_error(),
        "scale_error": total.scale_error,
        "tensors": report.tensors.iter().map(tensor).collect::<Vec<_>>(),
    })
}

fn moves_json(report: &MoveReport) -> Value {
    if report.tensors.is_empty() {
        return Value::Null;
    }
    let tensor = |t: &Moved| {
        json!({
            "name": t.name, "from": t.from.to_string(), "to": t.to.to_string(), "weights": t.weights,
            "zero_signs": t.zero_signs,
            "exact": t.inexact.is_none(),
            "why": t.inexact.as_ref().map(Inexact::to_string),
            "changed": t.inexact.as_ref().map_or(0, |i| i.comparison.different),
            "relative_error": t.inexact.as_ref().map_or(0.0, |i| i.comparison.relative_error()),
        })
    };
    json!({
        "exact": report.is_exact(),
        "tensors": report.tensors.iter().map(tensor).collect::<Vec<_>>(),
    })
}

/// Reads the files that were written and compares every weight with the input's. Returns what to say of it.
///
/// # Errors
/// Weights that should be the same and are not, tensors that cannot be compared; I/O.
pub fn verify(model: &ModelFile, recipe: &Recipe, plan: &Plan, report: &Report) -> Result<String> {
    let first = report.files.first().context("no file was written")?;
    let written = load::open(first, true)?;
    let result = lossless::verify(model, &recipe.input_packing, &written, &recipe.output_packing, &plan.rows);
    let found = match result {
        Ok(found) => found,
        Err(problems) => {
            for problem in &problems {
                note!("  {problem}");
            }
            bail!(
                "'{}' was written and cannot be verified: {} problems, the first: {}",
                first.display(),
                problems.len(),
                problems.first().map_or(String::new(), ToString::to_string)
            );
        }
    };
    let problems: Vec<String> = found.problems().map(ToString::to_string).collect();
    for problem in &problems {
        note!("  {problem}");
    }
    if !problems.is_empty() {
        bail!("'{}' was written, but {found}", first.display());
    }
    Ok(format!("verified: {found}"))
}

/// The cells of one tensor.
fn cells_of(plan: &Plan, row: &Row) -> Vec<Cell> {
    match (plan.find::<Clusters>(), plan.find::<Widely>()) {
        (Some(clusters), _) => clusters::cells(row, clusters),
        (_, Some(_)) => widely::cells(row),
        _ => cells::usual(row),
    }
}

/// A line on one tensor that is made now.
pub fn verbose_line(plan: &Plan, index: usize) -> String {
    let row = &plan.rows[index];
    if plan.find::<Clusters>().is_some() {
        return shown::name(&row.name);
    }
    table::counted(index, plan.rows.len(), &cells_of(plan, row))
}

impl Shown<'_> {
    /// Writes it; in JSON that of the usual targets says where it comes from.
    ///
    /// # Errors
    /// I/O; names that no file can hold.
    pub fn write(&self, json: bool, provenance: Provenance, out: &mut dyn Write) -> Result<()> {
        let (clusters, widely) = (self.plan.find::<Clusters>(), self.plan.find::<Widely>());
        let bytes = match self.report {
            Some(report) => report.file_bytes,
            None if widely.is_some() => self.plan.layouts()?.iter().map(Layout::file_bytes).sum(),
            None => 0,
        };
        if json {
            let value = match (clusters, widely) {
                (Some(clusters), _) => clusters::to_json(self, clusters)?,
                (_, Some(widely)) => widely::to_json(self, widely, bytes),
                _ => provenance.before(self.to_json()),
            };
            return Ok(writeln!(out, "{}", shown::json(&value, true))?);
        }
        if self.report.is_none() {
            table::write(Form::Spaces(0), self.plan.rows.iter().map(|row| cells_of(self.plan, row)).collect(), out)?;
        }
        if let Some(widely) = widely {
            return Ok(widely::write(self, widely, bytes, out)?);
        }
        if let Some(report) = self.report {
            let target = self.recipe.target.name();
            writeln!(out, "{}: {target}, {}", names(report).join(" "), human_bytes(report.file_bytes))?;
        }
        match clusters {
            Some(clusters) => clusters::write(self, clusters, out),
            None => Ok(self.write_usual(out)?),
        }
    }

    fn write_usual(&self, out: &mut dyn Write) -> io::Result<()> {
        let plan = self.plan;
        writeln!(out, "{}\n{}\n{}", sizes(plan), type_counts(plan), loaded_by(plan))?;
        if self.report.is_none() {
            return feedback(plan, out);
        }
        fallbacks(plan, out)?;
        feedback(plan, out)?;
        if let Some(moves) = plan.find::<Moves>().map(Moves::report).filter(|report| !report.tensors.is_empty()) {
            writeln!(out, "moved: {}", shown::message(&moves.to_string()))?;
        }
        let ternary = ternary(plan);
        if !ternary.tensors.is_empty() {
            writeln!(out, "ternary: {}", shown::message(&ternary.to_string()))?;
        }
        writeln!(out, "time: {:.1} s", self.start.elapsed().as_secs_f64())
    }

    fn to_json(&self) -> Value {
        let plan = self.plan;
        let mut value = plan_json(plan, self.recipe.target);
        if let Some(report) = self.report {
            value["files"] = json!(names(report));
            value["file_bytes"] = json!(report.file_bytes);
            value["seconds"] = json!(self.start.elapsed().as_secs_f64());
            value["ternary"] = plan.find::<Rounding>().map_or(Value::Null, |_| ternary_json(&ternary(plan)));
            value["moved"] = plan.find::<Moves>().map_or(Value::Null, |m| moves_json(m.report()));
            value["gptq"] = gptq::to_json(plan, true);
            value["divergence"] = self.divergence.clone();
        }
        value
    }
}

/// The tensors that were made ternary, by whichever method.
pub fn ternary(plan: &Plan) -> TernaryReport {
    let reports = [plan.find::<Rounding>().map(Rounding::report), plan.find::<Feedback>().map(Feedback::ternary)];
    TernaryReport { tensors: reports.into_iter().flatten().flat_map(|report| report.tensors.clone()).collect() }
}

fn names(report: &Report) -> Vec<String> {
    report.files.iter().map(|f| f.display().to_string()).collect()
}

/// How many tensors are rounded by another method or with error feedback, where that was asked for.
fn feedback(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    let encoder = plan.find::<Rounding>().map(Rounding::encoder);
    if let Some((name, tensors)) =
        encoder.and_then(|encoder| encoder.rows_of(&plan.rows)).filter(|(_, tensors)| *tensors > 0)
    {
        writeln!(out, "{name}: {tensors} tensors")?;
    }
    gptq::line(plan).map_or(Ok(()), |line| writeln!(out, "{line}"))
}
