//! Files read and written at given places by several threads at once.

use std::fs::File;
use std::io;
#[cfg(not(unix))]
use std::sync::{Mutex, PoisonError};

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
