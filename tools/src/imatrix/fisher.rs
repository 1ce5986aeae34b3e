//! Squared gradients: sampling a text, the run, and its file.

mod file;
mod text;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::json;
use trine::Isa;
use trine::fisher::Fisher;
use trine::model::Config;
use trine::tokenizer::Tokenizer;

use super::args::Args;
use crate::load::{ModelArgs, peak_memory};
use crate::progress::Steps;
use crate::progress::human_bytes;
use crate::provenance::Provenance;
use crate::text::model_sha256;
use crate::{args, inputs, interrupt, load, shown, signals, threads};
use file::{LossSum, Origin};

/// Adds up the squared gradients of random sequences of a text; `false` when the user stopped it.
///
/// # Errors
/// Whatever the user, a file or the model did wrong.
pub fn run(args: &Args, model: &ModelArgs, text: &Path, target: &Path) -> Result<bool> {
    let isa = Isa::from_env()?;
    let mut opened = load::open(&model.model, !model.no_mmap)?;
    model.overrides.apply(&mut opened)?;
    inputs::spare(target, "-o")?;
    let name = || format!("'{}'", model.model.display());
    let config = Config::read(&opened).with_context(name)?;
    let tokenizer = Tokenizer::from_metadata(opened.meta()).with_context(name)?;
    if args.seq_len > config.n_ctx_train {
        note!(
            "warning: the model was trained on a context of {} tokens, --seq-len is {}",
            config.n_ctx_train,
            args.seq_len
        );
    }
    let sample = text::sample(args, text, &tokenizer)?;
    let origin = Origin {
        model_sha256: model_sha256(&opened),
        dataset: text.display().to_string(),
        dataset_sha256: sample.sha256,
        split: args.documents.map_or("chunks", |d| d.name()),
        seq_len: args.seq_len,
        seed: args.seed,
    };
    let threads = args::threads(model.threads);
    note!(
        "{} sequences of {} tokens, threads={threads}; this takes about {} of memory",
        sample.sequences.len(),
        args.seq_len,
        human_bytes(trine::fisher::memory(&opened, &config, args.seq_len))
    );
    threads::start(Some(threads))?;
    let packing = model.packing.options();
    let mut fisher = Fisher::load(&opened, &packing, isa).with_context(name)?;
    let provenance =
        Provenance { threads: Some(threads), isa: Some(isa), ..Provenance::of_files("rimatrix.fisher/1", &opened) };
    drop(opened);
    let mut state = LossSum::default();
    if args.resume && target.exists() {
        state = file::read(target, &mut fisher, &origin)
            .with_context(|| format!("cannot go on from '{}'", target.display()))?;
        if state.samples > sample.sequences.len() {
            bail!(
                "'{}' has {} samples already, more than the {} asked for",
                target.display(),
                state.samples,
                sample.sequences.len()
            );
        }
        note!("going on after sample {}", state.samples);
    }
    let mut run = Run { args, target, origin, provenance, fisher, saved: state.samples, state };
    let finished = run.all(&sample.sequences)?;
    if finished {
        run.summary()?;
    }
    Ok(finished)
}

struct Run<'a> {
    args: &'a Args,
    target: &'a Path,
    origin: Origin,
    provenance: Provenance,
    fisher: Fisher,
    state: LossSum,
    /// Samples in the file.
    saved: usize,
}

impl Run<'_> {
    fn all(&mut self, sequences: &[Vec<u32>]) -> Result<bool> {
        let first = self.state.samples;
        let mut steps = Steps::after("sample", first, sequences.len());
        for sequence in &sequences[first..] {
            let added = self.fisher.add(sequence);
            let loss = added.with_context(|| format!("sample {}", self.state.samples + 1))?;
            self.state.samples += 1;
            self.state.loss += loss;
            steps.tick(self.state.samples);
            steps.say(format!("loss {:.4}", self.state.mean()));
            if interrupt::asked() && self.state.samples < sequences.len() {
                steps.finish();
                self.save()?;
                note!(
                    "stopped after sample {}, saved in '{}'; --resume goes on from there",
                    self.state.samples,
                    self.target.display()
                );
                return Ok(false);
            }
            if self.state.samples.is_multiple_of(self.args.save_after()) {
                self.save()?;
            }
        }
        steps.finish();
        if self.saved < self.state.samples || self.state.samples == first {
            self.save()?;
        }
        Ok(true)
    }

    fn save(&mut self) -> Result<()> {
        if let Some(target) = self.fisher.overflow() {
            bail!("the squared gradients of '{}' overflow: the model's weights are damaged", target.tensor);
        }
        file::write(self.target, &self.fisher, &self.origin, &self.state)?;
        self.saved = self.state.samples;
        Ok(())
    }

    fn summary(&self) -> Result<()> {
        let mut stdout = signals::stdout();
        let matrices = self.fisher.targets().len();
        if self.args.json {
            let report = json!({
                "output": self.target.display().to_string(),
                "matrices": matrices,
                "samples": self.state.samples,
                "seq_len": self.args.seq_len,
                "seed": self.args.seed,
                "dataset": self.origin.dataset,
                "dataset_sha256": self.origin.dataset_sha256,
                "mean_loss": self.state.mean(),
                "peak_memory_bytes": peak_memory(),
            });
            let report = self.provenance.before(report);
            writeln!(stdout, "{}", shown::json(&report, false))?;
        } else {
            writeln!(
                stdout,
                "{}: squared gradients of {matrices} matrices, {} samples of {} tokens, mean loss {:.4}",
                self.target.display(),
                self.state.samples,
                self.args.seq_len,
                self.state.mean()
            )?;
        }
        Ok(stdout.flush()?)
    }
}
