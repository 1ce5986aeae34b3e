//! Files that appear under their names only when they are whole.
//!
//! What is written goes to a temporary file beside the target (`NAME.PID.part`) that is synced and renamed at the
//! end. Dropped before, a [`TempFile`] removes it; [`remove_unfinished`] does so for a program that is about to end.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thiserror::Error;

/// Temporary files of this process that are neither kept nor dropped.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all temporary files and returns their paths. To be called from a thread, such as a Ctrl-C handler's, just
/// before the process exits: writers still at work will fail.
pub fn remove_unfinished() -> Vec<PathBuf> {
    let paths = std::mem::take(&mut *unfinished());
    paths
        .into_iter()
        .filter(|p| fs::remove_file(p).is_ok())
        .collect()
}

/// A temporary file could not be made.
#[derive(Debug, Error)]
#[error("cannot create '{path}'")]
pub struct CreateError {
    /// Its name.
    pub path: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

/// A file under a temporary name that goes away unless it is kept.
#[derive(Debug)]
pub struct TempFile {
    path: PathBuf,
}

impl TempFile {
    /// Creates `NAME.PID.part` beside `target`, or `NAME.PID.N.part` when a file of that name is there.
    ///
    /// # Errors
    /// A target without a name; a folder that is missing or cannot be written.
    pub fn create(target: &Path) -> Result<(TempFile, File), CreateError> {
        let Some(name) = target.file_name() else {
            return Err(CreateError {
                path: target.to_owned(),
                source: io::Error::new(io::ErrorKind::InvalidInput, "it has no file name"),
            });
        };
        let mut n = 0;
        loop {
            let mut temp = name.to_owned();
            temp.push(format!(".{}", std::process::id()));
            if n > 0 {
                temp.push(format!(".{n}"));
            }
            temp.push(".part");
            let path = target.with_file_name(temp);
            // Registered under the lock, so that no moment is left in which a kill would leave the file.
            let mut list = unfinished();
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    list.push(path.clone());
                    return Ok((TempFile { path }, file));
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && n < 1000 => n += 1,
                Err(source) => return Err(CreateError { path, source }),
            }
        }
    }

    /// Where the bytes are until the file is kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file, which must be synced, the name `target`.
    ///
    /// # Errors
    /// What the system says; the temporary file is removed then.
    pub fn keep(self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.forget();
        sync_directory(target);
        Ok(())
    }

    fn forget(&self) {
        unfinished().retain(|p| *p != self.path);
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let mine = unfinished().contains(&self.path);
        if mine {
            // What cannot be removed now could not be removed later either.
            let _ = fs::remove_file(&self.path);
            self.forget();
        }
    }
}

/// Makes the rename itself durable, where directories can be synced; elsewhere the system does.
fn sync_directory(target: &Path) {
    let dir = target
        .parent()
        .filter(|d| !d.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if let Ok(dir) = File::open(dir) {
        let _ = dir.sync_all();
    }
}
