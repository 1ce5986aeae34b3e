//! `rquantize`: makes the files that llama-quantize writes, and others.

mod anyprec;
pub mod args;
mod show;
mod widely;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use trine::Isa;
use trine::quant::{Fallback, Importance, Plan, QuantError, Recipe, Target, TensorRule, output_paths, parse_layers};
use trine_formats::anyprec::AnyPrec;
use trine_formats::gguf::PackingOptions;
use trine_formats::imatrix::Imatrix;
use trine_formats::widely::Header as WidelyHeader;

use crate::goal::Goal;
use crate::provenance::Provenance;
use crate::runner::{carry_out, remark};
use crate::widely::{refuse, refuse_elsewhere};
use crate::{gptq, inputs, interrupt, load, signals, split, text, threads};
use args::{Args, Job};

/// Takes one width out of an any-precision file.
fn take_width(args: &Args, width: u8) -> Result<()> {
    let [out] = &args.rest[..] else {
        bail!("--width takes no type: rquantize --width {width} IN.gguf OUT.gguf");
    };
    if let Some(option) = args.any_option() {
        bail!("{option} has no meaning beside --width, which copies");
    }
    if args.dry_run || args.verify {
        bail!("--width knows neither --dry-run nor --verify; rinspect shows the widths of a file");
    }
    let model = load::open(&args.input, true)?;
    anyprec::take_width(&model, width, Path::new(out), args.json)
}

/// Splits a file or merges a set.
fn split_or_merge(args: &Args, option: &str) -> Result<()> {
    let [out] = &args.rest[..] else {
        bail!(
            "{option} takes no type, only IN.gguf and {}; quantize first and split then",
            if args.split.merge { "OUT.gguf" } else { "OUTPREFIX" }
        );
    };
    let others = [
        (!args.override_kv.is_empty(), "--override-kv"),
        (args.allow_requantize, "--allow-requantize"),
        (args.verify, "--verify"),
        (args.any_precision.width.is_some(), "--width"),
    ];
    let other = others.into_iter().find(|o| o.0).map(|o| o.1);
    if let Some(other) = args.any_option().or(other) {
        bail!("{other} has no meaning beside {option}, which copies tensors as they are");
    }
    refuse_elsewhere(&args.widely)?;
    split::run(&split::Job {
        args: &args.split,
        input: &args.input,
        out,
        dry_run: args.dry_run,
        json: args.json,
        verbose: args.verbose,
    })
}

fn recipe(args: &Args, target: Target) -> Result<Recipe> {
    let mut recipe = Recipe::new(target);
    recipe.pure = args.pure;
    recipe.allow_requantize = args.allow_requantize;
    recipe.leave_output = args.leave_output_tensor;
    recipe.keep_split = args.keep_split;
    recipe.fallback = match args.fallback {
        true => Fallback::Always,
        false => Fallback::Mixtures,
    };
    recipe.input_packing =
        PackingOptions { interleave: args.input_i2s_layout.interleave(), tiles: args.input_tl_tiles.clone() };
    recipe.output_packing = PackingOptions { interleave: args.i2s_layout.interleave(), tiles: args.tl_tiles.clone() };
    recipe.output_type = args.output_type()?;
    recipe.embedding_type = args.embedding_type()?;
    for rule in &args.tensor_type {
        recipe.rules.push(TensorRule::parse(rule).context("--tensor-type")?);
    }
    if let Some(path) = &args.tensor_type_file {
        let place = || format!("--tensor-type-file '{}'", path.display());
        let bytes = text::read_small(path).with_context(place)?;
        let text = text::utf8(bytes, "its text").with_context(place)?;
        recipe.rules.extend(TensorRule::parse_file(&text).with_context(place)?);
    }
    recipe.overrides = args.overrides()?;
    if let Some(text) = &args.prune_layers {
        recipe.prune = parse_layers(text).context("--prune-layers")?;
    }
    recipe.encoder = args.method;
    recipe.gptq = args.gptq.recipe()?;
    if let Some(file) = &args.imatrix {
        recipe.importance = importance(file, args)?;
    }
    Ok(recipe)
}

