//! The files that a tool reads, which it must never write: known by what they are and not by what they are called, so
//! that no link leads around it.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};
use trine_formats::file_id::{FileId, follow};
use trine_formats::gguf::ModelFile;
use trine_formats::gguf::write::WriteError;

static INPUTS: Mutex<Vec<FileId>> = Mutex::new(Vec::new());

fn inputs() -> MutexGuard<'static, Vec<FileId>> {
    INPUTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers that the file at `path` is read. One that cannot be looked at is passed over: who reads it will say so.
pub fn add(path: &Path) {
    if let Ok(id) = FileId::of(path) {
        let mut all = inputs();
        if !all.contains(&id) {
            all.push(id);
        }
    }
}

/// Remembers all files of a model.
pub fn add_model(model: &ModelFile) {
    for shard in model.shards() {
        add(&shard.path);
    }
}

/// True if the file at `path` is one of those that are read.
pub fn contain(path: &Path) -> bool {
    FileId::of(path).is_ok_and(|id| inputs().contains(&id))
}

/// Refuses the file that a tool was asked for when it is also an input.
///
/// # Errors
/// The output is an input.
pub fn spare_output(target: &Path) -> Result<()> {
    let leads_to = follow(target).unwrap_or_else(|_| target.to_owned());
    if contain(&leads_to) {
        return Err(WriteError::IsInput(target.to_owned()).into());
    }
    Ok(())
}

/// Refuses an output that is also an input; `option` names it on the command line.
///
/// # Errors
/// The output is an input.
pub fn spare(target: &Path, option: &str) -> Result<()> {
    let leads_to = follow(target).unwrap_or_else(|_| target.to_owned());
    if contain(&leads_to) {
        let shown = target.display();
        bail!("cannot write '{shown}': it is also an input; give another name to {option}");
    }
    Ok(())
}
