//! Writes a GGUF file whose tensors come in another order than they lie in, a chunk of each at a time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::file::SharedFile;
use super::layout::Layout;
use super::write::{WriteError, check_target};
use crate::temp_file::TempFile;

/// Writes one file at any places of its [`Layout`], every byte once, from any number of threads. The header
/// comes last, so that its values may be found out on the way.
///
/// Like [`Writer`](super::write::Writer) it works on a temporary file beside the target, which goes away
/// unless the file is finished.
pub struct ScatterWriter {
    file: SharedFile,
    temp: TempFile,
    target: PathBuf,
    layout: Layout,
    /// Bytes that each tensor still lacks.
    missing: Vec<AtomicU64>,
}

impl ScatterWriter {
    /// Starts the file `target`, which must be none of `inputs`, under a temporary name.
    ///
    /// # Errors
    /// A target that is a directory, a device, in no directory, an input, or not writable.
    pub fn create(target: &Path, layout: Layout, inputs: &[&Path]) -> Result<ScatterWriter, WriteError> {
        let target = check_target(target, inputs)?;
        let (temp, file) = TempFile::create(&target)?;
        let need = layout.file_bytes();
        file.set_len(need) // what is not written is zero: all padding
            .map_err(|e| WriteError::io("write", &target, need, e))?;
        let tensors = layout.tensors().iter();
        let missing = tensors.map(|t| AtomicU64::new(t.bytes)).collect();
        Ok(ScatterWriter { file: file.into(), temp, target, layout, missing })
    }

    /// Writes bytes of tensor number `index` from its byte `start` on. The caller writes each byte once.
    ///
    /// # Errors
    /// More bytes than the tensor has; I/O.
    pub fn write(&self, index: usize, start: u64, data: &[u8]) -> Result<(), WriteError> {
        let len = data.len() as u64;
        let Some(tensor) = self.layout.tensors().get(index) else {
            return Err(WriteError::TooMuch(len));
        };
        let outside = |end| WriteError::Outside { name: tensor.name.clone(), start, end };
        let end = start.saturating_add(len);
        if end > tensor.bytes {
            return Err(outside(end));
        }
        let place = self.layout.header().len() as u64 + tensor.offset + start;
        // Only the number of bytes is shared: a thread that finishes the file has waited for the others.
        let missing = &self.missing[index];
        missing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |m| m.checked_sub(len)).map_err(|_| outside(end))?;
        self.file.write_all_at(data, place).map_err(|e| {
            missing.fetch_add(len, Ordering::Relaxed);
            self.failed("write", e)
        })
    }

    /// Brings what was written to the disk, so that less is left to be done in the end. Others may write
    /// meanwhile.
    ///
    /// # Errors
    /// I/O.
    pub fn sync(&self) -> Result<(), WriteError> {
        let synced = self.file.file().sync_data();
        synced.map_err(|e| self.failed("write", e))
    }

    /// [`complete`](ScatterWriter::complete)s the file and gives it its name. Returns the size.
    ///
    /// # Errors
    /// Missing data; another layout; I/O. The target is untouched then.
    pub fn finish(self, layout: &Layout) -> Result<u64, WriteError> {
        let need = layout.file_bytes();
        Complete::keep_all(vec![self.complete(layout)?])?;
        Ok(need)
    }

    /// Writes the header of `layout`, which has the same tensors in the same places as that of the start
    /// but perhaps other values, and syncs the file.
    ///
    /// # Errors
    /// Missing data; another layout; I/O. The target is untouched then.
    pub fn complete(self, layout: &Layout) -> Result<Complete, WriteError> {
        for (tensor, missing) in self.layout.tensors().iter().zip(&self.missing) {
            let missing = missing.load(Ordering::Relaxed);
            if missing > 0 {
                let name = tensor.name.clone();
                return Err(WriteError::Unfinished { name, missing });
            }
        }
        if layout.header().len() != self.layout.header().len() || layout.tensors() != self.layout.tensors() {
            return Err(WriteError::OtherHeader);
        }
        self.file
            .write_all_at(layout.header(), 0)
            .and_then(|()| self.file.file().sync_all())
            .map_err(|e| self.failed("write", e))?;
        Ok(Complete { _open: self.file, temp: self.temp, target: self.target, bytes: self.layout.file_bytes() })
    }

    fn failed(&self, action: &'static str, source: io::Error) -> WriteError {
        WriteError::io(action, &self.target, self.layout.file_bytes(), source)
    }
}

/// A file that has all its bytes and still lacks its name. Dropped, it goes away.
pub struct Complete {
    /// An open file is a locked one: nobody takes it for the remains of a program that was killed.
    _open: SharedFile,
    temp: TempFile,
    target: PathBuf,
    bytes: u64,
}

impl Complete {
    /// Gives all files their names.
    ///
    /// # Errors
    /// I/O.
    pub fn keep_all(files: Vec<Complete>) -> Result<(), WriteError> {
        let bytes = files.iter().map(|f| f.bytes).sum();
        let (_open, named): (Vec<_>, Vec<_>) = files.into_iter().map(|f| (f._open, (f.temp, f.target))).unzip();
        let kept = TempFile::keep_all(named);
        kept.map_err(|(target, e)| WriteError::io("rename the finished file to", &target, bytes, e))
    }
}
