//! How plans and results of any-precision targets are shown: a table of widths for people, JSON for programs.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use trine::quant::anyprec::{Footprint, Method, Plan, Report, Sensitivity, Target, WidthSize};

use crate::progress::human_bytes;
use crate::shown;

/// A finished job: its report, its file and its time.
pub struct Done<'a> {
    pub report: &'a Report,
    pub out: &'a Path,
    pub time: Duration,
}

/// Writes what would be done.
pub fn write_plan(
    plan: &Plan,
    target: Target,
    sensitivity: &Sensitivity,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let footprint = plan.footprint()?;
    if json {
        let mut value = describe(plan, target, &footprint, None);
        value["sensitivity"] = json!(sensitivity.name());
        writeln!(out, "{}", shown::json(&value, true))?;
        return Ok(());
    }
    for (i, row) in plan.rows.iter().enumerate() {
        let shape: Vec<String> = row.shape.iter().map(u64::to_string).collect();
        let to = if plan.quantized.binary_search(&i).is_ok() {
            let n = plan.nesting();
            format!("-> {} to {} bits", n.seed_bits, n.parent_bits)
        } else if row.converts() {
            format!("-> {} ({})", row.to, row.reason)
        } else {
            "copied".to_owned()
        };
        let (shape, from) = (shape.join(" x "), row.from.to_string());
        writeln!(out, "{:<36} {shape:<18} {from:<6} {to}", shown::name(&row.name))?;
    }
    table(plan, &footprint, None, out)?;
    writeln!(out, "would write {}; sensitivities: {}", human_bytes(footprint.file_bytes), sensitivity.name())?;
    Ok(())
}

/// Writes what was done.
pub fn write_report(plan: &Plan, target: Target, done: &Done<'_>, json: bool, out: &mut dyn Write) -> io::Result<()> {
    let report = done.report;
    if json {
        let mut value = describe(plan, target, &report.footprint, Some(report));
        value["sensitivity"] = json!(report.header.sensitivity);
        value["files"] = json!([done.out.display().to_string()]);
        value["sparse_weights"] = json!(report.sparse);
        value["threads"] = json!(report.threads);
        value["seconds"] = json!(done.time.as_secs_f64());
        return writeln!(out, "{}", shown::json(&value, true));
    }
    writeln!(out, "{}: {}, {}", done.out.display(), target.name(), human_bytes(report.file_bytes))?;
    table(plan, &report.footprint, Some(report), out)?;
    if report.sparse > 0 {
        let share = report.sparse as f64 / report.footprint.weights.max(1) as f64 * 100.0;
        writeln!(
            out,
            "kept as they are: {} weights, {share:.3} %, {}",
            report.sparse,
            human_bytes(report.footprint.sparse_bytes)
        )?;
    }
    let method = match plan.method {
        Method::Exact => String::new(),
        Method::BestAt(bits) => format!("; the best clusters of {bits} bits, joined and split"),
        Method::Compat { seed } => {
            format!("; clusters of the reference program, random state {seed}")
        }
    };
    writeln!(
        out,
        "sensitivities: {}{method}\ntime: {:.1} s, {:.2} million weights per second on {} threads\nloaded by: trine alone",
        report.header.sensitivity,
        done.time.as_secs_f64(),
        report.footprint.weights as f64 / 1e6 / done.time.as_secs_f64(),
        report.threads
    )
}

/// The error at a width, relative to the weights' own size.
fn error_at(report: Option<&Report>, bits: u8) -> Option<f64> {
    let all = report?.errors.iter();
    all.clone().find(|e| e.0 == bits).map(|e| e.1)
}

fn table(plan: &Plan, footprint: &Footprint, report: Option<&Report>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{} matrices of {} weights, {} in copied tensors",
        plan.quantized.len(),
        footprint.weights,
        human_bytes(footprint.copied_bytes)
    )?;
    let error_title = if report.is_some() { "  error" } else { "" };
    writeln!(
        out,
        "{:>5}  {:>12}  {:>12}  {:>11}  {:>11}  {:>11}{error_title}",
        "width", "file so far", "run reads", "bits/weight", "with stored", "tables"
    )?;
    for w in &footprint.widths {
        let WidthSize { bits, prefix_bytes, run_bytes, run_bits, stored_bits, table_bytes } = *w;
        let error = error_at(report, bits).map_or(String::new(), |e| format!("  {e:.3e}"));
        writeln!(
            out,
            "{bits:>5}  {:>12}  {:>12}  {run_bits:>11.4}  {stored_bits:>11.4}  {:>11}{error}",
            human_bytes(prefix_bytes),
            human_bytes(run_bytes),
            human_bytes(table_bytes)
        )?;
    }
    Ok(())
}

fn describe(plan: &Plan, target: Target, footprint: &Footprint, report: Option<&Report>) -> Value {
    let width = |w: &WidthSize| {
        let mut value = json!({
            "bits": w.bits,
            "prefix_bytes": w.prefix_bytes,
            "run_bytes": w.run_bytes,
            "run_bits_per_weight": w.run_bits,
            "stored_bits_per_weight": w.stored_bits,
            "table_bytes": w.table_bytes,
        });
        if let Some(error) = error_at(report, w.bits) {
            value["relative_error"] = json!(error);
        }
        value
    };
    let tensors: Vec<Value> = plan
        .rows
        .iter()
        .enumerate()
        .map(|(i, row)| {
            json!({
                "name": row.name,
                "shape": row.shape,
                "from": row.from.to_string(),
                "quantized": plan.quantized.binary_search(&i).is_ok(),
            })
        })
        .collect();
    json!({
        "target": target.name(),
        "seed_bits": plan.header.seed_bits,
        "parent_bits": plan.header.parent_bits,
        "row_groups": plan.header.groups,
        "seed_method": plan.header.seed_method,
        "weights": footprint.weights,
        "rows": footprint.rows,
        "copied_bytes": footprint.copied_bytes,
        "sparse_bytes": footprint.sparse_bytes,
        "loaded_by": ["trine"],
        "widths": footprint.widths.iter().map(width).collect::<Vec<_>>(),
        "file_bytes": footprint.file_bytes,
        "warnings": plan.warnings,
        "notes": plan.notes,
        "tensors": tensors,
    })
}
