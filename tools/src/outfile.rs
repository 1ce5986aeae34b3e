//! A file that appears under its name only when it is complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use trine_formats::gguf::write::is_same_file;

/// Temporary files of this process, for [`remove_unfinished`].
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the temporary files of all unfinished outputs, for a program that is about to be ended.
pub fn remove_unfinished() {
    for path in std::mem::take(&mut *unfinished()) {
        // There is nobody left to tell.
        let _ = fs::remove_file(path);
    }
}

/// An output file. Dropped before [`OutFile::keep`], it leaves nothing behind.
pub struct OutFile {
    file: File,
    path: PathBuf,
    /// Where the bytes are until the file is complete; `None` for devices and pipes.
    unfinished: Option<PathBuf>,
}

impl OutFile {
    /// Opens a temporary file beside `path`, or `path` itself where it is a device or a pipe.
    ///
    /// # Errors
    /// A directory, a folder that is missing or cannot be written.
    pub fn create(path: &Path) -> Result<OutFile> {
        let shown = path.display();
        let failed = || format!("cannot write '{shown}'");
        // Where a link points is what is replaced, not the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if path.is_dir() {
            bail!("cannot write '{shown}': it is a directory");
        }
        if path.exists() && !path.is_file() {
            let file = File::options()
                .write(true)
                .open(&path)
                .with_context(failed)?;
            return Ok(OutFile {
                file,
                path,
                unfinished: None,
            });
        }
        let Some(name) = path.file_name() else {
            bail!("cannot write '{shown}': it has no file name");
        };
        let mut part = name.to_owned();
        part.push(format!(".{}.part", std::process::id()));
        let unfinished = path.with_file_name(part);
        // Under the lock, so that no moment is left in which an ended program would leave the file.
        let mut list = self::unfinished();
        let file = File::options()
            .write(true)
            .create_new(true)
            .open(&unfinished)
            .with_context(failed)?;
        list.push(unfinished.clone());
        drop(list);
        Ok(OutFile {
            file,
            path,
            unfinished: Some(unfinished),
        })
    }

    /// The name that the file will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the bytes are until then.
    pub fn unfinished(&self) -> &Path {
        self.unfinished.as_deref().unwrap_or(&self.path)
    }

    /// Puts the complete file under its name.
    ///
    /// # Errors
    /// What the system says; nothing is left behind then.
    pub fn keep(mut self) -> io::Result<()> {
        if let Some(unfinished) = &self.unfinished {
            self.file.sync_all()?;
            fs::rename(unfinished, &self.path)?;
            self::unfinished().retain(|p| p != unfinished);
            self.unfinished = None;
        }
        Ok(())
    }
}

/// Refuses an output that is also one of the inputs; `option` names it on the command line.
///
/// # Errors
/// They are one file.
pub fn keep_input(target: &Path, input: &Path, option: &str) -> Result<()> {
    if is_same_file(target, input) {
        let shown = target.display();
        bail!("cannot write '{shown}': it is also an input; give another name to {option}");
    }
    Ok(())
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            // There is nobody left to tell.
            let _ = fs::remove_file(unfinished);
            self::unfinished().retain(|p| p != unfinished);
        }
    }
}
