//! A file that appears under its name only when it is complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use trine_formats::gguf::write::is_same_file;
use trine_formats::temp_file::TempFile;

/// An output file. Dropped before [`OutFile::keep`], it leaves nothing behind.
pub struct OutFile {
    file: File,
    path: PathBuf,
    /// Where the bytes are until the file is complete; `None` for devices and pipes.
    unfinished: Option<TempFile>,
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
        let made = TempFile::create(&path).map_err(|e| e.source);
        let (unfinished, file) = made.with_context(failed)?;
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
        self.unfinished.as_ref().map_or(&self.path, TempFile::path)
    }

    /// Puts the complete file under its name.
    ///
    /// # Errors
    /// What the system says; nothing is left behind then.
    pub fn keep(self) -> io::Result<()> {
        let Some(unfinished) = self.unfinished else {
            return Ok(());
        };
        self.file.sync_all()?;
        unfinished.keep(&self.path)
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
