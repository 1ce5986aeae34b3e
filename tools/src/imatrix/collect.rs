//! Running a text through a model for its importance matrix.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use trine::eval::Chunks;
use trine::eval::imatrix::{CollectError, Options, Schedule, Watch, cache_bytes, collect};
use trine::eval::perplexity::Estimate;
use trine_formats::imatrix::{FileFormat, Imatrix};

use super::args::Args;
use super::{COPY, read, save, summary};
use crate::load::{ModelArgs, load_for_texts};
use crate::provenance::Provenance;
use crate::{inputs, interrupt, progress, signals, text};

/// Collects into `matrix`, which holds the sums of the input files; `false` when the user stopped it.
///
/// # Errors
/// Whatever the user, a file or the model did wrong.
pub fn run(args: &Args, model: &ModelArgs, file: &Path, mut matrix: Imatrix, target: &Path) -> Result<bool> {
    let form = args.output_format.form();
    if args.resume && form == FileFormat::Legacy {
        bail!(
            "the legacy form does not hold the sums that --resume needs: collect as gguf, then convert with --in-file"
        );
    }
    let schedule = Schedule::new(args.ctx_size, args.batch_size, args.ubatch_size)?;
    let text = text::read_prompt(file)?;
    matrix.datasets.push(file.display().to_string());
    let loaded = load_for_texts(model)?;
    inputs::spare(target, "-o")?;
    if args.ctx_size > loaded.weights().config().n_ctx_train {
        note!(
            "warning: the model was trained on a context of {} tokens, {} are asked for",
            loaded.weights().config().n_ctx_train,
            args.ctx_size
        );
    }
    note!("tokenizing the input ..");
    let tokens = loaded.tokenizer().encode(&text, true, args.parse_special)?;
    let tokens = after_chunks(tokens, args.from_chunk, args.ctx_size)?;
    let chunks = Chunks::new(tokens, args.ctx_size, loaded.tokenizer().text_bos(), args.chunks)?;
    let group = schedule.side_by_side().min(chunks.count());
    let has_experts = loaded.weights().config().experts.is_some();
    match (schedule.counted(group), group * args.ctx_size) {
        (0, _) if !has_experts => {
            bail!("no micro-batch would have the 16 tokens that it needs to count: use a larger -c or -ub")
        }
        (counted, all) if counted < all => {
            note!("warning: only {counted} of {all} tokens count, the others are in micro-batches of fewer than 16")
        }
        _ => {}
    }
    let mut done = 0;
    if args.resume && target.exists() {
        let saved = read(target).with_context(|| format!("'{}'", target.display()))?;
        done = chunks_done(&saved, &matrix, &schedule, chunks.count())
            .with_context(|| format!("cannot go on from '{}'", target.display()))?;
        matrix = saved;
        note!("going on after chunk {done} of {}", chunks.count());
    }
    note!(
        "computing over {} chunks, n_ctx={}, {} side by side, threads={}",
        chunks.count() - done,
        args.ctx_size,
        schedule.side_by_side(),
        loaded.threads()
    );
    let options = Options { output: args.process_output, perplexity: !args.no_ppl };
    let mut run = Run {
        args,
        target,
        form,
        bar: bar((chunks.count() - done) * args.ctx_size),
        start: Instant::now(),
        total: chunks.count() - done,
        done,
        first: done,
        unsaved: None,
        estimate: Estimate::default(),
    };
    if !args.json && !args.no_ppl {
        progress::leave_to_results(&run.bar);
    }
    let budget = cache_bytes(loaded.weights(), &chunks, &schedule);
    let engine = loaded.engine(budget);
    let result = collect(&engine, &chunks, &schedule, options, matrix, done, &mut run);
    run.bar.finish_and_clear();
    let matrix = match result {
        Ok(matrix) => matrix,
        Err(CollectError::Interrupted) => return run.stopped().map(|()| false),
        Err(CollectError::Watch(e)) => return Err(anyhow::Error::from_boxed(e)),
        Err(e) => return Err(e.into()),
    };
    if !args.no_ppl && !args.json && run.done > run.first {
        writeln!(signals::stdout())?;
    }
    save(&matrix, target, form)?;
    let ppl = (run.estimate.count > 0).then(|| (run.estimate.ppl(), run.estimate.ppl_error()));
    let provenance = Provenance::of_run("rimatrix.matrix/1", &loaded)?;
    summary(args, &matrix, target, ppl, &provenance)?;
    Ok(true)
}

/// The tokens without the first `n` chunks.
pub(super) fn after_chunks(mut tokens: Vec<u32>, n: usize, n_ctx: usize) -> Result<Vec<u32>> {
    if n == 0 {
        return Ok(tokens);
    }
    let have = tokens.len();
    // llama-imatrix wants more than two chunks to be left.
    if n.checked_add(2).and_then(|n| n.checked_mul(n_ctx)).is_none_or(|wanted| wanted >= have) {
        bail!("the text has {have} tokens: --from-chunk {n} leaves fewer than two chunks of {n_ctx}");
    }
    tokens.drain(..n * n_ctx);
    Ok(tokens)
}

