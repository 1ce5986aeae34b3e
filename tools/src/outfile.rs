//! A file that appears under its name only when it is complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use trine_formats::file_id::follow;
use trine_formats::temp_file::TempFile;

use crate::inputs;

/// An output file. Dropped before [`OutFile::keep`], it leaves nothing behind.
pub struct OutFile {
    file: File,
    path: PathBuf,
    /// Where the bytes are until the file is complete; `None` for devices and pipes.
    unfinished: Option<TempFile>,
    /// The option that names it on the command line.
    option: &'static str,
}

impl OutFile {
    /// Opens a temporary file beside `path`, or `path` itself where it is a device or a pipe. `option` names it on the
    /// command line.
    ///
    /// # Errors
    /// A directory, an [input](inputs), a folder that is missing or cannot be written.
    pub fn create(path: &Path, option: &'static str) -> Result<OutFile> {
        let shown = path.display();
        let failed = || format!("cannot write '{shown}'");
        // Where a link points is what is replaced, not the link.
        let path = follow(path).with_context(failed)?;
        if path.is_dir() {
            bail!("cannot write '{shown}': it is a directory");
        }
        inputs::spare(&path, option)?;
        if path.exists() && !path.is_file() {
            let file = File::options().write(true).open(&path).with_context(failed)?;
            return Ok(OutFile { file, path, unfinished: None, option });
        }
        let made = TempFile::create(&path).map_err(|e| e.source);
        let (unfinished, file) = made.with_context(failed)?;
        Ok(OutFile { file, path, unfinished: Some(unfinished), option })
    }

    /// Finds out before the work whether a file could be written in the end.
    ///
    /// # Errors
    /// Those of [`OutFile::create`]; for a device or a pipe only what can be known without opening it.
    pub fn probe(path: &Path, option: &'static str) -> Result<()> {
        let special = fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir());
        if special {
            return Ok(());
        }
        OutFile::create(path, option).map(drop)
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
    /// The system's error; a file that became an input since it was begun. Nothing is left behind then.
    pub fn keep(self) -> io::Result<()> {
        let Some(unfinished) = self.unfinished else {
            return Ok(());
        };
        if let Err(e) = inputs::spare(&self.path, self.option) {
            return Err(io::Error::other(e.to_string()));
        }
        self.file.sync_all()?;
        unfinished.keep(&self.path)
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
