//! `rquantize`: makes the files that llama-quantize writes, and others.

pub mod args;
mod show;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use trine::Isa;
use trine::quant::{
    Fallback, Importance, Plan, Progress, QuantError, Recipe, Row, RunOptions, Target, TensorRule, anyprec,
    output_paths, parse_layers, run as carry_out,
};
use trine_formats::anyprec::AnyPrec;
use trine_formats::gguf::PackingOptions;
use trine_formats::imatrix::Imatrix;
use trine_formats::widely::Header as WidelyHeader;

use crate::anyprec::{Job as AnyPrecJob, quantize as quantize_any_precision, take_width as take};
use crate::goal::Goal;
use crate::progress::TensorBar;
use crate::provenance::Provenance;
use crate::{gptq, inputs, interrupt, load, signals, split, text, threads, widely};
use args::{Args, Job};

/// Takes one width out of an any-precision file.
fn take_width(args: &Args, width: u8) -> Result<()> {
    let [out] = &args.rest[..] else {
        bail!("--width takes no type: rquantize --width {width} IN.gguf OUT.gguf");
    };
    let types = args.types_of_ends().into_iter().find(|t| t.1.is_some());
    let imatrix = args.imatrix.is_some().then_some("--imatrix");
    let given = args.any_precision.given().or(imatrix);
    let given = given.or_else(|| args.usual_option());
    if let Some(option) = given.or(types.map(|t| t.0)) {
        bail!("{option} has no meaning beside --width, which copies");
    }
    if args.dry_run || args.verify {
        bail!("--width knows neither --dry-run nor --verify; rinspect shows the widths of a file");
    }
    let model = load::open(&args.input, true)?;
    inputs::spare_output(Path::new(out))?;
    take(&model, width, Path::new(out), args.json)
}

/// Splits a file or merges a set.
fn split_or_merge(args: &Args, option: &str) -> Result<()> {
    let [out] = &args.rest[..] else {
        bail!(
            "{option} takes no type, only IN.gguf and {}; quantize first and split then",
            if args.split.merge { "OUT.gguf" } else { "OUTPREFIX" }
        );
    };
    let types = args.types_of_ends().into_iter().find(|t| t.1.is_some());
    let others = [
        (args.imatrix.is_some(), "--imatrix"),
        (!args.override_kv.is_empty(), "--override-kv"),
        (args.allow_requantize, "--allow-requantize"),
        (args.verify, "--verify"),
        (args.any_precision.width.is_some(), "--width"),
    ];
    let other = others.into_iter().find(|o| o.0).map(|o| o.1);
    let given = args.usual_option().or(args.any_precision.given()).or(other);
    if let Some(other) = given.or(types.map(|t| t.0)) {
        bail!("{other} has no meaning beside {option}, which copies tensors as they are");
    }
    widely::refuse_elsewhere(&args.widely)?;
    split::run(&split::Job {
        args: &args.split,
        input: &args.input,
        out,
        dry_run: args.dry_run,
        json: args.json,
        verbose: args.verbose,
    })
}

/// Makes an any-precision file.
fn any_precision(args: &Args, job: &Job, target: anyprec::Target) -> Result<()> {
    if let Some(option) = args.own_option() {
        bail!("{option} has no meaning for {}", target.name());
    }
    if args.verify {
        bail!("--verify is for weights that do not change: {} changes them", target.name());
    }
    let model = load::open(&args.input, true)?;
    quantize_any_precision(AnyPrecJob {
        model: &model,
        target,
        args: &args.any_precision,
        imatrix: args.imatrix.as_deref().map(|file| (file, args.selection())),
        gptq: args.gptq.recipe()?,
        allow_requantize: args.allow_requantize,
        embedding_type: args.embedding_type()?,
        output_type: args.output_type()?,
        overrides: args.overrides()?,
        out: &job.out,
        options: anyprec::RunOptions { isa: Isa::from_env()?, threads: job.threads() },
        dry_run: args.dry_run,
        json: args.json,
        verbose: args.verbose,
    })
}

/// Makes matrices widely linear, or dense again.
fn widely_linear(args: &Args, job: &Job, goal: widely::Goal<'_>) -> Result<()> {
    let imatrix = args.imatrix.is_some().then_some("--imatrix");
    let types = args.types_of_ends().into_iter().find(|t| t.1.is_some());
    let given = args.any_precision.given().or(args.usual_option());
    let given = given.or(imatrix).or(types.map(|t| t.0));
    widely::refuse(given.or(args.verify.then_some("--verify")))?;
    let model = trine::open_file(&args.input, true)?;
    widely::quantize(widely::Job {
        model: &model,
        goal,
        allow_requantize: args.allow_requantize,
        overrides: args.overrides()?,
        out: &job.out,
        options: RunOptions { isa: Isa::from_env()?, threads: job.threads, force: args.force },
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

/// Shows the work on stderr.
struct Display {
    bar: TensorBar,
    total: usize,
}

impl Progress for Display {
    fn tensor(&mut self, index: usize, row: &Row) {
        let line = || format!("[{:>4}/{}] {}", index + 1, self.total, show::line(row));
        self.bar.tensor(&row.name, line);
    }

    fn advance(&mut self, bytes: u64) {
        self.bar.advance(bytes);
    }
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
    let target = match job.goal {
        Goal::Usual(target) => target,
        Goal::AnyPrecision(target) => {
            widely::refuse_elsewhere(&args.widely)?;
            return any_precision(args, &job, target);
        }
        Goal::WidelyLinear => {
            return widely_linear(args, &job, widely::Goal::Widely(&args.widely));
        }
    };
    widely::refuse_elsewhere(&args.widely)?;
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
        let name = target.name();
        return widely_linear(args, &job, widely::Goal::Dense(name));
    }
    let plan = Plan::new(&model, &recipe)?;
    for warning in &plan.warnings {
        note!("warning: {warning}");
    }
    for note in &plan.notes {
        note!("note: {note}");
    }
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
    let mut display = Display { bar: TensorBar::new(plan.bytes_from(), args.verbose), total: plan.rows.len() };
    let options = RunOptions { isa: Isa::from_env()?, threads: job.threads(), force: args.force };
    let report = carry_out(&model, &plan, &job.out, options, &mut display);
    display.bar.finish();
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