/// How many of `count` chunks are in `saved`, which a run that began with `start` wrote.
fn chunks_done(saved: &Imatrix, start: &Imatrix, schedule: &Schedule, count: usize) -> Result<usize> {
    if saved.legacy {
        bail!("it is of the legacy form, which does not hold the sums");
    }
    if saved.chunk_size != start.chunk_size {
        bail!("it was made with -c {}, not {}", saved.chunk_size, start.chunk_size);
    }
    if saved.datasets != start.datasets {
        bail!("it was made from other texts: {:?}, not {:?}", saved.datasets, start.datasets);
    }
    // How many tokens an expert sees is the router's choice; plain matrices, with one count, see all that count.
    let count_of = |m: &Imatrix, name: &str| {
        let entry = m.entries.get(name).filter(|e| e.counts.len() == 1);
        entry.and_then(|e| e.counts.first().copied())
    };
    let added = saved
        .entries
        .keys()
        .map(|name| count_of(saved, name).unwrap_or(0).saturating_sub(count_of(start, name).unwrap_or(0)));
    let added = added.max().unwrap_or(0);
    let (mut done, mut tokens) = (0, 0i64);
    while tokens < added && done < count {
        let group = schedule.side_by_side().min(count - done);
        tokens += schedule.counted(group) as i64;
        done += group;
    }
    if tokens != added {
        bail!(
            "its {added} tokens are no whole number of batches of this run; it was made with other -b, -ub, --chunks or --in-file"
        );
    }
    Ok(done)
}

fn bar(tokens: usize) -> ProgressBar {
    progress::bar(tokens as u64, "{percent:>3}% {tokens_per_sec}, ETA {eta} {wide_msg}")
}

/// A run and what it has saved.
struct Run<'a> {
    args: &'a Args,
    target: &'a Path,
    form: FileFormat,
    bar: ProgressBar,
    start: Instant,
    /// Chunks of this run.
    total: usize,
    /// Chunks done, those of earlier runs included.
    done: usize,
    /// Chunks of earlier runs.
    first: usize,
    /// The state after the last group, where it is not in the file.
    unsaved: Option<Imatrix>,
    estimate: Estimate,
}

impl Watch for Run<'_> {
    fn tokens(&mut self, tokens: usize) -> bool {
        self.bar.inc(tokens as u64);
        !interrupt::asked()
    }

    fn group(
        &mut self,
        done: usize,
        matrix: &Imatrix,
        running: &[Estimate],
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(self.finished(done, matrix, running)?)
    }
}

impl Run<'_> {
    fn finished(&mut self, done: usize, matrix: &Imatrix, running: &[Estimate]) -> Result<()> {
        if self.done == self.first {
            let chunks = u32::try_from(done - self.first).unwrap_or(u32::MAX);
            let one = self.start.elapsed() / chunks.max(1);
            progress::expect("chunk", one, self.total);
        }
        if !self.args.json {
            let mut stdout = signals::stdout();
            for (i, estimate) in (self.done + 1..).zip(running) {
                write!(stdout, "[{i}]{:.4},", estimate.ppl())?;
            }
            stdout.flush()?;
        }
        let passed = |n: usize| n > 0 && done / n > self.done / n;
        let (save_now, copy_now) = (passed(self.args.save_after()), passed(self.args.save_frequency));
        self.done = done;
        self.estimate = running.last().copied().unwrap_or_default();
        if copy_now {
            let mut name = self.target.as_os_str().to_owned();
            name.push(format!("{COPY}{}", matrix.chunk_count));
            save(matrix, &PathBuf::from(name), self.form)?;
        }
        if save_now {
            save(matrix, self.target, self.form)?;
            self.unsaved = None;
        } else {
            self.unsaved = Some(matrix.clone());
        }
        Ok(())
    }

    /// Saves what a stopped run has.
    fn stopped(&mut self) -> Result<()> {
        if !self.args.no_ppl && !self.args.json && self.done > self.first {
            writeln!(signals::stdout())?;
        }
        if let Some(matrix) = self.unsaved.take() {
            save(&matrix, self.target, self.form)?;
        }
        if self.done == 0 {
            note!("stopped before the first batch was done; nothing was saved");
        } else {
            let go_on = match self.form {
                FileFormat::Gguf => "; --resume goes on from there",
                FileFormat::Legacy => "",
            };
            note!("stopped after chunk {}, saved in '{}'{go_on}", self.done, self.target.display());
        }
        Ok(())
    }
}
