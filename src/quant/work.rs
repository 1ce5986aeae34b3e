//! The surroundings of all methods: threads, the files that are read and written, and the news of how far it is.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::{ThreadPool, ThreadPoolBuilder};
use thiserror::Error;
use trine_formats::gguf::write::{Layout, WriteError};
use trine_formats::gguf::{GgufError, ModelFile, ScatterWriter};
use trine_formats::types::TypeId;

use super::row::Row;
use super::source::{ReadError, ShardReader};
use crate::cancel::CancelToken;
use crate::kernels::Isa;
use crate::progress::Progress;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Threads that convert; 0: one per processor.
    pub threads: usize,
    /// Go on when tensors made ternary were not.
    pub force: bool,
    /// Instruction set of the codecs; the bytes do not depend on it.
    pub isa: Isa,
    /// Ends the work where another thread wants it to; no file is left.
    pub cancel: CancelToken,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions { threads: 0, force: false, isa: Isa::detect(), cancel: CancelToken::new() }
    }
}

impl RunOptions {
    /// The threads that work.
    ///
    /// # Errors
    /// The system does not give as many.
    pub(super) fn pool(&self) -> Result<ThreadPool, RunError> {
        let threads = self.threads;
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        pool.map_err(|e| RunError::Threads { threads, why: e.to_string() })
    }
}

/// Why any method can fail.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum RunError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("the output cannot be laid out")]
    Layout(#[from] GgufError),
    #[error("tensor {tensor}: the input holds {what} in block {block} (type {ty}); the model is damaged")]
    BadInput { tensor: String, ty: TypeId, block: u64, what: &'static str },
    #[error(
        "tensor {tensor}: {what} in block {block} of the result (type {ty}); its weights are too large for the type, choose another with {option}"
    )]
    BadOutput { tensor: String, ty: TypeId, block: u64, what: &'static str, option: &'static str },
    #[error("cannot start {threads} threads: {why}")]
    Threads { threads: usize, why: String },
    /// Somebody asked the work to end.
    #[error("interrupted")]
    Cancelled,
}

/// # Errors
/// [`RunError::Cancelled`] where the work is to end.
pub fn go_on(cancel: &CancelToken) -> Result<(), RunError> {
    if cancel.is_cancelled() { Err(RunError::Cancelled) } else { Ok(()) }
}

/// The surroundings of a method.
pub struct Run<'a> {
    /// The model.
    pub model: &'a ModelFile,
    /// Options of the run.
    pub options: RunOptions,
    /// The threads. Methods are called by none of them.
    pub pool: &'a ThreadPool,
    /// The files of the model.
    pub readers: &'a [ShardReader],
    /// The path that was asked for: the output, or what the names of several are made of.
    pub out: &'a Path,
    /// The outputs.
    pub files: Vec<File>,
    /// The file of each row that is one tensor of the output, and its number there.
    pub places: Vec<(usize, usize)>,
    /// Nothing will be kept: only find out how much is lost.
    pub measure_only: AtomicBool,
    /// Receiver of the progress of the work.
    pub news: News<'a>,
}

/// A file that is written.
pub struct File {
    /// Its header and the places of its tensors. The values of the header can be replaced until the method is done.
    pub layout: Layout,
    /// Takes the data.
    pub writer: ScatterWriter,
    /// Ends the work.
    cancel: CancelToken,
}

/// A tensor of an output.
#[derive(Clone, Copy)]
pub struct Output<'a> {
    file: &'a File,
    tensor: usize,
}

impl<'a> Output<'a> {
    /// The tensor of this file and this number.
    pub fn of(files: &'a [File], (file, tensor): (usize, usize)) -> Output<'a> {
        Output { file: &files[file], tensor }
    }

    /// Writes bytes from `at` on; any thread may.
    ///
    /// # Errors
    /// I/O; the work is to end.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), RunError> {
        go_on(&self.file.cancel)?;
        Ok(self.file.writer.write(self.tensor, at, bytes)?)
    }

    /// Brings what was written to the file to the disk.
    ///
    /// # Errors
    /// I/O.
    pub fn sync(&self) -> Result<(), RunError> {
        Ok(self.file.writer.sync()?)
    }
}

/// Tells a [`Progress`] how far the threads are, each tensor once and in order.
pub struct News<'a> {
    /// The listener.
    pub progress: &'a mut dyn Progress,
    announced: usize,
}

impl News<'_> {
    /// No tensor is told yet.
    pub fn new(progress: &mut dyn Progress) -> News<'_> {
        News { progress, announced: 0 }
    }

    /// `bytes` more are done, which belong to the row of number `index`; `name` knows the names of rows.
    pub fn tell<'n>(&mut self, name: impl Fn(usize) -> &'n str, index: usize, bytes: u64) {
        while self.announced <= index {
            self.progress.tensor(self.announced, name(self.announced));
            self.announced += 1;
        }
        self.progress.advance(bytes);
    }
}

impl Run<'_> {
    /// True if nothing will be kept.
    pub fn only_measures(&self) -> bool {
        self.measure_only.load(Ordering::Relaxed)
    }

    /// The whole data of a row in the input, on all threads.
    ///
    /// # Errors
    /// I/O; the work is to end.
    pub fn read(&self, row: &Row) -> Result<Vec<u8>, RunError> {
        go_on(&self.options.cancel)?;
        Ok(self.readers[row.source.shard].read_whole(row)?)
    }

    /// Where the tensor of row number `index` is written.
    pub fn output(&self, index: usize) -> Output<'_> {
        Output::of(&self.files, self.places[index])
    }

    /// Starts an output, which must be no file of the model and none of `others`.
    ///
    /// # Errors
    /// I/O; an output that is an input.
    pub fn create(&mut self, path: &Path, layout: Layout, others: &[PathBuf]) -> Result<(), RunError> {
        let shards = self.model.shards().iter().map(|s| s.path.as_path());
        let inputs: Vec<&Path> = shards.chain(others.iter().map(PathBuf::as_path)).collect();
        let writer = ScatterWriter::create(path, layout.clone(), &inputs)?;
        self.files.push(File { layout, writer, cancel: self.options.cancel.clone() });
        Ok(())
    }
}
