//! Files read and written at given places by several threads at once.

use std::fs::{File, Metadata};
use std::io;
#[cfg(not(unix))]
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// An open file without a position of its own.
#[derive(Debug)]
pub struct SharedFile {
    file: File,
    /// Where the system has no reads at a place, the file's one position is taken in turns.
    #[cfg(not(unix))]
    turn: Mutex<()>,
}

impl From<File> for SharedFile {
    fn from(file: File) -> SharedFile {
        SharedFile {
            file,
            #[cfg(not(unix))]
            turn: Mutex::new(()),
        }
    }
}

impl SharedFile {
    /// The file, for what does not depend on a position.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// I/O; `UnexpectedEof` when the file ends before.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        #[cfg(unix)]
        return std::os::unix::fs::FileExt::read_exact_at(&self.file, buffer, offset);
        #[cfg(not(unix))]
        {
            use std::io::{Read, Seek, SeekFrom};
            let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            let mut file = &self.file;
            file.seek(SeekFrom::Start(offset))?;
            file.read_exact(buffer)
        }
    }

    /// Writes all of `bytes` from `offset` on.
    ///
    /// # Errors
    /// I/O.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        #[cfg(unix)]
        return std::os::unix::fs::FileExt::write_all_at(&self.file, bytes, offset);
        #[cfg(not(unix))]
        {
            use std::io::{Seek, SeekFrom, Write};
            let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            let mut file = &self.file;
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(bytes)
        }
    }
}

/// A file that is read from its header to its data through one descriptor: whatever happens to its name meanwhile, the
/// bytes are those of one file.
#[derive(Debug)]
pub struct SourceFile {
    file: SharedFile,
    before: Stamp,
}

/// Length and time of the last change.
type Stamp = (u64, Option<SystemTime>);

fn stamp(meta: &Metadata) -> Stamp {
    (meta.len(), meta.modified().ok())
}

impl SourceFile {
    /// Remembers how the file is now.
    ///
    /// # Errors
    /// I/O.
    pub fn new(file: File) -> io::Result<SourceFile> {
        let before = stamp(&file.metadata()?);
        Ok(SourceFile { file: file.into(), before })
    }

    /// Its length when it was opened.
    pub fn len(&self) -> u64 {
        self.before.0
    }

    /// True if it had no bytes when it was opened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file, to be read at any place.
    pub fn file(&self) -> &SharedFile {
        &self.file
    }

    /// Makes sure, when all is read, that nobody wrote to the file meanwhile.
    ///
    /// # Errors
    /// It has another length or time of change than before; I/O.
    pub fn unchanged(&self) -> io::Result<()> {
        if stamp(&self.file.file().metadata()?) == self.before {
            return Ok(());
        }
        Err(io::Error::other("somebody wrote to it while it was read; run again when it is complete"))
    }
}
