//! Hessians: the run, and its file.

use std::error::Error;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::json;
use trine::Isa;
use trine::eval::Chunks;
use trine::eval::hessian::{CollectError, Collected, Watch, cache_bytes, collect, inputs};
use trine_formats::gguf::ModelFile;
use trine_formats::hessian::{Hessians, Origin};

use super::args::Args;
use super::collect::after_chunks;
use super::fisher::file::sha256;
use crate::load::{ModelArgs, load, peak_memory};
use crate::memory;
use crate::outfile::OutFile;
use crate::progress::{Steps, human_bytes};
use crate::provenance::Provenance;
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
        model_sha256: sha256(loaded.file().shards().iter().map(|s| (*s.bytes).as_ref())),
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
    note!(
        "the sums of {} inputs of {} matrices take {} of memory and in the file",
        planned.inputs.len(),
        planned.weights.len(),
        human_bytes(planned.bytes().unwrap_or(u64::MAX))
    );
    let start = if args.resume && target.exists() {
        let place = || format!("cannot go on from '{}'", target.display());
        let found = read(target, &planned, chunks.count()).with_context(place)?;
        note!("going on after chunk {} of {}", found.header.chunks, chunks.count());
        found
    } else {
        Collected::zeros(planned, memory::available())?
    };
    note!(
        "computing over {} chunks, n_ctx={}, {side_by_side} side by side, threads={}",
        chunks.count() - start.header.chunks as usize,
        args.ctx_size,
        loaded.threads()
    );
    let done = start.header.chunks as usize;
    let mut run =
        Run { target, save_after: args.output_frequency, steps: Steps::after("chunk", done, chunks.count()), done };
    let isa = Isa::from_env()?;
    match collect(&engine, &chunks, side_by_side, isa, start, &mut run) {
        Ok(collected) => {
            run.steps.finish();
            save(target, &collected)?;
            let provenance = Provenance::of_run("rimatrix.hessian/1", &loaded)?;
            summary(args, target, &collected.header, &provenance)?;
            Ok(true)
        }
        Err(CollectError::Interrupted) => {
            note!("stopped after chunk {}, saved in '{}'; --resume goes on from there", run.done, target.display());
            Ok(false)
        }
        Err(CollectError::Watch(e)) => Err(anyhow::Error::from_boxed(e)),
        Err(e) => Err(e.into()),
    }
}

/// A run and what it has saved.
struct Run<'a> {
    target: &'a Path,
    save_after: Option<usize>,
    steps: Steps,
    done: usize,
}

impl Watch for Run<'_> {
    fn group(&mut self, done: usize, collected: &Collected) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let due = self.save_after.is_some_and(|n| done / n > self.done / n);
        self.done = done;
        self.steps.tick(done);
        let stop = interrupt::asked();
        if stop {
            self.steps.finish();
        }
        if stop || due {
            save(self.target, collected)?;
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
    let out = out.into_inner().map_err(|e| e.into_error());
    out.and_then(OutFile::keep).with_context(failed)
}

/// The sums of an earlier run that would have become this one: `planned` says of what, `count` of how many chunks.
fn read(path: &Path, planned: &Hessians, count: usize) -> Result<Collected> {
    let file = trine::open_file(path, true)?;
    let header = Hessians::parse(file.meta(), file.tensors())?;
    let (ours, theirs) = (&planned.origin, &header.origin);
    if theirs != ours {
        bail!("it is of another model or text, or was made with other options: {theirs:?}, not {ours:?}");
    }
    if header.inputs != planned.inputs || header.weights != planned.weights {
        bail!("its inputs are not those of the model");
    }
    if header.chunks as usize > count {
        bail!("it has {} chunks already, more than the {count} asked for", header.chunks);
    }
    let empty = Hessians { chunks: 0, ..header.clone() };
    let mut collected = Collected::zeros(empty, memory::available())?;
    for (input, sums) in header.inputs.iter().zip(&mut collected.sums) {
        copy(&file, &input.tensor(), sums)?;
    }
    collected.header = header;
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
            "bytes": bytes,
            "dataset": header.origin.dataset,
            "dataset_sha256": header.origin.dataset_sha256,
            "model_sha256": header.origin.model_sha256,
            "peak_memory_bytes": peak_memory(),
        });
        writeln!(stdout, "{}", shown::json(&provenance.before(report), false))?;
    } else {
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
