//! `rquantize --rotate` and `--unrotate`: matrices in another basis.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};
use trine::Isa;
use trine::quant::rotate::{Rotation, Turn};
use trine::quant::{Plan, QuantError, Recipe, RunOptions, Target, parse_type};
use trine_formats::anyprec::AnyPrec;

use super::args::{Args, FALLBACK, threads_of};
use super::outcome::Shown;
use super::show;
use crate::provenance::Provenance;
use crate::runner::{carry_out, remark};
use crate::widely::refuse_elsewhere;
use crate::{load, signals, threads};

/// Turns a model.
///
/// # Errors
/// Whatever the user or the model did wrong, in one line.
pub fn run(args: &Args, (turn, option): (Turn, &'static str)) -> Result<()> {
    let start = Instant::now();
    let rest: Vec<&str> = args.rest.iter().map(String::as_str).collect();
    let (out, ty, threads) = match rest[..] {
        [out] => (out, None, None),
        [out, ty] => (out, Some(ty), None),
        [out, ty, threads] => (out, Some(ty), Some(threads)),
        _ => bail!("{option} takes IN.gguf OUT.gguf [TYPE [THREADS]]"),
    };
    let others = [(args.verify, "--verify"), (args.allow_requantize, "--allow-requantize")];
    let others = others.into_iter().filter(|o| o.0).map(|o| o.1);
    if let Some(other) = args.all_options().filter(|&given| given != FALLBACK).chain(others).next() {
        bail!("{other} has no meaning beside {option}: rotate first and quantize then");
    }
    refuse_elsewhere(&args.widely)?;
    let ty = ty.map(parse_type).transpose()?;
    let threads = threads_of(threads)?;
    let mut recipe = Recipe::new(Target::Turned(Rotation { turn, ty, partly: args.fallback }));
    recipe.overrides = args.overrides()?;
    let (model, out) = (load::open(&args.input, true)?, Path::new(out));
    if AnyPrec::is(model.meta()) {
        bail!("the model is any-precision: rotate the model that it was made from");
    }
    let mut plan = Plan::new(&model, &recipe).map_err(QuantError::from)?;
    remark(&plan);
    let isa = Isa::from_env()?;
    let working = threads::count(Some(threads).filter(|&n| n > 0));
    let provenance =
        Provenance { threads: Some(working), isa: Some(isa), ..Provenance::of_files("rquantize.plan/1", &model) };
    let mut stdout = BufWriter::new(signals::stdout());
    let report = match args.dry_run {
        true => None,
        false => {
            let options = RunOptions { isa, threads: working, ..RunOptions::default() };
            Some(carry_out(&model, &mut plan, out, options, args.verbose, show::verbose_line)??)
        }
    };
    let shown = Shown {
        divergence: &serde_json::Value::Null,
        plan: &plan,
        recipe: &recipe,
        out,
        model: &model,
        report: report.as_ref(),
        start,
    };
    shown.write(args.json, provenance, &mut stdout)?;
    Ok(stdout.flush()?)
}
