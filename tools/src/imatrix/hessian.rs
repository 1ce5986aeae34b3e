//! Hessians: the run, and its file.

use std::error::Error;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::json;
use trine::eval::Chunks;
use trine::eval::hessian::{CollectError, Collected, Watch, cache_bytes, collect, groups, inputs};
use trine::{Engine, Isa};
use trine_formats::gguf::ModelFile;
use trine_formats::gguf::write::Layout;
use trine_formats::hessian::{Expert, Hessians, Input, Origin, write_sums};

use super::args::Args;
use super::collect::after_chunks;
use crate::load::{ModelArgs, load, peak_memory};
use crate::memory;
use crate::outfile::OutFile;
use crate::progress::{Steps, human_bytes};
use crate::provenance::Provenance;
use crate::text::{model_sha256, sha256};
use crate::{interrupt, shown, signals, text};

/// Adds up the products of what goes into the matrices; `false` when the user stopped it.
///
/// # Errors
/// Whatever the user, a file or the model did wrong.
pub fn run(args: &Args, model: &ModelArgs, path: &Path, target: &Path) -> Result<bool> {
    let bytes = text::read_file(path)?;
    let dataset_sha256 = sha256([&bytes[..]]);
    let text = text::prompt(bytes, path)?;
    let loaded = load(model)?;
    crate::inputs::spare(target, "--hessian")?;
    if args.ctx_size > loaded.weights().config().n_ctx_train {
        note!(
            "warning: the model was trained on a context of {} tokens, {} are asked for",
            loaded.weights().config().n_ctx_train,
            args.ctx_size
        );
    }
    let origin = Origin {
        model_sha256: model_sha256(loaded.file()),
        dataset: path.display().to_string(),
        dataset_sha256,
        chunk_size: u32::try_from(args.ctx_size).context("-c is too large")?,
        first_chunk: u32::try_from(args.from_chunk).context("--from-chunk is too large")?,
        special: args.parse_special,
    };
    note!("tokenizing the input ..");
    let tokens = loaded.tokenizer().encode(&text, true, args.parse_special)?;
    let tokens = after_chunks(tokens, args.from_chunk, args.ctx_size)?;
    let bos = loaded.tokenizer().text_bos();
    let chunks = Chunks::new(tokens, args.ctx_size, bos, args.chunks)?;
    let side_by_side = (args.batch_size / args.ctx_size).max(1);
    let budget = cache_bytes(loaded.weights(), &chunks, side_by_side);
    let engine = loaded.engine(budget);
    let planned = inputs(&engine, &chunks, origin)?;
    let limit = args.hessian_memory.map(|bytes| bytes as u64).or_else(memory::available);
    let groups = groups(&planned, limit)?;
    note!(
        "the sums of {} inputs of {} matrices take {} in the file, and as much memory{}",
        planned.inputs.len(),
        planned.weights.len(),
        human_bytes(planned.bytes().unwrap_or(u64::MAX)),
        match groups.len() {
            1 => String::new(),
            n => format!(" in {n} parts: the text is gone through {n} times"),
        }
    );
    let job = Job { args, engine: &engine, chunks: &chunks, side_by_side, target, isa: Isa::from_env()? };
    let header = match &groups[..] {
        [_] => job.in_one(planned, loaded.threads())?,
        groups => job.in_parts(planned, groups, loaded.threads())?,
    };
    let Some(header) = header else { return Ok(false) };
    let provenance = Provenance::of_run("rimatrix.hessian/1", &loaded)?;
    summary(args, target, &header, &provenance)?;
    Ok(true)
}

/// A collection that is about to begin.
struct Job<'a> {
    args: &'a Args,
    engine: &'a Engine,
    chunks: &'a Chunks,
    side_by_side: usize,
    target: &'a Path,
    isa: Isa,
}

