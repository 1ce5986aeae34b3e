//! How rquantize shows plans and results: a table and a few lines for people, JSON for programs.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use trine::quant::lossless::{self, Inexact, MoveReport, Moved};
use trine::quant::{Plan, PlanError, QuantError, Recipe, Report, Row, Target, TensorLoss, TernaryReport};
use trine_formats::gguf::{ModelFile, Program, programs};

use crate::progress::human_bytes;
use crate::provenance::Provenance;
use crate::{gptq, load, shown};

/// One tensor: name, shape, types, sizes, and why.
pub fn line(row: &Row) -> String {
    let shape = row.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
    let (from, to) = (row.from.to_string(), row.to.to_string());
    let sizes = if row.converts() {
        format!("{} -> {}", human_bytes(row.bytes_from), human_bytes(row.bytes))
    } else {
        human_bytes(row.bytes)
    };
    let arrow = if row.converts() { format!("{from} -> {to}") } else { from };
    format!("{:<36} {shape:>18}  {arrow:<16} {sizes:<24} {}", shown::name(&row.name), row.reason)
}

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
    let gptq = gptq::to_json(plan, None);
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

/// Writes what would be done; `json` asks for JSON that says where it comes from.
///
/// # Errors
/// I/O.
pub fn write_plan(plan: &Plan, target: Target, json: Option<&Provenance>, out: &mut dyn Write) -> io::Result<()> {
    if let Some(provenance) = json {
        let value = provenance.before(plan_json(plan, target));
        return writeln!(out, "{}", shown::json(&value, true));
    }
    for row in &plan.rows {
        writeln!(out, "{}", line(row))?;
    }
    writeln!(out, "{}\n{}\n{}", sizes(plan), type_counts(plan), loaded_by(plan))?;
    feedback(plan, out)
}

/// How many tensors are rounded by another method or with error feedback, where that was asked for.
fn feedback(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    if let Some((name, tensors)) = plan.method() {
        writeln!(out, "{name}: {tensors} tensors")?;
    }
    gptq::line(plan).map_or(Ok(()), |line| writeln!(out, "{line}"))
}

/// Writes what was done.
///
/// # Errors
/// I/O.
pub fn write_report(
    plan: &Plan,
    report: &Report,
    target: Target,
    time: Duration,
    json: Option<&Provenance>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let names: Vec<String> = report.files.iter().map(|f| f.display().to_string()).collect();
    if let Some(provenance) = json {
        let mut value = plan_json(plan, target);
        value["files"] = json!(names);
        value["file_bytes"] = json!(report.file_bytes);
        value["seconds"] = json!(time.as_secs_f64());
        value["ternary"] = ternary_json(&report.ternary);
        value["moved"] = moves_json(&report.moves);
        value["gptq"] = gptq::to_json(plan, Some(report));
        let value = provenance.before(value);
        return writeln!(out, "{}", shown::json(&value, true));
    }
    writeln!(out, "{}: {}, {}", names.join(" "), target.name(), human_bytes(report.file_bytes))?;
    writeln!(out, "{}\n{}\n{}", sizes(plan), type_counts(plan), loaded_by(plan))?;
    fallbacks(plan, out)?;
    feedback(plan, out)?;
    if !report.moves.tensors.is_empty() {
        writeln!(out, "moved: {}", shown::message(&report.moves.to_string()))?;
    }
    if !report.ternary.tensors.is_empty() {
        writeln!(out, "ternary: {}", shown::message(&report.ternary.to_string()))?;
    }
    writeln!(out, "time: {:.1} s", time.as_secs_f64())
}

/// The tensors that an error only counts, one per line.
pub fn details(error: &QuantError) -> Vec<String> {
    match error {
        QuantError::Plan(PlanError::Refused(refusal)) => refusal.details().to_vec(),
        QuantError::NotTernary(report) => report.lossy().map(|t| format!("{}: {}", t.name, t.loss)).collect(),
        QuantError::NotExact(report) => report.inexact().map(|(name, inexact)| format!("{name}: {inexact}")).collect(),
        _ => Vec::new(),
    }
}
