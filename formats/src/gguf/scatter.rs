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
    pub fn create(
        target: &Path,
        layout: Layout,
        inputs: &[&Path],
    ) -> Result<ScatterWriter, WriteError> {
        let target = check_target(target, inputs)?;
        let (temp, file) = TempFile::create(&target)?;
        let need = layout.file_bytes();
        file.set_len(need) // what is not written is zero: all padding
            .map_err(|e| WriteError::io("write", &target, need, e))?;
        let tensors = layout.tensors().iter();
        let missing = tensors.map(|t| AtomicU64::new(t.bytes)).collect();
        Ok(ScatterWriter {
            file: file.into(),
            temp,
            target,
            layout,
            missing,
        })
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
        let outside = |end| WriteError::Outside {
            name: tensor.name.clone(),
            start,
            end,
        };
        let end = start.saturating_add(len);
        if end > tensor.bytes {
            return Err(outside(end));
        }
        let place = self.layout.header().len() as u64 + tensor.offset + start;
        // Only the number of bytes is shared: a thread that finishes the file has waited for the others.
        let missing = &self.missing[index];
        missing
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |m| m.checked_sub(len))
            .map_err(|_| outside(end))?;
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

    /// Writes the header of `layout`, which has the same tensors in the same places as that of the start
    /// but perhaps other values, syncs the file and gives it its name. Returns the size.
    ///
    /// # Errors
    /// Missing data; another layout; I/O. The target is untouched then.
    pub fn finish(self, layout: &Layout) -> Result<u64, WriteError> {
        for (tensor, missing) in self.layout.tensors().iter().zip(&self.missing) {
            let missing = missing.load(Ordering::Relaxed);
            if missing > 0 {
                let name = tensor.name.clone();
                return Err(WriteError::Unfinished { name, missing });
            }
        }
        if layout.header().len() != self.layout.header().len()
            || layout.tensors() != self.layout.tensors()
        {
            return Err(WriteError::OtherHeader);
        }
        self.file
            .write_all_at(layout.header(), 0)
            .and_then(|()| self.file.file().sync_all())
            .map_err(|e| self.failed("write", e))?;
        let (target, need) = (self.target, self.layout.file_bytes());
        self.temp
            .keep(&target)
            .map_err(|e| WriteError::io("rename the finished file to", &target, need, e))?;
        Ok(need)
    }

    fn failed(&self, action: &'static str, source: io::Error) -> WriteError {
        WriteError::io(action, &self.target, self.layout.file_bytes(), source)
    }
}