impl Job<'_> {
    /// Collects all inputs together; none where the user stopped it, and what there is has been saved.
    fn in_one(&self, planned: Hessians, threads: usize) -> Result<Option<Hessians>> {
        let (target, count) = (self.target, self.chunks.count());
        let all = 0..planned.inputs.len();
        let start = if self.args.resume && target.exists() {
            let place = || format!("cannot go on from '{}'", target.display());
            let found = read(target, &planned, count).with_context(place)?;
            note!("going on after chunk {} of {count}", found.header.chunks);
            found
        } else {
            Collected::zeros(planned, all)
        };
        let done = start.header.chunks as usize;
        self.announce(count - done, threads);
        let save_after = self.args.output_frequency;
        let mut run =
            Run { target: Some(target), save_after, steps: Steps::after("chunk", done, count), before: 0, done };
        let Some(collected) = self.collect(start, &mut run)? else {
            note!("stopped after chunk {}, saved in '{}'; --resume goes on from there", run.done, target.display());
            return Ok(None);
        };
        save(target, &collected)?;
        Ok(Some(collected.header))
    }

    /// Collects one group of inputs after the other, each in a pass over the text; none where the user stopped it.
    fn in_parts(&self, planned: Hessians, groups: &[Range<usize>], threads: usize) -> Result<Option<Hessians>> {
        for (given, option) in
            [(self.args.resume, "--resume"), (self.args.output_frequency.is_some(), "--output-frequency")]
        {
            if given {
                let bytes = human_bytes(planned.bytes().unwrap_or(u64::MAX));
                bail!("{option} is for sums that are in memory together, and those of this model take {bytes}");
            }
        }
        let failed = || format!("cannot write '{}'", self.target.display());
        let count = self.chunks.count();
        self.announce(count * groups.len(), threads);
        let mut out = BufWriter::with_capacity(1 << 20, OutFile::create(self.target, "--hessian")?);
        let mut written: Option<(Hessians, Layout)> = None;
        for (number, group) in groups.iter().enumerate() {
            let before = number * count;
            let steps = Steps::after("chunk", before, count * groups.len());
            let mut run = Run { target: None, save_after: None, steps, before, done: before };
            let start = Collected::zeros(planned.clone(), group.clone());
            let Some(collected) = self.collect(start, &mut run)? else {
                note!("stopped in part {} of {}; nothing is saved", number + 1, groups.len());
                return Ok(None);
            };
            // Every pass counts the tokens of all experts.
            let (_, layout) = match &mut written {
                Some(written) => written,
                None => {
                    let layout = collected.header.layout().with_context(failed)?;
                    out.write_all(layout.header()).with_context(failed)?;
                    written.insert((collected.header.clone(), layout))
                }
            };
            write_sums(layout, group.start, &collected.sums[group.clone()], &mut out).with_context(failed)?;
        }
        keep(out).with_context(failed)?;
        Ok(written.map(|(header, _)| header))
    }

    fn announce(&self, chunks: usize, threads: usize) {
        let (n_ctx, side_by_side) = (self.args.ctx_size, self.side_by_side);
        note!("computing over {chunks} chunks, n_ctx={n_ctx}, {side_by_side} side by side, threads={threads}");
    }

    /// Goes through the text; none where the user stopped it.
    fn collect(&self, start: Collected, run: &mut Run<'_>) -> Result<Option<Collected>> {
        match collect(self.engine, self.chunks, self.side_by_side, self.isa, start, run) {
            Ok(collected) => {
                run.steps.finish();
                Ok(Some(collected))
            }
            Err(CollectError::Interrupted) => Ok(None),
            Err(CollectError::Watch(e)) => Err(anyhow::Error::from_boxed(e)),
            Err(e) => Err(e.into()),
        }
    }
}

/// A run and what it has saved.
struct Run<'a> {
    /// The file; none where only the end is written.
    target: Option<&'a Path>,
    save_after: Option<usize>,
    steps: Steps,
    /// Chunks of the parts before this one.
    before: usize,
    done: usize,
}

impl Watch for Run<'_> {
    fn group(&mut self, done: usize, collected: &Collected) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let done = self.before + done;
        let due = self.save_after.is_some_and(|n| done / n > self.done / n);
        self.done = done;
        self.steps.tick(done);
        let stop = interrupt::asked();
        if stop {
            self.steps.finish();
        }
        if let Some(target) = self.target.filter(|_| stop || due) {
            save(target, collected)?;
        }
        Ok(!stop)
    }
}

