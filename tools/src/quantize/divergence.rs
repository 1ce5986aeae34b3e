//! How far a quantized file's predictions are from those of its source, over a text.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;

use anyhow::{Context, Result};
use trine::eval::base_file::{BaseReader, BaseWriter};
use trine::eval::kld::divergence;
use trine::eval::perplexity::perplexity;
use trine::eval::{Batching, Chunks, SideBySide};
use trine::quant::{Plan, Recipe, run};
use trine::{Isa, Model, OpenOptions};
use trine_formats::gguf::ModelFile;
use trine_formats::temp_file::TempFile;

use super::args::{Args, Positionals};
use crate::progress::Steps;
use crate::text;

/// Tokens of a chunk, of a batch and of a micro-batch, as rperplexity's.
const BATCHING: Batching = Batching { n_ctx: 512, n_batch: 2048, n_ubatch: 512 };

/// Log-probabilities of the source, in a file beside the output that is gone in the end.
pub(super) struct Reference {
    base: TempFile,
    n_vocab: usize,
    bos: Option<u32>,
}

fn open(path: &Path, job: &Positionals) -> Result<Model> {
    let options = OpenOptions { threads: Some(job.threads()), isa: Some(Isa::from_env()?), ..OpenOptions::default() };
    Ok(trine::open_with(path, &options)?)
}

impl Reference {
    /// Evaluates the source.
    ///
    /// # Errors
    /// A text that cannot be read or is too short; a model that cannot be run; I/O.
    pub fn new(args: &Args, path: &Path, job: &Positionals) -> Result<Reference> {
        let place = || format!("--kld-text '{}'", path.display());
        let text = text::read_prompt(path).with_context(place)?;
        let model = open(&args.input, job)?;
        let tokens = model.tokenizer().encode(&text, true, false).with_context(place)?;
        let (n_vocab, bos) = (model.weights().n_vocab(), model.tokenizer().text_bos());
        let chunks = Chunks::new(tokens, BATCHING.n_ctx, bos, Some(args.size.kld_chunks)).with_context(place)?;
        // A name of its own: files that are measured take that of the output one after the other.
        let mut beside = job.out.clone().into_os_string();
        beside.push(".kld");
        let (base, file) = TempFile::create(Path::new(&beside))?;
        let mut writer = BaseWriter::new(BufWriter::new(file), &chunks, n_vocab)?;
        let mut evaluated = SideBySide::new(model.weights(), model.pool(), BATCHING);
        let mut steps = Steps::new("chunk", chunks.count());
        let evaluation = perplexity(&mut evaluated, &chunks, Some(&mut writer), &mut |done, _| {
            steps.tick(done);
            Ok(())
        });
        steps.finish();
        evaluation?;
        writer.finish()?.into_inner().map_err(|e| e.into_error())?;
        Ok(Reference { base, n_vocab, bos })
    }

    /// The mean divergence of the file that `recipe` makes of `model`, in nats.
    ///
    /// # Errors
    /// As [`Plan::new`] and [`run`]; a file that cannot be run; I/O.
    pub fn divergence(&self, model: &ModelFile, recipe: &Recipe, job: &Positionals, args: &Args) -> Result<f64> {
        let (file, _) = TempFile::create(&job.out)?;
        run(model, &mut Plan::new(model, recipe)?, file.path(), job.options(args)?, &mut ())?;
        let quantized = open(file.path(), job)?;
        let base = File::open(self.base.path())?;
        let length = base.metadata()?.len();
        let mut base = BaseReader::new(BufReader::with_capacity(1 << 20, base), length, self.n_vocab, self.bos, None)?;
        let mut evaluated = SideBySide::new(quantized.weights(), quantized.pool(), BATCHING);
        let mut steps = Steps::new("chunk", base.chunks().count());
        let found = divergence(&mut evaluated, &mut base, &mut |done, _| {
            steps.tick(done);
            Ok(())
        });
        steps.finish();
        Ok(found?.kld().value)
    }
}
