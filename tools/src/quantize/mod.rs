//! `rquantize`: makes the files that llama-quantize writes, and others.

pub mod args;
mod cells;
mod clusters;
mod divergence;
mod outcome;
mod recipe;
mod rotate;
mod show;
mod size;
pub mod size_args;
mod tune;
pub mod tune_args;
mod widely;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};
use trine::Isa;
use trine::quant::lossless::Moves;
use trine::quant::{Plan, QuantError, Recipe, Target, parse_type};
use trine_formats::anyprec::AnyPrec;
use trine_formats::widely::Header as WidelyHeader;

use crate::provenance::Provenance;
use crate::runner::{carry_out, remark};
use crate::widely::{refuse, refuse_elsewhere};
use crate::{gptq, interrupt, load, signals, split, threads};
use args::{Args, Positionals};
use outcome::Shown;

/// Takes one width out of an any-precision file.
fn take_width(args: &Args, width: u8) -> Result<()> {
    let [out] = &args.rest[..] else {
        bail!("--width takes no type: rquantize --width {width} IN.gguf OUT.gguf");
    };
    if let Some(option) = args.any_option() {
        bail!("{option} has no meaning beside --width, which copies");
    }
    if let Some((_, option)) = args.rotation.given() {
        bail!("{option} has no meaning beside --width, which copies");
    }
    if args.dry_run || args.verify {
        bail!("--width knows neither --dry-run nor --verify; rinspect shows the widths of a file");
    }
    let (model, out) = (load::open(&args.input, true)?, Path::new(out));
    let mut plan = Plan::new(&model, &Recipe::new(Target::Width(width)))?;
    let report = carry_out(&model, &mut plan, out, Default::default(), false, |_, _| String::new())??;
    clusters::write_width(&plan, width, &report, args.json, &mut signals::stdout())
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
        (args.rotation.rotate.is_some(), "--rotate"),
        (args.rotation.unrotate, "--unrotate"),
    ];
    let other = others.into_iter().find(|o| o.0).map(|o| o.1);
    if let Some(other) = args.any_option().or(other) {
        bail!("{other} has no meaning beside {option}, which copies tensors as they are");
    }
    refuse_elsewhere(&args.widely)?;
    split::run(&split::SplitJob {
        args: &args.split,
        input: &args.input,
        out,
        dry_run: args.dry_run,
        json: args.json,
        verbose: args.verbose,
    })
}

/// Shows the tensors that the one line of an error only counts, which is told behind them.
fn list(error: &QuantError, target: Target) {
    let details = error.details();
    if details.len() > 1 {
        note!("{} does not fit {} tensors of this model:", target.name(), details.len());
    }
    for line in details {
        note!("  {line}");
    }
}

/// Refuses options that mean nothing for a target.
fn check_options(args: &Args, target: Target) -> Result<()> {
    if target != Target::Widely {
        refuse_elsewhere(&args.widely)?;
    }
    let verify = args.verify.then_some("--verify");
    match target {
        Target::Widely => refuse(args.any_option().or(verify)),
        Target::AnyPrecision(_) => match args.usual_option() {
            Some(option) => bail!("{option} has no meaning for {}", target.name()),
            None if args.verify => {
                bail!("--verify is for weights that do not change: {} changes them", target.name())
            }
            None => Ok(()),
        },
        _ => match args.any_precision.given() {
            Some(option) => bail!("{option} is for any-precision targets such as AP3-8 or SQ4"),
            None => Ok(()),
        },
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
    if let Some(turn) = args.rotation.given() {
        return rotate::run(args, turn);
    }
    if let Some(given) = args.tune.given() {
        return tune::run(args, given);
    }
    let job = Positionals::new(args)?;
    check_options(args, job.target)?;
    let mut recipe = recipe::recipe(args, job.target, job.threads())?;
    let model = load::open(&args.input, true)?;
    if job.target.is_usual() && AnyPrec::is(model.meta()) {
        bail!(
            "the model is any-precision: take one of its widths with --width, or start from the model it was made from"
        );
    }
    if job.target.is_usual() && WidelyHeader::is_in(model.meta()) {
        refuse(args.any_option().or(args.verify.then_some("--verify")))?;
        recipe.target = Target::Dense(parse_type(&job.target.name())?);
    }
    let mut divergence = serde_json::Value::Null;
    if let Some(asked) = args.size.given() {
        let chosen = size::allocate(args, &model, &recipe, asked, &job)?;
        divergence = chosen.to_json();
        recipe = chosen.recipe;
    }
    let mut plan = match recipe.target {
        Target::Widely => widely::plan(args, &job, &model, &mut recipe)?,
        _ => Plan::new(&model, &recipe)?,
    };
    remark(&plan);
    let provenance = Provenance {
        threads: Some(job.threads()),
        isa: Some(Isa::from_env()?),
        ..Provenance::of_files("rquantize.plan/1", &model)
    };
    let mut out = BufWriter::new(signals::stdout());
    let shown = |plan, report| Shown {
        plan,
        recipe: &recipe,
        out: &job.out,
        model: &model,
        report,
        start,
        divergence: &divergence,
    };
    if args.dry_run {
        shown(&plan, None).write(args.json, provenance, &mut out)?;
        out.flush()?;
        return Ok(plan.check().map_err(QuantError::from).inspect_err(|e| list(e, recipe.target))?);
    }
    let report = carry_out(&model, &mut plan, &job.out, job.options(args)?, args.verbose, show::verbose_line)?;
    let report = report.inspect_err(|e| list(e, recipe.target))?;
    shown(&plan, Some(&report)).write(args.json, provenance, &mut out)?;
    if args.verbose {
        show::ternary(&plan).details().iter().for_each(|line| note!("  {line}"));
    }
    gptq::warn(&plan);
    let moves = plan.find::<Moves>().map(|moves| moves.report().details());
    moves.iter().flatten().for_each(|line| note!("warning: {line}"));
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
