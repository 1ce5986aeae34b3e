//! rquantize for `FAIRY2I` and back.

use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};
use serde_json::json;
use trine::quant::widely::{Content, Plan, Recipe, Row};
use trine::quant::{parse_type, run};
use trine_formats::gguf::{ModelFile, Value as Meta};
use trine_formats::widely::tile64;

use super::args::{Args, Job};
use crate::progress::human_bytes;
use crate::runner::{carry_out, remark};
use crate::widely::{OutputArg, WidelyArgs};

/// The kind of result.
#[derive(Clone, Copy)]
pub enum Goal<'a> {
    /// Widely linear matrices.
    Widely(&'a WidelyArgs),
    /// Dense ones again, of the type of this name.
    Dense(&'a str),
}

/// Quantizes or makes dense, or shows what would be done.
///
/// # Errors
/// Requests that make no sense for the model; I/O; weights that are not finite.
pub fn quantize(args: &Args, job: &Job, model: &ModelFile, goal: Goal<'_>) -> Result<()> {
    let start = Instant::now();
    let plan = match goal {
        Goal::Widely(options) => plan_widely(args, job, model, options)?,
        Goal::Dense(name) => Plan::dense(model, parse_type(name)?, &args.overrides()?)?,
    };
    remark([], &plan.notes);
    let mut out = io::stdout().lock();
    let bytes = plan.layout()?.file_bytes();
    if !args.dry_run {
        carry_out(model, &plan, &job.out, job.options(args)?, args.verbose, |i| line(&plan.rows[i]))??;
    } else if !args.json {
        for row in &plan.rows {
            writeln!(out, "{}", line(row))?;
        }
    }
    let file = job.out.display().to_string();
    let (weights, bits) = plan.bits();
    if args.json {
        let mut value = description(&plan);
        value["file"] = if args.dry_run { json!(null) } else { json!(file) };
        value["file_bytes"] = json!(bytes);
        value["seconds"] = json!(start.elapsed().as_secs_f64());
        return Ok(writeln!(out, "{value:#}")?);
    }
    let verb = if args.dry_run { "would write " } else { "" };
    let rule = &plan.header.rule;
    writeln!(
        out,
        "{verb}{file}: {}, {weights} weights in widely linear form, {bits:.4} bits each ({} stages, scales by {}, profile {}, ties by {}, output {})",
        human_bytes(bytes),
        rule.stages,
        rule.scope.name(),
        rule.profile.name(),
        rule.tie.name(),
        plan.header.output.name(),
    )?;
    if matches!(goal, Goal::Widely(_)) {
        writeln!(out, "loaded by: trine alone")?;
    }
    if matches!(goal, Goal::Widely(_)) && !args.dry_run && !tile64::is_in(model.meta()) {
        writeln!(
            out,
            "a model that was not trained for this form loses most of its quality: compare perplexities with rperplexity"
        )?;
    }
    Ok(writeln!(out, "time: {:.1} s", start.elapsed().as_secs_f64())?)
}

/// The plan of a widely linear model; what `auto` means is found out first.
fn plan_widely(args: &Args, job: &Job, model: &ModelFile, options: &WidelyArgs) -> Result<Plan> {
    let overrides = args.overrides()?;
    if tile64::is_in(model.meta()) {
        if let Some(option) = options.given() {
            bail!("{option} has no meaning here: the file's matrices are codes and scales already");
        }
        return Ok(Plan::translated(model, &overrides)?);
    }
    let recipe = Recipe { allow_requantize: args.allow_requantize, overrides, ..options.recipe() };
    let with = |output| Recipe { output, ..recipe.clone() };
    if args.dry_run && options.wl_lm_head == Some(OutputArg::Auto) {
        bail!("--wl-lm-head auto converts and measures: it knows no --dry-run");
    }
    let make = &mut |form, path: &Path| {
        let plan = Plan::new(model, &with(form))?;
        run(model, &plan, path, job.options(args)?, &mut ())?;
        Ok(())
    };
    let Some(choice) = options.choose_output(&job.out, make)? else {
        return Ok(Plan::new(model, &recipe)?);
    };
    let mut plan = Plan::new(model, &with(choice.form))?;
    for (key, ppl) in choice.keys() {
        plan.meta.set(key, Meta::F32(ppl));
    }
    Ok(plan)
}

fn description(plan: &Plan) -> serde_json::Value {
    let rule = &plan.header.rule;
    let (weights, bits) = plan.bits();
    let row = |r: &Row| {
        json!({
            "name": r.name, "source": r.source, "from": r.from.to_string(), "to": r.to.to_string(), "shape": r.shape,
        })
    };
    json!({
        "architecture": plan.meta.get_str("general.architecture").ok().flatten(),
        "stages": rule.stages,
        "scale_scope": rule.scope.name(),
        "numeric_profile": rule.profile.name(),
        "tie_rule": rule.tie.name(),
        "lm_head": plan.header.output.name(),
        "weights": weights,
        "bits_per_weight": bits,
        "notes": plan.notes,
        "tensors": plan.rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn line(row: &Row) -> String {
    let shape: Vec<String> = row.shape.iter().map(u64::to_string).collect();
    let what = match row.content {
        Content::Copied { head: None } => "as it is",
        Content::Copied { head: Some(_) } => "rows of heads in another order",
        Content::Codes { .. } => "codes",
        Content::Scales => "scales",
        Content::Tiles { .. } => "codes of another layout",
        Content::Embeddings => "pairs of bfloat16, taken apart",
        Content::Dense { .. } => "the sum of the stages",
    };
    let (from, to) = (row.from.to_string(), row.to.to_string());
    format!("{:<36} {from:>5} -> {to:<5} [{}]  {what}", row.name, shape.join(", "))
}
