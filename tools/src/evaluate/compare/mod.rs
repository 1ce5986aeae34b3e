//! `--compare`: several files, and the widths of any-precision ones, against one reference.

mod base;
mod common;
mod entry;
mod frontier;
mod plot;
mod speed;
mod subject;
mod table;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::json;
use trine::eval::kld;
use trine::{Isa, Model};

use super::args::Args;
use super::{go_on, side_by_side, warn_of_context};
use crate::load::{load, peak_memory};
use crate::outfile::OutFile;
use crate::progress::Steps;
use crate::provenance::Provenance;
use crate::{inputs, interrupt, shown, signals, text};
use base::{Base, Plan};
use common::{PLOT, stop_if_asked};
use entry::Entry;
use speed::Timed;
use subject::{Subject, Vocabulary, WidthFootprint};
use table::{Style, Table};

/// Measures everything; see the options.
///
/// # Errors
/// Whatever the user or a model did wrong, in one line.
pub fn run(args: &Args) -> Result<()> {
    if args.files.is_empty() {
        bail!("--compare has nothing to compare with the reference -m: name the files to measure behind the options");
    }
    let widths = args.widths()?;
    let no_text = || anyhow!("there is no text: give one with -f FILE");
    let file = args.file.as_deref().ok_or_else(no_text)?;
    let text = text::read_prompt(file)?;
    // before there is a file that an ended program would leave
    interrupt::listen();
    let plot = args.plot.as_deref().map(|p| reserve(args, p)).transpose()?;

    // Everything is looked at before anything takes long.
    let path = args.model.model.as_path();
    let loaded = subject::check(args, path)?;
    let threads = loaded.threads();
    let widest = loaded.weights().widths().last();
    let mut reference = Subject::new(path, &loaded, widest.map_or(&[], std::slice::from_ref));
    note!("tokenizing the input ..");
    let vocabulary = Vocabulary {
        tokens: loaded.tokenizer().encode(&text, true, false)?,
        tokenizer: loaded.tokenizer().clone(),
        text,
    };
    let mut subjects = subject::all(args, &widths, &vocabulary, &reference)?;
    subject::name(&mut subjects, &mut reference);
    if let Some(target) = &args.plot {
        inputs::spare(target, PLOT)?;
    }
    let plan = Plan::new(args, &vocabulary)?;
    drop(vocabulary);
    let chunks = plan.chunks.clone();
    let footprints: usize = subjects.iter().map(|s| s.footprints.len()).sum();
    note!(
        "comparing {footprints} models with '{}' over {} chunks, n_ctx={}, batch_size={}",
        reference.name,
        chunks.count(),
        chunks.n_ctx(),
        args.batch_size
    );
    note!("{}", plan.describe());

    let mut table = match args.json {
        true => None,
        false => {
            let names = subjects.iter().chain([&reference]);
            let names = names.map(|s| s.name.as_str());
            let style = match args.csv {
                true => Style::Csv,
                false => Style::Columns,
            };
            let table = Table::new(signals::stdout(), names, !args.no_speed, style)?;
            Some(table)
        }
    };
    let mut entries = Vec::new();
    let mut done = |e: Entry| -> Result<()> {
        if let Some(table) = &mut table {
            table.row(&e)?;
        }
        entries.push(e);
        Ok(())
    };
    let (base, first) = measure_reference(args, &reference, plan)?;
    done(first)?;
    for (i, subject) in subjects.iter().enumerate() {
        if subject.footprints.is_empty() {
            continue;
        }
        stop_if_asked()?;
        let loaded = load(&subject::options(args, &subject.path))?;
        for &footprint in &subject.footprints {
            match footprint.bits {
                Some(bits) => note!("{}, {bits} bits", subject.name),
                None => note!("{}", subject.name),
            }
            let in_file = || format!("'{}'", subject.path.display());
            let mut timed = timed(args, &loaded, footprint, chunks.n_ctx())?;
            let d = divergence(&mut timed, &base).with_context(in_file)?;
            let mut entry = Entry::new(i, subject, footprint, &reference, &d);
            entry.prompt = timed.rate();
            drop(timed);
            entry.generation = generation(args, &loaded, footprint)?;
            done(entry)?;
        }
    }
    drop(base);
    if let Some(table) = table {
        table.finish()?;
    }
    if let Some(out) = plot {
        let labels: Vec<&str> = subjects.iter().map(|s| s.label.as_str()).collect();
        let title = format!(
            "{}, {} chunks of {} tokens",
            file.file_name().unwrap_or(file.as_os_str()).display(),
            chunks.count(),
            chunks.n_ctx()
        );
        let svg = plot::draw(&title, &entries, &reference.label, &labels)?;
        save(out, &svg)?;
    }
    if !args.json && !args.csv {
        frontier::write(&mut signals::stdout(), &entries)?;
    }
    if args.json {
        let front = frontier::places(&entries);
        let row = |(place, e): (usize, &Entry)| {
            let mut row = e.json(e.file.map_or(path, |i| &subjects[i].path));
            row["frontier"] = front.contains(&place).into();
            row
        };
        let report = json!({
            "reference": path.display().to_string(),
            "text": file.display().to_string(),
            "n_ctx": chunks.n_ctx(),
            "chunks": chunks.count(),
            "weights": reference.weights,
            "rows": entries.iter().enumerate().map(row).collect::<Vec<_>>(),
            "peak_memory_bytes": peak_memory(),
        });
        let models = args.files.iter().chain([&args.model.model]);
        let provenance = Provenance {
            schema: "rperplexity.compare/1",
            threads: Some(threads),
            isa: Some(Isa::from_env()?),
            models: models.cloned().collect(),
        };
        let report = provenance.before(report);
        writeln!(signals::stdout(), "{}", shown::json(&report, false))?;
    }
    Ok(())
}

