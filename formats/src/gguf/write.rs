//! Writes GGUF files: a plan first, then the data in order, and the file appears under its name only
//! when it is whole.
//!
//! Everything goes to a [temporary file](crate::temp_file) beside the target that is synced and renamed at the end;
//! an unfinished [`Writer`] removes it when dropped.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use super::layout::{Layout, NewTensor, ggml_shape};
use crate::file_id::{follow, is_same_file};
use crate::temp_file::{CreateError, TempFile};

/// Why a file could not be written.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Debug, Error)]
pub enum WriteError {
    #[error("cannot {action} '{path}'")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "cannot write '{path}': the disk is full, the file needs {need} bytes in all; free some space or write elsewhere"
    )]
    DiskFull { path: PathBuf, need: u64 },
    #[error("cannot write '{0}': it is a directory; give the name of a file")]
    Directory(PathBuf),
    #[error("cannot write '{0}': it exists and is not a regular file")]
    NotAFile(PathBuf),
    #[error("cannot write '{0}': the directory it should lie in does not exist")]
    NoDirectory(PathBuf),
    #[error("cannot write '{0}': it is also the input; give another name for the output")]
    IsInput(PathBuf),
    #[error("tensor '{expected}' comes next in the file, not '{found}'")]
    Order { expected: String, found: String },
    #[error("tensor '{name}' takes {expected} bytes, {found} were given")]
    Length { name: String, expected: u64, found: u64 },
    #[error("{0} bytes were given after the last tensor")]
    TooMuch(u64),
    #[error("tensor '{name}' has no bytes {start}..{end}")]
    Outside { name: String, start: u64, end: u64 },
    #[error("the header that was planned and the one to be written differ in more than values")]
    OtherHeader,
    #[error("the file is not whole: tensor '{name}' lacks {missing} of its bytes")]
    Unfinished { name: String, missing: u64 },
}

impl WriteError {
    /// The error of `action` on the file at `path`, which takes `need` bytes in all.
    pub(super) fn io(action: &'static str, path: &Path, need: u64, source: io::Error) -> WriteError {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => WriteError::DiskFull { path, need },
            _ => WriteError::Io { action, path, source },
        }
    }
}

impl From<CreateError> for WriteError {
    fn from(e: CreateError) -> WriteError {
        WriteError::Io { action: "create", path: e.path, source: e.source }
    }
}

/// Writes one file tensor by tensor, in the order of its [`Layout`].
pub struct Writer {
    out: BufWriter<File>,
    temp: TempFile,
    target: PathBuf,
    layout: Layout,
    /// The tensor that is being written.
    current: usize,
    /// Bytes of it that are written.
    written: u64,
}

impl Writer {
    /// Starts the file `target`, which must be none of `inputs`, under a temporary name.
    ///
    /// # Errors
    /// A target that is a directory, a device, in no directory, an input, or not writable.
    pub fn create(target: &Path, layout: Layout, inputs: &[&Path]) -> Result<Writer, WriteError> {
        let target = check_target(target, inputs)?;
        let (temp, file) = TempFile::create(&target)?;
        let out = BufWriter::with_capacity(1 << 20, file);
        let mut writer = Writer { out, temp, target, layout, current: 0, written: 0 };
        writer.out.write_all(writer.layout.header()).map_err(|e| writer.failed("write", e))?;
        writer.skip_complete()?;
        Ok(writer)
    }

    /// The tensor that is to be written next, or whose rest is.
    pub fn next_tensor(&self) -> Option<&super::TensorInfo> {
        self.layout.tensors().get(self.current)
    }

    /// Writes the next tensor whole. `name` is checked against the plan.
    ///
    /// # Errors
    /// The wrong tensor or the wrong number of bytes; I/O.
    pub fn tensor(&mut self, name: &str, data: &[u8]) -> Result<(), WriteError> {
        let planned = self.layout.tensors().iter().find(|t| t.name == name);
        if planned.is_some_and(|t| t.bytes == 0) && data.is_empty() {
            return Ok(());
        }
        let Some(next) = self.next_tensor() else {
            return Err(WriteError::TooMuch(data.len() as u64));
        };
        if next.name != name || self.written > 0 {
            return Err(WriteError::Order { expected: next.name.clone(), found: name.to_owned() });
        }
        if next.bytes != data.len() as u64 {
            let (name, expected) = (next.name.clone(), next.bytes);
            return Err(WriteError::Length { name, expected, found: data.len() as u64 });
        }
        self.write(data)
    }

    /// Writes the next bytes of the current tensor; they must not reach past its end.
    ///
    /// # Errors
    /// More bytes than the tensor has; I/O.
    pub fn write(&mut self, data: &[u8]) -> Result<(), WriteError> {
        if data.is_empty() {
            return Ok(());
        }
        let Some(next) = self.next_tensor() else {
            return Err(WriteError::TooMuch(data.len() as u64));
        };
        let total = self.written + data.len() as u64;
        if total > next.bytes {
            return Err(WriteError::Length { name: next.name.clone(), expected: next.bytes, found: total });
        }
        self.put(data)?;
        self.written = total;
        self.skip_complete()
    }

    /// Pads and steps over every tensor that has all its bytes.
    fn skip_complete(&mut self) -> Result<(), WriteError> {
        while let Some(t) = self.layout.tensors().get(self.current)
            && t.bytes == self.written
        {
            let padding = self.layout.padding(self.written) as usize;
            self.put(&vec![0; padding])?;
            self.current += 1;
            self.written = 0;
        }
        Ok(())
    }

    /// Checks that every tensor is there, syncs the file to disk and gives it its name. Returns the size.
    ///
    /// # Errors
    /// Missing data; I/O. The target is untouched then.
    pub fn finish(mut self) -> Result<u64, WriteError> {
        if let Some(t) = self.next_tensor() {
            return Err(WriteError::Unfinished { name: t.name.clone(), missing: t.bytes - self.written });
        }
        let synced = self.out.flush().and_then(|()| self.out.get_ref().sync_all());
        synced.map_err(|e| self.failed("write", e))?;
        let (target, need) = (self.target, self.layout.file_bytes());
        self.temp.keep(&target).map_err(|e| WriteError::io("rename the finished file to", &target, need, e))?;
        Ok(need)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.out.write_all(bytes).map_err(|e| self.failed("write", e))
    }

    fn failed(&self, action: &'static str, source: io::Error) -> WriteError {
        WriteError::io(action, &self.target, self.layout.file_bytes(), source)
    }
}

/// The path to replace: links are followed, so that the link stays and the file behind it changes or comes to be.
pub(super) fn check_target(target: &Path, inputs: &[&Path]) -> Result<PathBuf, WriteError> {
    let failed = |source| WriteError::Io { action: "write", path: target.to_owned(), source };
    let path = follow(target).map_err(failed)?;
    let meta = match fs::metadata(&path) {
        Ok(meta) => meta,
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
        Err(_) => {
            if path.file_name().is_none() {
                return Err(WriteError::Directory(target.to_owned()));
            }
            let dir = path.parent().filter(|d| !d.as_os_str().is_empty());
            if dir.is_some_and(|d| !d.is_dir()) {
                return Err(WriteError::NoDirectory(target.to_owned()));
            }
            return Ok(path);
        }
    };
    if meta.is_dir() {
        return Err(WriteError::Directory(target.to_owned()));
    }
    if !meta.is_file() {
        return Err(WriteError::NotAFile(target.to_owned()));
    }
    if inputs.iter().any(|input| is_same_file(&path, input)) {
        return Err(WriteError::IsInput(target.to_owned()));
    }
    Ok(path)
}
