//! Parts of a text measured apart, on machines of any kind, and put together to the digits that one machine prints.

mod file;
mod join;

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use trine::Model;
use trine::eval::partial::ChunkSums;
use trine::eval::{Chunks, EvalError, Observer};

use super::args::Args;
use super::common::go_on;
use crate::progress::Steps;
use crate::provenance::{describe, files};
use crate::text::hex;
use file::Writer;

pub(super) use join::run as join;

/// Everything that the digits of a chunk depend on, as the first line of the file has it: the same on all machines.
fn head<T: ChunkSums>(args: &Args, loaded: &Model, chunks: &Chunks) -> Value {
    let mut text = Sha256::new();
    chunks.tokens().iter().for_each(|token| text.update(token.to_le_bytes()));
    let paths = files(loaded.file()).into_iter().chain(loaded.weights().added_files().iter().cloned());
    let models = paths.map(|path| {
        let described = describe(&path);
        json!({ "bytes": described["bytes"], "sha256": described["sha256"] })
    });
    let model = &args.model;
    let factors = |named: &[(_, f32)]| named.iter().map(|(_, factor)| *factor).collect::<Vec<_>>();
    let adapters = &model.adapters;
    json!({
        "schema": file::SCHEMA,
        "of": T::NAME,
        "chunks": chunks.count(),
        "n_ctx": chunks.n_ctx(),
        "chunk_step": chunks.step(),
        "first_scored": chunks.first(),
        "tokens_sha256": hex(&text.finalize()),
        "models": models.collect::<Vec<_>>(),
        "bits": args.bits,
        "number_path": format!("{:?}", model.number_path),
        "cache_types": format!("{:?}", [model.cache_type_k, model.cache_type_v]),
        "packing": format!("{:?}", model.packing),
        "overrides": format!("{:?}", model.overrides),
        "factors": [factors(&adapters.adapters), factors(&adapters.control_vectors)],
        "control_blocks": adapters.blocks,
    })
}

/// Measures the chunks `wanted` of all `chunks` that the file `target` does not have yet, by `run`, which hears of every
/// chunk, and writes each to the file when it is done.
pub(super) fn measure<T: ChunkSums>(
    args: &Args,
    (loaded, chunks): (&Model, &Chunks),
    target: &Path,
    wanted: Range<usize>,
    mut run: impl FnMut(Range<usize>, Observer<'_, T>) -> Result<(), EvalError>,
) -> Result<()> {
    let shown = target.display();
    let (mut writer, done) = Writer::open(target, &head::<T>(args, loaded, chunks))?;
    let missing: Vec<usize> = wanted.clone().filter(|index| !done.contains(index)).collect();
    let mut finished = wanted.len() - missing.len();
    if finished > 0 {
        note!("{finished} of {} chunks are in '{shown}'", wanted.len());
    }
    let mut progress = Steps::after("chunk", finished, wanted.len());
    let mut parts = missing.chunk_by(|a, b| a + 1 == *b);
    let measured = parts.try_for_each(|part| -> Result<()> {
        let mut wrote = Ok(());
        let result = run(part[0]..part[0] + part.len(), &mut |number, sums: &T| {
            wrote = writer.chunk(number - 1, &sums.words());
            finished += 1;
            progress.tick(finished);
            if wrote.is_err() {
                return Err("the file cannot be written".into());
            }
            go_on()
        });
        wrote.with_context(|| format!("cannot write '{shown}'"))?;
        Ok(result?)
    });
    progress.finish();
    measured?;
    let all = chunks.count();
    println!("chunks {} to {} of {all} are in '{shown}'; --join prints the result", wanted.start + 1, wanted.end);
    Ok(())
}