/// The picture's file, which must be neither an input nor the base file.
fn reserve(args: &Args, target: &Path) -> Result<OutFile> {
    let models = args.files.iter().chain([&args.model.model]);
    models.chain(&args.kl_divergence_base).for_each(|p| inputs::add(p));
    if let Some(base) = &args.kl_divergence_base
        && std::path::absolute(target).ok() == std::path::absolute(base).ok()
    {
        bail!("--plot and --kl-divergence-base both name '{}'", target.display());
    }
    OutFile::create(target, PLOT)
}

fn save(mut out: OutFile, svg: &str) -> Result<()> {
    let path = out.path().to_owned();
    let write = |out: &mut OutFile| out.write_all(svg.as_bytes());
    write(&mut out).and_then(|()| out.keep()).with_context(|| format!("cannot write '{}'", path.display()))?;
    note!("plot saved to '{}'", path.display());
    Ok(())
}

/// The model at the width of `footprint`.
fn timed(args: &Args, loaded: &Model, footprint: WidthFootprint, n_ctx: usize) -> Result<Timed> {
    let mut model = side_by_side(args, loaded, n_ctx);
    if let Some(bits) = footprint.bits {
        model.set_bits(bits)?;
        loaded.weights().advise_width(bits);
    }
    Ok(Timed::new(model))
}

fn generation(args: &Args, loaded: &Model, footprint: WidthFootprint) -> Result<Option<f64>> {
    match args.no_speed {
        true => Ok(None),
        false => speed::generation(loaded, footprint.bits).map(Some),
    }
}

/// The base file and the first line.
fn measure_reference(args: &Args, reference: &Subject, plan: Plan) -> Result<(Base, Entry)> {
    stop_if_asked()?;
    let loaded = load(&args.model)?;
    let n_ctx = plan.chunks.n_ctx();
    warn_of_context(&loaded, n_ctx);
    note!("{}, the reference", reference.name);
    let no_width = || anyhow!("'{}' has no width", reference.path.display());
    let footprint = *reference.footprints.first().ok_or_else(no_width)?;
    let mut timed = timed(args, &loaded, footprint, n_ctx)?;
    let base = plan.evaluate(&mut timed)?;
    let mut entry = Entry::reference(reference, footprint, base.log_ppl()?);
    entry.prompt = timed.rate();
    drop(timed);
    entry.generation = generation(args, &loaded, footprint)?;
    Ok((base, entry))
}

fn divergence(model: &mut Timed, base: &Base) -> Result<kld::Divergence> {
    let mut reader = base.whole()?;
    let mut progress = Steps::new("chunk", reader.chunks().count());
    let result = kld::divergence(model, &mut reader, &mut |done, _| {
        progress.tick(done);
        go_on()
    });
    progress.finish();
    result.map_err(|e| base.unreadable(e))
}
