//! `rquantize --tune`: the scales of a quantized file by gradient.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::json;
use trine::Isa;
use trine::fisher::sample;
use trine::model::Config;
use trine::quant::{Plan, QuantError, Recipe, Replacement, RunOptions, Target};
use trine::tokenizer::Tokenizer;
use trine::tune::{News, Text, Tuned, Tuner, memory};
use trine_formats::gguf::{ModelFile, Value};

use super::args::{Args, threads_of};
use super::outcome::Shown;
use super::show;
use crate::outfile::OutFile;
use crate::progress::{Steps, human_bytes};
use crate::provenance::Provenance;
use crate::runner::{carry_out, remark};
use crate::text::{model_sha256, sha256};
use crate::widely::refuse_elsewhere;
use crate::{inputs, load, signals, text, threads};

/// Sequences that are needed, and how many there are for one that is held out.
const LEAST: usize = 8;

/// Tunes a file.
///
/// # Errors
/// Whatever the user, a file or the models did wrong, in one line.
pub fn run(args: &Args, (path, reference): (&Path, &Path)) -> Result<()> {
    let start = Instant::now();
    let rest: Vec<&str> = args.rest.iter().map(String::as_str).collect();
    let (out, threads) = match rest[..] {
        [out] => (out, None),
        [out, threads] => (out, Some(threads)),
        _ => bail!("--tune takes IN.gguf OUT.gguf [THREADS]: the file keeps its types"),
    };
    let others =
        [(args.verify, "--verify"), (args.dry_run, "--dry-run"), (args.allow_requantize, "--allow-requantize")];
    let others = others.into_iter().filter(|o| o.0).map(|o| o.1);
    if let Some(other) = args.all_options().chain(others).next() {
        bail!("{other} has no meaning beside --tune: quantize first and tune then");
    }
    refuse_elsewhere(&args.widely)?;
    let (working, isa) = (threads::count(Some(threads_of(threads)?).filter(|&n| n > 0)), Isa::from_env()?);
    let model = load::open(&args.input, true)?;
    let original = load::open(reference, true)?;
    let out = Path::new(out);
    inputs::spare_output(out)?;
    OutFile::probe(out, "--tune")?;
    let sample = Sample::new(args, path, &model)?;
    threads::start(Some(working))?;
    let (tuned, matrices) = tune(args, (&model, &original), &sample, isa)?;
    let mut recipe = Recipe::new(Target::Replaced);
    recipe.overrides = args.overrides()?;
    recipe.replacement = Arc::new(Replacement { tensors: tuned.tensors, keys: sample.keys(args, &original) });
    let mut plan = Plan::new(&model, &recipe).map_err(QuantError::from)?;
    remark(&plan);
    let provenance =
        Provenance { threads: Some(working), isa: Some(isa), ..Provenance::of_files("rquantize.plan/1", &model) };
    let options = RunOptions { isa, threads: working, ..RunOptions::default() };
    let report = carry_out(&model, &mut plan, out, options, args.verbose, show::verbose_line)??;
    let [before, after] = tuned.held_out;
    let (floats, held_out) = (tuned.floats, sample.held_out);
    let shown = Shown {
        divergence: &json!({ "before": before, "after": after, "sequences": held_out, "scales": floats }),
        plan: &plan,
        recipe: &recipe,
        out,
        model: &model,
        report: Some(&report),
        start,
    };
    let mut stdout = BufWriter::new(signals::stdout());
    shown.write(args.json, provenance, &mut stdout)?;
    if !args.json {
        writeln!(
            stdout,
            "tuned: {floats} scales of {matrices} matrices; divergence {before:.5} -> {after:.5} nats on the {held_out} sequences that were held out"
        )?;
    }
    Ok(stdout.flush()?)
}

/// The sequences of a text.
struct Sample {
    sequences: Vec<Vec<u32>>,
    /// How many of the first are held out.
    held_out: usize,
    sha256: String,
}

impl Sample {
    /// Draws them.
    ///
    /// # Errors
    /// A text that cannot be read or is too short.
    fn new(args: &Args, path: &Path, model: &ModelFile) -> Result<Sample> {
        let options = &args.tune;
        let name = || format!("'{}'", args.input.display());
        let bytes = text::read_file(path)?;
        let sha256 = sha256([&bytes[..]]);
        let from = format!("--tune '{}'", path.display());
        let text = text::utf8(bytes, &from)?;
        let tokenizer = Tokenizer::from_metadata(model.meta()).with_context(name)?;
        note!("tokenizing the input ..");
        let tokens = tokenizer.encode(&text, true, false).with_context(|| from.clone())?;
        let (length, seed) = (options.seq_len, options.seed);
        let sequences = sample::chunks(&tokens, length, tokenizer.text_bos(), options.samples, seed);
        match sequences.len() {
            n if n < LEAST => bail!(
                "{from} has {} tokens, which are {n} sequences of {length}, and tuning needs {LEAST}: use a longer text, a smaller --seq-len or more --samples",
                tokens.len()
            ),
            n if n < options.samples => note!("warning: the text has only {n} sequences of {length} tokens"),
            _ => {}
        }
        Ok(Sample { held_out: sequences.len() / LEAST, sequences, sha256 })
    }

    /// The keys of the file that is tuned on them.
    fn keys(&self, args: &Args, original: &ModelFile) -> Vec<(&'static str, Value)> {
        let count = |n: usize| Value::U32(u32::try_from(n).unwrap_or(u32::MAX));
        let reference = model_sha256(original);
        vec![
            ("tune.version", Value::U32(1)),
            ("tune.rate", Value::F32(args.tune.rate as f32)),
            ("tune.seed", Value::U32(args.tune.seed)),
            ("tune.calibration.sequences", count(self.sequences.len())),
            ("tune.calibration.sequence_length", count(args.tune.seq_len)),
            ("tune.calibration.sha256", Value::str(&self.sha256)),
            ("tune.reference_sha256", Value::str(&reference)),
        ]
    }
}

/// Tunes the scales of a model; beside them the number of matrices that have some.
fn tune(args: &Args, (model, original): (&ModelFile, &ModelFile), sample: &Sample, isa: Isa) -> Result<(Tuned, usize)> {
    let name = || format!("'{}'", args.input.display());
    let config = Config::read(model).with_context(name)?;
    if args.tune.seq_len > config.n_ctx_train {
        note!(
            "warning: the model was trained on a context of {} tokens, --seq-len is {}",
            config.n_ctx_train,
            args.tune.seq_len
        );
    }
    note!(
        "{} sequences of {} tokens, {} of them held out; this takes about {} of memory",
        sample.sequences.len(),
        args.tune.seq_len,
        sample.held_out,
        human_bytes(memory(model, &config, args.tune.seq_len))
    );
    let tuner = Tuner::load(model, original, &Default::default(), isa)?;
    let (_, matrices) = tuner.floats();
    let (held_out, train) = sample.sequences.split_at(sample.held_out);
    let mut steps: Option<Steps> = None;
    let tuned = tuner.run(Text { train, held_out }, args.tune.rate, &mut |News { done, total, held_out }| {
        let steps = steps.get_or_insert_with(|| Steps::new("step", total));
        steps.tick(done);
        if let Some(divergence) = held_out {
            steps.say(format!("divergence {divergence:.5}"));
        }
    });
    if let Some(steps) = steps {
        steps.finish();
    }
    Ok((tuned?, matrices))
}
