//! `rquantize --target-bpw` and `--target-size`: types chosen for a size.

use std::io::Write;

use anyhow::{Context, Result};
use trine::quant::Recipe;
use trine::quant::allocate::{self, Size};
use trine_formats::gguf::ModelFile;

use super::args::{Args, Positionals};
use crate::outfile::OutFile;
use crate::runner::Display;

/// The recipe of a file of this size.
///
/// # Errors
/// A size that no file has; a recipe that cannot be written; what quantizing refuses.
pub(super) fn allocate(
    args: &Args,
    model: &ModelFile,
    recipe: &Recipe,
    (size, option): (Size, &'static str),
    job: &Positionals,
) -> Result<Recipe> {
    // Choosing takes a while.
    if !args.dry_run && !recipe.keep_split {
        OutFile::probe(&job.out, option)?;
    }
    if let Some(path) = &args.size.recipe {
        OutFile::probe(path, "--recipe")?;
    }
    let bytes = model.tensors().map(|info| info.bytes).sum();
    let mut display = Display::new(bytes, Vec::new());
    let allocation = allocate::allocate(model, recipe, size, &job.options(args)?, &mut display);
    display.finish();
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
