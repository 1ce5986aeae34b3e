//! A model to measure.

use std::path::PathBuf;

use anyhow::{Result, bail};
use trine_formats::gguf::ModelFile;

use super::args::Args;
use super::synth::{Spec, Specs};
use crate::{inputs, load};

/// A model to measure.
pub(super) enum Subject {
    File(PathBuf),
    MadeUp(Spec),
}

impl Subject {
    pub(super) fn all(args: &Args) -> Result<Vec<Subject>> {
        args.model.iter().for_each(|p| inputs::add(p));
        let synthetic = Specs::all(&args.synthetic);
        if args.save.is_some() && synthetic.len() > 1 {
            bail!("--save keeps one model, --synthetic names {}", synthetic.len());
        }
        let mut all: Vec<Subject> = args.model.iter().cloned().map(Subject::File).collect();
        for spec in synthetic {
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

    pub(super) fn open(&self, args: &Args) -> Result<ModelFile> {
        match self {
            Subject::File(path) => load::open(path, args.mmap),
            Subject::MadeUp(spec) => spec.build(),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Subject::File(path) => path.display().to_string(),
            Subject::MadeUp(spec) => spec.to_string(),
        }
    }
}
