//! The bytes of a file, mapped or read. This is the one place that maps files.

use std::fs::{self, File};
use std::io::{ErrorKind as Io, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use trine_formats::gguf::file::SourceFile;
use trine_formats::gguf::{ByteStore, Bytes};
use trine_formats::limited::read_up_to;

use super::OpenError;

/// The bytes of a regular file: mapped read-only, or without `mmap` read into memory.
///
/// # Errors
/// One line with the path: missing, a directory, not a regular file, not readable.
pub fn open_bytes(path: impl AsRef<Path>, mmap: bool) -> Result<Bytes, OpenError> {
    let path = path.as_ref();
    let shown = || path.to_owned();
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() != Io::NotFound => {
            return Err(OpenError::Open { path: shown(), error: e });
        }
        Err(_) if path.is_symlink() => return Err(OpenError::DanglingLink { path: shown() }),
        Err(_) => return Err(OpenError::Missing { path: shown() }),
    };
    if meta.is_dir() {
        return Err(OpenError::Directory { path: shown() });
    }
    if !meta.is_file() {
        return Err(OpenError::NotRegular { path: shown() });
    }
    let file = File::open(path).map_err(|error| OpenError::Open { path: shown(), error })?;
    if mmap && meta.len() > 0 {
        // SAFETY: the map is read-only, and no code of this process writes to the file it maps. That no other process
        // cuts the file short meanwhile cannot be checked; like every program that maps its model we rely on it, the
        // documentation of `OpenOptions::mmap` says so, and reading the file instead is there for who cannot.
        let map = unsafe { Mmap::map(&file) }.map_err(|error| OpenError::Map { path: shown(), error })?;
        let source = SourceFile::new(file).map_err(|error| OpenError::Read { path: shown(), error })?;
        return Ok(Arc::new(Mapped { map, source }));
    }
    // Of a file that grows meanwhile no more is read than it had.
    match read_up_to(file.take(meta.len()), meta.len(), meta.len()) {
        Ok(bytes) => Ok(Arc::new(bytes)),
        Err(error) if error.kind() == Io::OutOfMemory => Err(OpenError::TooLarge { path: shown() }),
        Err(error) => Err(OpenError::Read { path: shown(), error }),
    }
}

/// A mapped file.
struct Mapped {
    map: Mmap,
    source: SourceFile,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

impl ByteStore for Mapped {
    fn file(&self) -> Option<&SourceFile> {
        Some(&self.source)
    }

    fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        {
            // Whole pages inside the range; the pages at its ends belong to the neighbours too.
            const PAGE: usize = 1 << 16;
            let start = range.start.next_multiple_of(PAGE);
            let len = (range.end / PAGE * PAGE).saturating_sub(start);
            if len > 0 {
                // SAFETY: dropping pages of this map loses nothing, because the map is read-only and backed by the
                // file: a page that is touched again is read again, with the same bytes. Failure changes nothing.
                let _ = unsafe { self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, len) };
            }
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    fn need(&self, range: Range<usize>) {
        // Failure changes nothing.
        #[cfg(unix)]
        let _ = self.map.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
        #[cfg(not(unix))]
        let _ = range;
    }
}
