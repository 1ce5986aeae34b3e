//! `rconvert`: the folder of a Hugging Face checkpoint becomes a GGUF file.

pub mod args;

use std::io::Write as _;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use trine::convert::{Options, Plan, Row, Widely, plan, run as carry_out};
use trine_formats::gguf::Value as Meta;

use crate::progress::human_bytes;
use crate::provenance::Provenance;
use crate::runner::Display;
use crate::table::{self, Cell, Form};
use crate::{inputs, interrupt, shown, signals, threads};
use args::{Args, TernaryArg};

/// Runs the tool.
///
/// # Errors
/// Whatever the user or the checkpoint did wrong, in one line.
pub fn run(args: &Args) -> Result<()> {
    if args.vocab_only && args.outtype.0.is_some_and(|t| t.ternary) {
        bail!("--vocab-only writes no weights; leave --outtype out");
    }
    if let (Some(option), false) = (args.widely.given(), args.fairy2i) {
        bail!("{option} is for --fairy2i");
    }
    let ternary = matches!(args.ternary, TernaryArg::Bitnet | TernaryArg::Trilm);
    if args.fairy2i && (ternary || args.outtype.0.is_some_and(|t| t.ternary)) {
        bail!("--fairy2i makes weights that are not ternary; leave --ternary and ternary types out");
    }
    // The output matrix is chosen by files that are written beside this one.
    if args.fairy2i && args.out().is_none() && !args.dry_run {
        bail!("the name of the file to write is missing");
    }
    interrupt::writes_files();
    threads::start(args.threads)?;
    let plan = planned(args)?;
    for note in &plan.notes {
        note!("rconvert: {note}");
    }
    let layout = plan.layout()?;
    let out = &args.out_of(plan.outtype);
    if !args.dry_run {
        plan.inputs().iter().for_each(|p| inputs::add(p));
        inputs::spare_output(out)?;
        let total = plan.rows.len();
        let line = |(i, row)| table::counted(i, total, &cells(row));
        let lines = if args.verbose { plan.rows.iter().enumerate().map(line).collect() } else { Vec::new() };
        let mut progress = Display::new(plan.work(), lines);
        carry_out(&plan, out, &mut progress)?;
        progress.finish();
    }
    let mut stdout = signals::stdout();
    if args.json {
        let report = report(&plan, layout.file_bytes(), args);
        let report = Provenance::of("rconvert.plan/1").before(report);
        writeln!(stdout, "{}", shown::json(&report, true))?;
        return Ok(());
    }
    if args.dry_run {
        table::write(Form::Spaces(0), plan.rows.iter().map(cells).collect(), &mut stdout)?;
    }
    let verb = match args.dry_run {
        false => format!("wrote {}", out.display()),
        true => "would write".to_owned(),
    };
    writeln!(
        stdout,
        "{verb}: {} of {}, {} tensors, {} weights, {}",
        plan.arch,
        plan.outtype.name.to_uppercase(),
        plan.rows.len(),
        plan.parameters(),
        human_bytes(layout.file_bytes())
    )?;
    Ok(())
}

/// The plan; what `--wl-lm-head auto` means is found out first.
fn planned(args: &Args) -> Result<Plan> {
    let options = args.options();
    let (Some(out), Some(widely), false) = (args.out(), options.widely, args.dry_run) else {
        return Ok(plan(&args.dir, &options)?);
    };
    let with = |output| Options { widely: Some(Widely { output, ..widely }), ..options.clone() };
    let make = &mut |form, path: &Path| {
        carry_out(&plan(&args.dir, &with(form))?, path, &mut ())?;
        Ok(())
    };
    let Some(choice) = args.widely.choose_output(out, make)? else {
        return Ok(plan(&args.dir, &options)?);
    };
    let mut plan = plan(&args.dir, &with(choice.form))?;
    for (key, ppl) in choice.keys() {
        plan.meta.set(key, Meta::F32(ppl));
    }
    Ok(plan)
}

fn cells(row: &Row) -> Vec<Cell> {
    let shape: Vec<String> = row.shape.iter().map(u64::to_string).collect();
    vec![
        Cell::left("tensor", 32, shown::name(&row.name)).key().cut_to(24),
        Cell::left("type", 12, format!("{} -> {}", row.from, row.ty)),
        Cell::right("shape", 13, shape.join(" x ")),
        Cell::left("source", 40, shown::name(&row.source)).cut_to(20),
    ]
}

fn report(plan: &Plan, bytes: u64, args: &Args) -> Value {
    let tensors: Vec<Value> = plan
        .rows
        .iter()
        .map(|r| {
            json!({
                "name": r.name, "source": r.source, "from": r.from, "type": r.ty.to_string(), "shape": r.shape,
            })
        })
        .collect();
    json!({
        "file": (!args.dry_run).then(|| args.out_of(plan.outtype)),
        "architecture": plan.arch,
        "outtype": plan.outtype.name,
        "bytes": bytes,
        "weights": plan.parameters(),
        "notes": plan.notes,
        "keys": plan.meta.iter().map(|(key, _)| key).collect::<Vec<_>>(),
        "tensors": tensors,
    })
}
