//! From the options to a recipe.

use std::path::Path;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use trine::quant::anyprec::Sensitivity;
use trine::quant::gptq::Gptq;
use trine::quant::{Encoder, Fallback, Importance, Recipe, Target, TensorRule, parse_layers};
use trine_formats::anyprec::Calibration;
use trine_formats::gguf::PackingOptions;
use trine_formats::imatrix::Imatrix;

use super::args::Args;
use crate::inputs;
use crate::text::{self, hex};

/// Everything that decides the output, apart from the input.
///
/// # Errors
/// Options that cannot be read or do not go together; files that cannot be used.
pub fn recipe(args: &Args, target: Target, threads: usize) -> Result<Recipe> {
    let mut recipe = Recipe::new(target);
    recipe.pure = args.pure;
    recipe.allow_requantize = args.allow_requantize;
    recipe.leave_output = args.leave_output_tensor;
    recipe.keep_split = args.keep_split;
    recipe.fallback = match args.fallback {
        true => Fallback::Always,
        false => Fallback::Mixtures,
    };
    recipe.input_packing =
        PackingOptions { interleave: args.input_i2s_layout.interleave(), tiles: args.input_tl_tiles.clone() };
    recipe.output_packing = PackingOptions { interleave: args.i2s_layout.interleave(), tiles: args.tl_tiles.clone() };
    recipe.output_type = args.output_type()?;
    recipe.embedding_type = args.embedding_type()?;
    for rule in &args.tensor_type {
        recipe.rules.push(TensorRule::parse(rule).context("--tensor-type")?);
    }
    if let Some(path) = &args.tensor_type_file {
        let place = || format!("--tensor-type-file '{}'", path.display());
        let bytes = text::read_small(path).with_context(place)?;
        let text = text::utf8(bytes, "its text").with_context(place)?;
        recipe.rules.extend(TensorRule::parse_file(&text).with_context(place)?);
    }
    recipe.overrides = args.overrides()?;
    if let Some(text) = &args.prune_layers {
        recipe.prune = parse_layers(text).context("--prune-layers")?;
    }
    let usual = if args.size.given().is_some() { Encoder::UNBIASED } else { Encoder::default() };
    recipe.encoder = args.method.unwrap_or(usual);
    recipe.reader = args.size.reader.0;
    recipe.widely = args.widely.options();
    if let (Target::AnyPrecision(_), Some(_)) = (target, &args.gptq.sequential) {
        bail!("--sequential has no meaning for {}: make Hessians with rimatrix --hessian, for --gptq", target.name());
    }
    let gptq = args.gptq.recipe(&args.input, &recipe.input_packing, threads)?;
    match target {
        Target::AnyPrecision(target) => {
            recipe.anyprec = args.any_precision.options(target.rule, sensitivity(args, gptq)?);
        }
        _ => {
            recipe.gptq = gptq;
            if let Some((importance, _)) = importance(args)? {
                if importance.is_none() {
                    let file = args.imatrix.as_deref().unwrap_or_default();
                    note!("warning: no weights of '{file}' are selected: quantizing without");
                }
                recipe.importance = importance;
            }
        }
    }
    Ok(recipe)
}

/// How much weights matter for codebooks.
fn sensitivity(args: &Args, gptq: Option<Gptq>) -> Result<Sensitivity> {
    let files = &args.any_precision.sensitivity;
    match (gptq, importance(args)?) {
        (Some(_), _) if !files.is_empty() => {
            bail!("--sensitivity has no meaning beside --gptq, whose Hessians hold the same importance")
        }
        (Some(gptq), _) => Ok(Sensitivity::Hessians(gptq)),
        (None, Some((Some(importance), calibration))) => Ok(Sensitivity::Columns(importance, calibration)),
        (None, Some((None, _))) => {
            let file = args.imatrix.as_deref().unwrap_or_default();
            bail!("no weights of '{file}' are selected: leave --imatrix out, or the selection")
        }
        (None, None) if files.is_empty() => Ok(Sensitivity::Uniform),
        (None, None) => {
            files.iter().for_each(|p| inputs::add(p));
            Ok(Sensitivity::Weights { files: files.clone(), square: args.any_precision.sens_is_gradient })
        }
    }
}

/// The importance matrix, where one is given: the weights that are selected of it, if any, and what it was made of.
fn importance(args: &Args) -> Result<Option<(Option<Importance>, Calibration)>> {
    let Some(file) = &args.imatrix else {
        return Ok(None);
    };
    let place = || format!("--imatrix '{file}'");
    let bytes = text::read_file(Path::new(file)).with_context(place)?;
    let matrix = Imatrix::parse(&bytes).with_context(place)?;
    let known = |n: u32| Some(n).filter(|&n| n > 0);
    let calibration = Calibration {
        dataset: matrix.datasets.first().cloned(),
        samples: known(matrix.chunk_count),
        seq_len: known(matrix.chunk_size),
        sha256: Some(hex(&Sha256::digest(&bytes))),
    };
    Ok(Some((Importance::from_file(&matrix, file, &args.selection())?, calibration)))
}
