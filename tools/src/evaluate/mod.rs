//! `rperplexity`: how well a model predicts a text, and how far it is from another.

pub mod args;
mod common;
mod compare;
mod estimate;
mod partial;
mod questions;
mod statistics;
pub mod task_args;
mod tasks;
mod widths;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use trine::Model;
use trine::eval::EvalError;
use trine::eval::base_file::{BaseReader, BaseWriter};
use trine::eval::kld::{self, Divergence};
use trine::eval::perplexity::{self, Estimate};

use crate::load::{load_for_texts, peak_memory};
use crate::outfile::OutFile;
use crate::progress::Steps;
use crate::provenance::Provenance;
use crate::{inputs, interrupt, shown, signals};
use args::Args;
use common::{OPTION, first_difference, go_on, model, open_base, side_by_side, warn_of_context};
use estimate::{estimate_line, final_estimate, running};

/// Runs the tool.
///
/// # Errors
/// Whatever the user or the model did wrong, in one line.
pub fn run(args: &Args) -> Result<()> {
    let result = if !args.join.is_empty() {
        partial::join(args)
    } else if args.compare {
        compare::run(args)
    } else if args.tasks.wanted() {
        tasks::run(args)
    } else {
        evaluate(args)
    };
    if interrupt::asked() && result.is_err() {
        note!("interrupted");
        std::process::exit(interrupt::EXIT_CODE);
    }
    result
}

fn evaluate(args: &Args) -> Result<()> {
    let widths = args.widths()?;
    // Before the model is loaded, so that mistakes are told at once.
    let text = args.text()?;
    args.whole_base()?;
    let base = if args.kl_divergence { Some(open_base(args.base()?)?) } else { None };
    let target = args.kl_divergence_base.as_deref();
    let target = target.filter(|_| !args.kl_divergence);
    inputs::add(&args.model.model);
    let out = target.map(|t| OutFile::create(t, OPTION)).transpose()?;
    interrupt::listen();
    let loaded = load_for_texts(&args.loading())?;
    if let Some(target) = target {
        inputs::spare(target, OPTION)?;
    }
    match (base, text) {
        (Some(base), text) => divergence(args, &loaded, base, text),
        (None, Some(text)) if widths.len() > 1 => widths::table(args, &loaded, &widths, &text),
        (None, Some(text)) => estimate(args, &loaded, &text, out),
        (None, None) => Err(anyhow!("there is no text: give one with -f FILE")),
    }
}

fn estimate(args: &Args, loaded: &Model, text: &str, out: Option<OutFile>) -> Result<()> {
    note!("tokenizing the input ..");
    let all = args.chunks_of(loaded.tokenizer(), text)?;
    let chunks = all.part(args.wanted(all.count())?)?;
    let n_ctx = chunks.n_ctx();
    let mut model = model(args, loaded, n_ctx)?;
    note!("weights: {}", loaded.weights().layouts());
    note!(
        "calculating perplexity over {} chunks, n_ctx={n_ctx}, batch_size={}, threads={}",
        chunks.evaluated().len(),
        args.batch_size,
        loaded.threads()
    );
    if let Some(target) = &args.partial {
        return partial::measure(args, (loaded, &all), target, chunks.evaluated(), |part, observe| {
            perplexity::by_chunk::<Vec<u8>>(&mut model, &all.part(part)?, None, observe)
        });
    }
    let mut base = match out {
        Some(out) => {
            let path = out.path().to_owned();
            let buffered = BufWriter::with_capacity(1 << 20, out);
            let writer = BaseWriter::new(buffered, &chunks, loaded.weights().n_vocab());
            Some((writer.with_context(|| format!("cannot write '{}'", path.display()))?, path))
        }
        None => None,
    };
    // Not locked: it is written to by whichever thread evaluates.
    let mut stdout = signals::stdout();
    let skipped = chunks.evaluated().start;
    let mut progress = Steps::new("chunk", chunks.evaluated().len());
    if !args.json && args.ppl_output_type == 0 {
        progress = progress.with_results();
    }
    let mut lines = Vec::new();
    let mut total = Estimate::default();
    let mut wrote = Ok(());
    let result =
        perplexity::by_chunk(&mut model, &chunks, base.as_mut().map(|(writer, _)| writer), &mut |done, sums| {
            progress.tick(done - skipped);
            total.add(sums);
            if args.json {
                lines.push(running(done, &total, sums));
            } else {
                let line = estimate_line(args, done, chunks.step(), &total);
                wrote = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
                if wrote.is_err() {
                    return Err("the output was closed".into());
                }
            }
            go_on()
        });
    progress.finish();
    wrote?;
    match (result, &base) {
        (Err(EvalError::Write(e)), Some((_, path))) => {
            return Err(anyhow::Error::new(e).context(format!("cannot write '{}'", path.display())));
        }
        (result, _) => result?,
    }
    if let Some((writer, path)) = base {
        let write = || -> io::Result<()> {
            let buffered = writer.finish()?;
            buffered.into_inner().map_err(io::IntoInnerError::into_error)?.keep()
        };
        write().with_context(|| format!("cannot write '{}'", path.display()))?;
        note!("log-probabilities saved to '{}'", path.display());
    }
    if args.json {
        let mut report = json!({
            "model": args.model.model.display().to_string(),
            "n_ctx": n_ctx,
            "chunks": chunks.evaluated().len(),
            "chunk_step": chunks.step(),
            "first_scored": chunks.first(),
        });
        estimate::add(&mut report, &total, lines);
        report["peak_memory_bytes"] = json!(peak_memory());
        let report = Provenance::of_run("rperplexity.estimate/1", loaded)?.before(report);
        writeln!(stdout, "{}", shown::json(&report, false))?;
    } else {
        stdout.write_all(final_estimate(args, &total).as_bytes())?;
    }
    stdout.flush()?;
    Ok(())
}

