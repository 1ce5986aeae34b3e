//! `rquantize --target-bpw`, `--target-size` and `--target-kld`: types chosen for a size or a divergence.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use trine::quant::Recipe;
use trine::quant::allocate::{Allocation, Allocator, Measured, Size};
use trine_formats::gguf::ModelFile;

use super::args::{Args, Positionals};
use super::divergence::Reference;
use super::size_args::Goal;
use crate::outfile::OutFile;
use crate::progress::human_bytes;
use crate::runner::Display;

/// Files that are measured at most.
const TRIES: usize = 6;
/// Bits for each weight at which roles are measured where no size is asked for.
const PROBED: f64 = 4.0;

/// A recipe whose types were chosen, and what its divergence is where that was asked for.
pub(super) struct Chosen {
    pub recipe: Recipe,
    pub divergence: Option<(f64, Measured)>,
}

impl Chosen {
    /// The divergence as JSON.
    pub fn to_json(&self) -> Value {
        let Some((wanted, found)) = self.divergence else { return Value::Null };
        json!({ "wanted": wanted, "predicted": found.predicted, "measured": found.divergence })
    }
}

/// The recipe of a file of this size or divergence.
///
/// # Errors
/// A size or divergence that no file has; a recipe that cannot be written; what quantizing refuses.
pub(super) fn allocate(
    args: &Args,
    model: &ModelFile,
    recipe: &Recipe,
    (goal, option): (Goal<'_>, &'static str),
    job: &Positionals,
) -> Result<Chosen> {
    // Choosing takes a while.
    if !args.dry_run && !recipe.keep_split {
        OutFile::probe(&job.out, option)?;
    }
    if let Some(path) = &args.size.recipe {
        OutFile::probe(path, "--recipe")?;
    }
    let (allocation, divergence) = match goal {
        Goal::Size(size) => (for_size(args, model, recipe, size, job)?, None),
        Goal::Divergence(wanted, text) => {
            let (allocation, found) = for_divergence(args, model, recipe, (wanted, text), job)?;
            (allocation, Some((wanted, found)))
        }
    };
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
    Ok(Chosen { recipe: allocation.recipe(recipe), divergence })
}

fn for_size(args: &Args, model: &ModelFile, recipe: &Recipe, size: Size, job: &Positionals) -> Result<Allocation> {
    let mut allocator = allocator(args, model, recipe, job)?;
    if let Some(text) = &args.size.kld_text {
        let reference = Reference::new(args, text, job)?;
        let bits = allocator.bits(size);
        measure_roles(args, &mut allocator, &reference, bits, (model, recipe), job)?;
    }
    Ok(allocator.for_size(size)?)
}

fn allocator<'a>(args: &Args, model: &'a ModelFile, recipe: &'a Recipe, job: &Positionals) -> Result<Allocator<'a>> {
    let mut display = display(model);
    let allocator = Allocator::new(model, recipe, &job.options(args)?, &mut display);
    display.finish();
    Ok(allocator?)
}

/// Makes and measures a file for each role of tensors, so that each counts as it does in this model.
fn measure_roles(
    args: &Args,
    allocator: &mut Allocator<'_>,
    reference: &Reference,
    bits: f64,
    (model, recipe): (&ModelFile, &Recipe),
    job: &Positionals,
) -> Result<()> {
    // Of a set of files one is measured.
    let recipe = &Recipe { keep_split: false, ..recipe.clone() };
    let mut measured = Vec::new();
    for probe in allocator.probes(bits) {
        let divergence = reference.divergence(model, &probe.allocation.recipe(recipe), job, args)?;
        note!("{} alone, mostly {}: divergence {divergence:.5}", probe.role(), probe.allocation.ftype);
        measured.push((probe, divergence));
    }
    allocator.weigh(&measured);
    Ok(())
}

fn display(model: &ModelFile) -> Display {
    Display::new(model.tensors().map(|info| info.bytes).sum(), Vec::new())
}

/// Makes and measures files until one is as small as the divergence allows.
fn for_divergence(
    args: &Args,
    model: &ModelFile,
    recipe: &Recipe,
    (wanted, text): (f64, &Path),
    job: &Positionals,
) -> Result<(Allocation, Measured)> {
    // Of a set of files one is measured.
    let recipe = &Recipe { keep_split: false, ..recipe.clone() };
    let reference = Reference::new(args, text, job)?;
    let mut allocator = allocator(args, model, recipe, job)?;
    measure_roles(args, &mut allocator, &reference, PROBED, (model, recipe), job)?;
    let mut search = allocator.search(wanted);
    let mut allocations: Vec<Allocation> = Vec::new();
    while allocations.len() < TRIES {
        let allocation = allocator.for_loss(search.next());
        if allocations.iter().any(|before| before.text() == allocation.text()) {
            break;
        }
        let divergence = reference.divergence(model, &allocation.recipe(recipe), job, args)?;
        note!(
            "mostly {}, {}: divergence {divergence:.5}, {:.5} predicted",
            allocation.ftype,
            human_bytes(allocator.file_bytes(&allocation)?),
            search.predict(allocation.loss)
        );
        let is_near = search.take(allocation.loss, divergence);
        allocations.push(allocation);
        if is_near {
            break;
        }
    }
    let best = search.best().with_context(|| {
        let least = search.measured().iter().map(|m| m.divergence).fold(f64::INFINITY, f64::min);
        format!(
            "none of {} files had a divergence of {wanted} at most, the best one had {least:.5}; ask for more",
            allocations.len()
        )
    })?;
    let found = search.measured()[best];
    note!(
        "divergence: at most {wanted} wanted, {:.5} predicted, {:.5} measured; {} files made",
        found.predicted,
        found.divergence,
        allocations.len()
    );
    Ok((allocations.swap_remove(best), found))
}
