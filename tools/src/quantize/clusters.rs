//! Reports about any-precision files: a table of widths for people, JSON for programs.

use std::io::{self, Write};

use anyhow::Result;
use serde_json::{Value, json};
use trine::quant::anyprec::{Clusters, Footprint, Method, Report, Width, WidthSize};
use trine::quant::{Plan, Report as Written, Row};

use super::cells::{name, shape};
use super::outcome::Shown;
use crate::progress::human_bytes;
use crate::shown;
use crate::table::{Cell, Form, Table};

/// The cells of one tensor.
pub fn cells(row: &Row, clusters: &Clusters) -> Vec<Cell> {
    let to = if clusters.takes(row) {
        let n = clusters.codes().nesting();
        format!("-> {} to {} bits", n.seed_bits, n.parent_bits)
    } else if row.converts() {
        format!("-> {} ({})", row.to, row.reason)
    } else {
        "copied".to_owned()
    };
    vec![name(row), shape(row), Cell::left("type", 4, row.from.to_string()), Cell::left("", 24, to).cut_to(12)]
}

/// The sizes as planned, or as they have become.
fn footprint(plan: &Plan, clusters: &Clusters) -> Result<Footprint> {
    let made = clusters.report().map(|report| report.footprint.clone());
    made.map_or_else(|| Ok(clusters.codes().footprint(plan)?), Ok)
}

/// Writes what is particular about such a file.
///
/// # Errors
/// I/O; names that no file can hold.
pub fn write(shown: &Shown<'_>, clusters: &Clusters, out: &mut dyn Write) -> Result<()> {
    let (plan, codes, footprint) = (shown.plan, clusters.codes(), footprint(shown.plan, clusters)?);
    let matrices = plan.rows.iter().filter(|row| clusters.takes(row)).count();
    let sensitivity = codes.options.sensitivity.name();
    let (Some(report), Some(written)) = (clusters.report(), shown.report) else {
        table(matrices, &footprint, None, out)?;
        let size = human_bytes(footprint.file_bytes);
        return Ok(writeln!(out, "would write {size}; sensitivities: {sensitivity}")?);
    };
    table(matrices, &footprint, Some(report), out)?;
    if report.sparse > 0 {
        let share = report.sparse as f64 / footprint.weights.max(1) as f64 * 100.0;
        let (sparse, size) = (report.sparse, human_bytes(footprint.sparse_bytes));
        writeln!(out, "kept as they are: {sparse} weights, {share:.3} %, {size}")?;
    }
    let method = match codes.options.method {
        Method::Exact => String::new(),
        Method::BestAt(bits) => format!("; the best clusters of {bits} bits, joined and split"),
        Method::Compat { seed } => format!("; clusters of the reference program, random state {seed}"),
    };
    let seconds = shown.start.elapsed().as_secs_f64();
    Ok(writeln!(
        out,
        "sensitivities: {sensitivity}{method}\ntime: {seconds:.1} s, {:.2} million weights per second on {} threads\nloaded by: trine alone",
        footprint.weights as f64 / 1e6 / seconds,
        written.threads
    )?)
}

/// The error at a width, relative to the weights' own size.
fn error_at(report: Option<&Report>, bits: u8) -> Option<f64> {
    let all = report?.errors.iter();
    all.clone().find(|e| e.0 == bits).map(|e| e.1)
}

fn table(matrices: usize, footprint: &Footprint, report: Option<&Report>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{matrices} matrices of {} weights, {} in copied tensors",
        footprint.weights,
        human_bytes(footprint.copied_bytes)
    )?;
    let mut table = Table::new(Form::Spaces(0));
    for w in &footprint.widths {
        let WidthSize { bits, prefix_bytes, run_bytes, run_bits, stored_bits, table_bytes } = *w;
        let mut cells = vec![
            Cell::right("width", 5, bits.to_string()).key(),
            Cell::right("file so far", 11, human_bytes(prefix_bytes)),
            Cell::right("run reads", 10, human_bytes(run_bytes)),
            Cell::right("bits/weight", 11, format!("{run_bits:.4}")),
            Cell::right("with stored", 11, format!("{stored_bits:.4}")),
            Cell::right("tables", 10, human_bytes(table_bytes)),
        ];
        cells.extend(error_at(report, bits).map(|e| Cell::right("error", 8, format!("{e:.3e}"))));
        table.row(&cells, out)?;
    }
    table.finish(out)
}

/// The report as JSON.
///
/// # Errors
/// Names that no file can hold.
pub fn to_json(shown: &Shown<'_>, clusters: &Clusters) -> Result<Value> {
    let (plan, codes, report) = (shown.plan, clusters.codes(), clusters.report());
    let footprint = footprint(plan, clusters)?;
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
    let tensor = |row: &Row| {
        let from = row.from.to_string();
        json!({ "name": row.name, "shape": row.shape, "from": from, "quantized": clusters.takes(row) })
    };
    let mut value = json!({
        "target": shown.recipe.target.name(),
        "seed_bits": codes.header.seed_bits,
        "parent_bits": codes.header.parent_bits,
        "row_groups": codes.header.groups,
        "shared_tables": codes.header.tables,
        "seed_method": codes.header.seed_method,
        "weights": footprint.weights,
        "rows": footprint.rows,
        "copied_bytes": footprint.copied_bytes,
        "sparse_bytes": footprint.sparse_bytes,
        "loaded_by": ["trine"],
        "widths": footprint.widths.iter().map(width).collect::<Vec<_>>(),
        "file_bytes": footprint.file_bytes,
        "warnings": plan.warnings,
        "notes": plan.notes,
        "tensors": plan.rows.iter().map(tensor).collect::<Vec<_>>(),
        "sensitivity": codes.options.sensitivity.name(),
    });
    if let (Some(report), Some(written)) = (report, shown.report) {
        value["files"] = json!([shown.out.display().to_string()]);
        value["sparse_weights"] = json!(report.sparse);
        value["threads"] = json!(written.threads);
        value["seconds"] = json!(shown.start.elapsed().as_secs_f64());
    }
    Ok(value)
}

/// Writes what was done with a single width.
///
/// # Errors
/// I/O.
pub fn write_width(plan: &Plan, bits: u8, report: &Written, json: bool, out: &mut dyn Write) -> Result<()> {
    let (file, file_bytes) = (report.files[0].display().to_string(), report.file_bytes);
    let per_weight = plan.find::<Width>().map_or(0.0, Width::bits);
    if json {
        let value = json!({ "files": [file], "width": bits, "file_bytes": file_bytes, "bits_per_weight": per_weight });
        return Ok(writeln!(out, "{}", shown::json(&value, true))?);
    }
    let size = human_bytes(file_bytes);
    Ok(writeln!(out, "{file}: {bits} bits, {size}; {per_weight:.4} bits per weight in the matrices")?)
}