fn divergence(
    args: &Args,
    loaded: &Model,
    (input, length): (BufReader<File>, u64),
    text: Option<String>,
) -> Result<()> {
    let path = args.base()?;
    let in_base = || format!("'{}'", path.display());
    let n_vocab = loaded.weights().n_vocab();
    let mut base =
        BaseReader::new(input, length, n_vocab, loaded.tokenizer().text_bos(), args.limit()).with_context(in_base)?;
    let n_ctx = base.chunks().n_ctx();
    if let Some(wanted) = args.ctx_size.filter(|&c| c != n_ctx) {
        bail!("{} was made with a context of {n_ctx}, not {wanted}: leave -c out", in_base());
    }
    if let Some(text) = text {
        let tokens = loaded.tokenizer().encode(&text, true, false)?;
        if let Some(same) = first_difference(base.chunks().tokens(), &tokens) {
            bail!(
                "{} was made from another text or tokenizer: token {same} differs; leave -f out to use its own tokens",
                in_base()
            );
        }
    }
    let mut model = model(args, loaded, n_ctx)?;
    let all = base.chunks().clone();
    let wanted = args.wanted(all.count())?;
    if let Some(target) = &args.partial {
        return partial::measure(args, (loaded, &all), target, wanted, |part, observe| {
            base.part(&all, part)?;
            kld::by_chunk(&mut model, &mut base, observe)
        });
    }
    let (skipped, count) = (wanted.start, wanted.len());
    base.part(&all, wanted).with_context(in_base)?;
    note!("computing over {count} chunks, n_ctx={n_ctx}, batch_size={}, threads={}", args.batch_size, loaded.threads());
    // Not locked: it is written to by whichever thread evaluates.
    let mut stdout = signals::stdout();
    if !args.json {
        writeln!(stdout, "{}", trine::eval::TABLE_HEAD)?;
    }
    let mut progress = Steps::new("chunk", count);
    let mut wrote = Ok(());
    let result = kld::divergence(&mut model, &mut base, &mut |done, total| {
        progress.tick(done - skipped);
        if !args.json {
            wrote = writeln!(stdout, "{}", total.table_row(done)).and_then(|()| stdout.flush());
            if wrote.is_err() {
                return Err("the output was closed".into());
            }
        }
        go_on()
    });
    progress.finish();
    wrote?;
    let total = match result {
        Err(e @ EvalError::Base(_)) => return Err(anyhow::Error::new(e).context(in_base())),
        result => result?,
    };
    if args.json {
        let report = divergence_json(args, &total, n_ctx, count);
        let report = Provenance::of_run("rperplexity.divergence/1", loaded)?.before(report);
        writeln!(stdout, "{}", shown::json(&report, false))?;
    } else {
        statistics::write(&total, &mut stdout)?;
    }
    stdout.flush()?;
    Ok(())
}

fn divergence_json(args: &Args, d: &Divergence, n_ctx: usize, chunks: usize) -> Value {
    let mut report = json!({
        "model": args.model.model.display().to_string(),
        "base": args.kl_divergence_base.as_ref().map(|p| p.display().to_string()),
        "n_ctx": n_ctx,
        "chunks": chunks,
    });
    statistics::add(&mut report, d);
    report["peak_memory_bytes"] = json!(peak_memory());
    report
}
