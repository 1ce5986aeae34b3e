//! `rquantize --target-bpw` and `--target-size`: types chosen for a size.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use trine::quant::allocate::{self, Size};
use trine::quant::{Progress, Recipe, Target};
use trine_formats::gguf::ModelFile;

use super::args::{Args, Job};
use crate::memory;
use crate::outfile::OutFile;
use crate::progress::TensorBar;

/// The options of files of a given size.
#[derive(ClapArgs)]
pub struct SizeArgs {
    /// Choose the type of every tensor so that the file has N bits for each weight at most and least is lost
    ///
    /// Each tensor is encoded in every type that its rows allow; bits go where they save most of the error of products,
    /// with --imatrix weighed by importance. OUT.gguf is followed by no TYPE. Tensors that --tensor-type and the like name
    /// have the type that they name. The same model and options give the same file on any machine
    #[arg(long, value_name = "N", conflicts_with_all = ["target_size", "pure", "gptq"], value_parser = bits)]
    pub target_bpw: Option<f64>,

    /// The same for a file of SIZE bytes at most, such as 90M (million) or 8GiB
    #[arg(long, value_name = "SIZE", visible_alias = "fit", conflicts_with_all = ["pure", "gptq"], value_parser = memory::file_size)]
    pub target_size: Option<usize>,

    /// Write the types that were chosen to FILE, which --tensor-type-file reads, llama-quantize's too
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
}

impl SizeArgs {
    /// The size that is asked for, and its option.
    pub fn given(&self) -> Option<(Size, &'static str)> {
        let bits = self.target_bpw.map(|bits| (Size::BitsPerWeight(bits), "--target-bpw"));
        bits.or_else(|| self.target_size.map(|bytes| (Size::File(bytes as u64), "--target-size")))
    }
}

fn bits(text: &str) -> Result<f64, String> {
    let bits = text.parse().ok().filter(|bits: &f64| bits.is_finite() && *bits > 0.0 && *bits <= 64.0);
    bits.ok_or_else(|| "write a number of bits such as 4.5".to_owned())
}

/// The words behind the input: output and threads.
pub(super) fn words<'a>(rest: &[&'a str], option: &str) -> Result<(&'a str, Option<&'a str>)> {
    if let Some(ty) = rest.iter().find(|word| Target::parse(word).is_some() && word.parse::<u32>().is_err()) {
        bail!("{option} chooses the types: leave {ty} out");
    }
    match *rest {
        [out] => Ok((out, None)),
        [out, threads] => Ok((out, Some(threads))),
        _ => bail!("{option} takes IN.gguf OUT.gguf [THREADS]"),
    }
}

/// The recipe of a file `out` of this size.
///
/// # Errors
/// A size that no file has; a recipe that cannot be written; what quantizing refuses.
pub(super) fn allocate(
    args: &Args,
    model: &ModelFile,
    recipe: &Recipe,
    (size, option): (Size, &'static str),
    job: &Job,
) -> Result<Recipe> {
    // Choosing takes a while.
    if !args.dry_run && !recipe.keep_split {
        OutFile::probe(&job.out, option)?;
    }
    if let Some(path) = &args.size.recipe {
        OutFile::probe(path, "--recipe")?;
    }
    let bytes = model.tensors().map(|info| info.bytes).sum();
    let mut bar = Bar(TensorBar::new(bytes, false));
    let allocation = allocate::allocate(model, recipe, size, &job.options(args)?, &mut bar);
    bar.0.finish();
    let allocation = allocation?;
    note!(
        "types for {} tensors, mostly {}: products err by {:.2} % (root of the mean square)",
        allocation.rules.len(),
        allocation.ftype,
        100.0 * allocation.error,
    );
    if let Some(path) = &args.size.recipe {
        let mut file = OutFile::create(path, "--recipe")?;
        let written = file.write_all(allocation.text().as_bytes()).and_then(|()| file.keep());
        written.with_context(|| format!("--recipe '{}'", path.display()))?;
    }
    Ok(allocation.recipe(recipe))
}

/// Shows which tensors are tried.
struct Bar(TensorBar);

impl Progress for Bar {
    fn tensor(&mut self, _: usize, name: &str) {
        self.0.tensor(name, String::new);
    }

    fn advance(&mut self, bytes: u64) {
        self.0.advance(bytes);
    }
}
