//! Writes a GGUF file whose tensors come in another order than they lie in, a piece of each at a time.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::layout::Layout;
use super::write::{TempFile, WriteError, check_target};

/// Writes one file at any places of its [`Layout`], every byte once. The header comes last, so that its
/// values may be found out on the way.
///
/// Like [`Writer`](super::write::Writer) it works on a temporary file beside the target, which goes away
/// unless the file is finished.
pub struct ScatterWriter {
    file: File,
    temp: TempFile,
    target: PathBuf,
    layout: Layout,
    /// Bytes that each tensor still lacks.
    missing: Vec<u64>,
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
        let missing = layout.tensors().iter().map(|t| t.bytes).collect();
        Ok(ScatterWriter {
            file,
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
    pub fn write(&mut self, index: usize, start: u64, data: &[u8]) -> Result<(), WriteError> {
        let Some(tensor) = self.layout.tensors().get(index) else {
            return Err(WriteError::TooMuch(data.len() as u64));
        };
        let end = start.saturating_add(data.len() as u64);
        if end > tensor.bytes || data.len() as u64 > self.missing[index] {
            let name = tensor.name.clone();
            return Err(WriteError::Outside { name, start, end });
        }
        let place = self.layout.header().len() as u64 + tensor.offset + start;
        put(&mut self.file, place, data).map_err(|e| self.failed("write", e))?;
        self.missing[index] -= data.len() as u64;
        Ok(())
    }

    /// Writes the header of `layout`, which has the same tensors in the same places as that of the start
    /// but perhaps other values, syncs the file and gives it its name. Returns the size.
    ///
    /// # Errors
    /// Missing data; another layout; I/O. The target is untouched then.
    pub fn finish(mut self, layout: &Layout) -> Result<u64, WriteError> {
        if let Some(i) = self.missing.iter().position(|&m| m > 0) {
            return Err(WriteError::Unfinished {
                name: self.layout.tensors()[i].name.clone(),
                missing: self.missing[i],
            });
        }
        if layout.header().len() != self.layout.header().len()
            || layout.tensors() != self.layout.tensors()
        {
            return Err(WriteError::OtherHeader);
        }
        put(&mut self.file, 0, layout.header())
            .and_then(|()| self.file.sync_all())
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

fn put(file: &mut File, place: u64, data: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(place))?;
    file.write_all(data)
}
