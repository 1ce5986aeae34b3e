//! Whole models: the logits on the GPU are those of the processor, however many layers are there, however tokens are
//! batched, and however two GPUs share them.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, anyhow};
use serde_json::json;
use sha2::{Digest, Sha256};
use trine::exec::{Gpu, Offload, Sharing};
use trine::step::SessionOptions;
use trine::{Model, NumberPath, OpenOptions};
use trine_cuda::driver::Context;
use trine_cuda::run::Shared;

use super::{Options, Report};

/// Opens a model with its last layers on the GPU.
fn open(path: &Path, options: &Options, layers: usize, number_path: NumberPath) -> Result<Model> {
    let offload = match layers {
        0 => None,
        _ => Some(Offload::one(Arc::new(Shared::new(Context::open(options.device)?)), layers)),
    };
    open_on(path, offload, number_path)
}

fn open_on(path: &Path, offload: Option<Offload>, number_path: NumberPath) -> Result<Model> {
    let options = OpenOptions { offload, number_path, ..OpenOptions::default() };
    Ok(trine::open_with(path, &options)?)
}

/// Opens a model with all layers on the GPU and the one behind it.
fn open_on_two(path: &Path, options: &Options, sharing: Sharing) -> Result<Model> {
    let gpu = |number: u32| -> Result<Gpu> {
        let host = Arc::new(Shared::new(Context::open(number)?));
        Ok(Gpu { name: format!("cuda:{number}"), host })
    };
    let gpus = vec![gpu(options.device)?, gpu(options.device + 1)?];
    let offload = Offload { sharing, ..Offload::among(gpus, &[2.0, 1.0], usize::MAX)? };
    open_on(path, Some(offload), NumberPath::default())
}

/// A hash of all logits of some tokens, and the seconds of them.
fn logits(model: &Model, tokens: &[u32], n_ubatch: usize) -> Result<(String, f64)> {
    let mut session = model.session(SessionOptions { n_ctx: tokens.len(), n_ubatch });
    session.prepare()?;
    let mut hash = Sha256::new();
    let start = Instant::now();
    let done = session.eval(tokens, 0, &mut |_, row| {
        row.iter().for_each(|x| hash.update(x.to_le_bytes()));
    });
    done.map_err(|e| anyhow!("{e}"))?;
    let hash = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    Ok((hash, start.elapsed().as_secs_f64()))
}

/// Compares one model, and times single tokens.
///
/// # Errors
/// A model that cannot run there, and what the device says.
pub fn run(path: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let cpu = open(path, options, 0, NumberPath::default())?;
    let count = if options.small { 2 } else { 64 };
    let vocabulary = cpu.weights().n_vocab();
    let tokens: Vec<u32> = (0..count).map(|i| (i * 7919 % vocabulary) as u32).collect();
    let (expected, _) = logits(&cpu, &tokens, 512)?;
    let half = cpu.weights().config().n_layer / 2;
    let cuts: &[usize] = if options.small { &[half] } else { &[usize::MAX, half, 1] };
    for &layers in cuts {
        let gpu = open(path, options, layers, NumberPath::default())?;
        let batches: &[usize] = if options.small { &[2] } else { &[1, 5, 64] };
        for &n_ubatch in batches {
            let (found, seconds) = logits(&gpu, &tokens, n_ubatch)?;
            let on = layers.min(2 * half + 1);
            let what = format!("{name}, {on} layers on the GPU, {n_ubatch} tokens at a time");
            let about = json!({"sha256": found, "tokens_per_second": count as f64 / seconds});
            report.check(&what, found == expected, about)?;
        }
    }
    // Two GPUs, where the driver has another one.
    let two = Context::open(options.device + 1).is_ok();
    for (sharing, named) in [(Sharing::Layers, "layers"), (Sharing::Rows, "rows")].into_iter().filter(|_| two) {
        let gpus = open_on_two(path, options, sharing)?;
        let batches: &[usize] = if options.small { &[2] } else { &[1, 64] };
        for &n_ubatch in batches {
            let (found, seconds) = logits(&gpus, &tokens, n_ubatch)?;
            let what = format!("{name}, {named} shared by two GPUs, {n_ubatch} tokens at a time");
            let about = json!({"sha256": found, "tokens_per_second": count as f64 / seconds});
            report.check(&what, found == expected, about)?;
        }
    }
    let fast = open(path, options, usize::MAX, NumberPath::Fast)?;
    let (one, _) = logits(&fast, &tokens, 1)?;
    let (many, _) = logits(&fast, &tokens, 64)?;
    let what = format!("{name} in half precision, one token at a time and many");
    report.check(&what, one == many, json!({"sha256": one}))
}