fn importance(file: &str, args: &Args) -> Result<Option<Importance>> {
    let place = || format!("--imatrix '{file}'");
    let bytes = text::read_file(Path::new(file)).with_context(place)?;
    let matrix = Imatrix::parse(&bytes).with_context(place)?;
    let importance = Importance::from_file(&matrix, file, &args.selection())?;
    if importance.is_none() {
        note!("warning: no weights of '{file}' are selected: quantizing without");
    }
    Ok(importance)
}

/// Shows the tensors that the one line of an error only counts.
fn list(error: &QuantError) {
    for line in show::details(error) {
        note!("  {line}");
    }
}

/// Runs the tool.
///
/// # Errors
/// Whatever the user or the model did wrong, in one line.
pub fn run(args: &Args) -> Result<()> {
    interrupt::writes_files();
    let start = Instant::now();
    if let Some(option) = args.split.given() {
        return split_or_merge(args, option);
    }
    if let Some(width) = args.any_precision.width {
        return take_width(args, width);
    }
    let job = Job::new(args)?;
    if job.goal != Goal::WidelyLinear {
        refuse_elsewhere(&args.widely)?;
    }
    let target = match job.goal {
        Goal::Usual(target) => target,
        Goal::AnyPrecision(target) => {
            if let Some(option) = args.usual_option() {
                bail!("{option} has no meaning for {}", target.name());
            }
            if args.verify {
                bail!("--verify is for weights that do not change: {} changes them", target.name());
            }
            return anyprec::quantize(args, &job, target);
        }
        Goal::WidelyLinear => {
            refuse(args.any_option().or(args.verify.then_some("--verify")))?;
            let model = load::open(&args.input, true)?;
            return widely::quantize(args, &job, &model, widely::Goal::Widely(&args.widely));
        }
    };
    if let Some(option) = args.any_precision.given() {
        bail!("{option} is for any-precision targets such as AP3-8 or SQ4");
    }
    let recipe = recipe(args, target)?;
    let model = load::open(&args.input, true)?;
    if AnyPrec::is(model.meta()) {
        bail!(
            "the model is any-precision: take one of its widths with --width, or start from the model it was made from"
        );
    }
    if WidelyHeader::is_in(model.meta()) {
        refuse(args.any_option().or(args.verify.then_some("--verify")))?;
        return widely::quantize(args, &job, &model, widely::Goal::Dense(target.name()));
    }
    let plan = Plan::new(&model, &recipe)?;
    remark(&plan.warnings, &plan.notes);
    let mut out = BufWriter::new(signals::stdout());
    let provenance = Provenance {
        threads: Some(job.threads()),
        isa: Some(Isa::from_env()?),
        ..Provenance::of_files("rquantize.plan/1", &model)
    };
    let json = args.json.then_some(&provenance);
    if args.dry_run {
        show::write_plan(&plan, target, json, &mut out)?;
        out.flush()?;
        plan.check().map_err(QuantError::from).inspect_err(list)?;
        return Ok(());
    }
    for file in output_paths(&plan, &job.out) {
        inputs::spare_output(&file)?;
    }
    let line = |i: usize| format!("[{:>4}/{}] {}", i + 1, plan.rows.len(), show::line(&plan.rows[i]));
    let report = carry_out(&model, &plan, &job.out, job.options(args)?, args.verbose, line)?;
    let report = report.inspect_err(list)?;
    show::write_report(&plan, &report, target, start.elapsed(), json, &mut out)?;
    if args.verbose {
        for t in report.ternary.lossy() {
            note!("  {}: {}", t.name, t.loss);
        }
    }
    gptq::warn(&report.feedback);
    for (name, inexact) in report.moves.inexact() {
        note!("warning: {name}: {inexact}");
    }
    if args.verify {
        threads::start(Some(job.threads()))?;
        let verified = show::verify(&model, &recipe, &plan, &report)?;
        // standard output is one JSON document
        if args.json {
            note!("{verified}");
        } else {
            writeln!(out, "{verified}")?;
        }
    }
    Ok(out.flush()?)
}
