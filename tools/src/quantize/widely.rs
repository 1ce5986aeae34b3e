//! Reports about widely linear matrices, and the choice of the output matrix.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use trine::quant::widely::Widely;
use trine::quant::{Plan, Recipe, Row, run};
use trine_formats::gguf::{ModelFile, Value as Meta};
use trine_formats::widely::tile64;

use super::args::{Args, Positionals};
use super::cells::{name, shape};
use super::outcome::Shown;
use crate::progress::human_bytes;
use crate::table::Cell;
use crate::widely::OutputArg;

/// The plan of a widely linear model; what `auto` means is found out first.
///
/// # Errors
/// Requests that make no sense for the model; what the measurement says.
pub fn plan(args: &Args, job: &Positionals, model: &ModelFile, recipe: &mut Recipe) -> Result<Plan> {
    let options = &args.widely;
    if tile64::is_in(model.meta()) {
        if let Some(option) = options.given() {
            bail!("{option} has no meaning here: the file's matrices are codes and scales already");
        }
        return Ok(Plan::new(model, recipe)?);
    }
    if args.dry_run && options.wl_lm_head == Some(OutputArg::Auto) {
        bail!("--wl-lm-head auto converts and measures: it knows no --dry-run");
    }
    let make = &mut |form, path: &Path| {
        recipe.widely.output = form;
        run(model, &mut Plan::new(model, recipe)?, path, job.options(args)?, &mut ())?;
        Ok(())
    };
    let Some(choice) = options.choose_output(&job.out, make)? else {
        return Ok(Plan::new(model, recipe)?);
    };
    recipe.widely.output = choice.form;
    let mut plan = Plan::new(model, recipe)?;
    for (key, ppl) in choice.keys() {
        plan.shards[0].meta.set(key, Meta::F32(ppl));
    }
    Ok(plan)
}

/// Writes what is particular about such a file.
///
/// # Errors
/// I/O.
pub fn write(shown: &Shown<'_>, widely: &Widely, bytes: u64, out: &mut dyn Write) -> io::Result<()> {
    let Some(header) = widely.header() else { return Ok(()) };
    let (rule, (weights, bits)) = (&header.rule, widely.bits());
    writeln!(
        out,
        "{}{}: {}, {weights} weights in widely linear form, {bits:.4} bits each ({} stages, scales by {}, profile {}, ties by {}, output {})",
        if shown.report.is_some() { "" } else { "would write " },
        shown.out.display(),
        human_bytes(bytes),
        rule.stages,
        rule.scope.name(),
        rule.profile.name(),
        rule.tie.name(),
        header.output.name(),
    )?;
    if !widely.is_dense() {
        writeln!(out, "loaded by: trine alone")?;
    }
    if !widely.is_dense() && shown.report.is_some() && !tile64::is_in(shown.model.meta()) {
        writeln!(
            out,
            "a model that was not trained for this form loses most of its quality: compare perplexities with rperplexity"
        )?;
    }
    writeln!(out, "time: {:.1} s", shown.start.elapsed().as_secs_f64())
}

/// The report as JSON.
pub fn to_json(shown: &Shown<'_>, widely: &Widely, bytes: u64) -> Value {
    let Some(header) = widely.header() else { return Value::Null };
    let (plan, rule, (weights, bits)) = (shown.plan, &header.rule, widely.bits());
    let row = |r: &Row| {
        let (from, to) = (r.from.to_string(), r.to.to_string());
        json!({ "name": r.name, "source": r.source.name, "from": from, "to": to, "shape": r.shape })
    };
    json!({
        "architecture": plan.shards[0].meta.get_str("general.architecture").ok().flatten(),
        "stages": rule.stages,
        "scale_scope": rule.scope.name(),
        "numeric_profile": rule.profile.name(),
        "tie_rule": rule.tie.name(),
        "lm_head": header.output.name(),
        "weights": weights,
        "bits_per_weight": bits,
        "notes": plan.notes,
        "tensors": plan.rows.iter().map(row).collect::<Vec<_>>(),
        "file": shown.report.map(|_| shown.out.display().to_string()),
        "file_bytes": bytes,
        "seconds": shown.start.elapsed().as_secs_f64(),
    })
}

/// The cells of one tensor.
pub fn cells(row: &Row) -> Vec<Cell> {
    let types = format!("{} -> {}", row.from, row.to);
    vec![name(row), shape(row), Cell::left("type", 4, types), Cell::left("why", 12, row.reason.to_string()).cut_to(12)]
}
