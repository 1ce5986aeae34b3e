//! `rbench`: how fast models and kernels are.

pub mod args;
mod batched;
mod compare;
mod describe;
mod grid;
mod kernels;
mod machine;
mod models;
mod numbers;
mod output;
mod profile;
mod roofline;
pub mod serve;
mod synth;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use trine_formats::gguf::ModelFile;

use crate::{inputs, load, signals, threads};
use args::Args;
use synth::Spec;

/// Runs what `args` ask for.
///
/// # Errors
/// A device that cannot be used; a model that cannot be loaded or made; a test that does not fit it; output that cannot
/// be written.
pub fn run(args: &Args) -> Result<()> {
    if args.kernels || args.serve.is_some() {
        args.device.refuse("models that rbench runs itself")?;
    }
    let mut out = signals::stdout();
    if args.kernels {
        kernels::run(args, &mut out)?;
        return Ok(out.flush()?);
    }
    if let Some(url) = &args.serve {
        serve::run(args, url, &mut out)?;
        return Ok(out.flush()?);
    }
    // Synthetic weights are made and packed by as many threads as the most that are measured.
    threads::start(numbers::all(&args.threads).into_iter().max())?;
    let subjects = Subject::all(args)?;
    if let Some(dir) = &args.compare_llama {
        compare::run(args, dir, &subjects, &mut out)?;
    } else if args.batched {
        batched::run(args, &subjects, &mut out)?;
    } else if args.profile {
        profile::run(args, &subjects, &mut out)?;
    } else if args.roofline {
        roofline::run(args, &subjects, &mut out)?;
    } else {
        models::run(args, &subjects, &mut out)?;
    }
    Ok(out.flush()?)
}

/// A model to measure.
enum Subject {
    File(PathBuf),
    MadeUp(Spec),
}

impl Subject {
    fn all(args: &Args) -> Result<Vec<Subject>> {
        args.model.iter().for_each(|p| inputs::add(p));
        if args.save.is_some() && args.synthetic.len() > 1 {
            bail!("--save keeps one model, {} are made up", args.synthetic.len());
        }
        let mut all: Vec<Subject> = args.model.iter().cloned().map(Subject::File).collect();
        for spec in &args.synthetic {
            all.push(match &args.save {
                Some(path) => {
                    inputs::spare(path, "--save")?;
                    spec.save(path)?;
                    Subject::File(path.clone())
                }
                None => Subject::MadeUp(spec.clone()),
            });
        }
        if all.is_empty() {
            bail!("no model: give -m FILE, or --synthetic ARCH:SIZE:TYPE to make one up");
        }
        Ok(all)
    }

    fn open(&self, args: &Args) -> Result<ModelFile> {
        match self {
            Subject::File(path) => load::open(path, args.mmap),
            Subject::MadeUp(spec) => spec.build(),
        }
    }

    fn name(&self) -> String {
        match self {
            Subject::File(path) => path.display().to_string(),
            Subject::MadeUp(spec) => spec.to_string(),
        }
    }
}