/// Writes the whole file, or nothing.
fn save(path: &Path, collected: &Collected) -> Result<()> {
    let failed = || format!("cannot write '{}'", path.display());
    let layout = collected.header.layout().with_context(failed)?;
    let mut out = BufWriter::with_capacity(1 << 20, OutFile::create(path, "--hessian")?);
    let written = collected.header.write(&layout, &collected.sums, &mut out);
    written.with_context(failed)?;
    keep(out).with_context(failed)
}

/// Puts the file under its name.
fn keep(out: BufWriter<OutFile>) -> io::Result<()> {
    out.into_inner().map_err(|e| e.into_error()).and_then(OutFile::keep)
}

/// The sums of an earlier run that would have become this one: `planned` says of what, `count` of how many chunks.
fn read(path: &Path, planned: &Hessians, count: usize) -> Result<Collected> {
    let file = trine::open_file(path, true)?;
    let header = Hessians::parse(file.meta(), file.tensors())?;
    let (ours, theirs) = (&planned.origin, &header.origin);
    if theirs != ours {
        bail!("it is of another model or text, or was made with other options: {theirs:?}, not {ours:?}");
    }
    let uncounted = |input: &Input| Input { expert: input.expert.map(|e| Expert { tokens: 0, ..e }), ..input.clone() };
    if !header.inputs.iter().map(uncounted).eq(planned.inputs.iter().cloned()) || header.weights != planned.weights {
        bail!("its inputs are not those of the model");
    }
    if header.chunks as usize > count {
        bail!("it has {} chunks already, more than the {count} asked for", header.chunks);
    }
    let all = 0..header.inputs.len();
    let mut collected = Collected::zeros(header, all);
    for (input, sums) in collected.header.inputs.iter().zip(&mut collected.sums) {
        copy(&file, &input.tensor(), sums)?;
    }
    Ok(collected)
}

/// Copies the numbers of a tensor, which have to be finite.
fn copy(file: &ModelFile, tensor: &str, sums: &mut [f64]) -> Result<()> {
    let view = file.tensor(tensor).context("the file became shorter")?;
    for (sum, bytes) in sums.iter_mut().zip(view.data.as_chunks().0) {
        *sum = f64::from_le_bytes(*bytes);
    }
    view.data.release();
    if !sums.iter().all(|s| s.is_finite()) {
        bail!("its sums '{tensor}' are damaged");
    }
    Ok(())
}

/// The summary of the written file, on standard output.
fn summary(args: &Args, target: &Path, header: &Hessians, provenance: &Provenance) -> Result<()> {
    let mut stdout = signals::stdout();
    let bytes = header.bytes().unwrap_or(u64::MAX);
    if args.json {
        let report = json!({
            "output": target.display().to_string(),
            "inputs": header.inputs.len(),
            "matrices": header.weights.len(),
            "chunks": header.chunks,
            "chunk_size": header.origin.chunk_size,
            "tokens": header.tokens(),
            "experts": header.inputs.iter().filter(|input| input.expert.is_some()).count(),
            "experts_without_tokens": without_tokens(header),
            "bytes": bytes,
            "dataset": header.origin.dataset,
            "dataset_sha256": header.origin.dataset_sha256,
            "model_sha256": header.origin.model_sha256,
            "peak_memory_bytes": peak_memory(),
        });
        writeln!(stdout, "{}", shown::json(&provenance.before(report), false))?;
    } else {
        if let n @ 1.. = without_tokens(header) {
            note!("warning: no token went to {n} of the experts' inputs: use more text");
        }
        writeln!(
            stdout,
            "{}: Hessians of {} inputs of {} matrices, {} chunks of {} tokens, {}",
            target.display(),
            header.inputs.len(),
            header.weights.len(),
            header.chunks,
            header.origin.chunk_size,
            human_bytes(bytes)
        )?;
    }
    Ok(stdout.flush()?)
}

/// The number of inputs of experts that no token went to.
fn without_tokens(header: &Hessians) -> usize {
    header.inputs.iter().filter(|input| input.expert.is_some_and(|expert| expert.tokens == 0)).count()
}
