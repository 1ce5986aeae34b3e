//! The runner of all methods. A [`Method`] is a plan and makes tensors; threads, the files that are read and written,
//! and the news of how far it is are the same for all.

use std::path::{Path, PathBuf};

use rayon::{ThreadPool, ThreadPoolBuilder};
use thiserror::Error;
use trine_formats::gguf::write::{Layout, WriteError};
use trine_formats::gguf::{Complete, GgufError, ModelFile, ScatterWriter};
use trine_formats::types::TypeId;

use super::source::{ReadError, ShardReader};
use crate::kernels::Isa;

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Threads that convert; 0: one per processor.
    pub threads: usize,
    /// Go on when tensors made ternary were not.
    pub force: bool,
    /// Instruction set of the codecs; the bytes do not depend on it.
    pub isa: Isa,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions { threads: 0, force: false, isa: Isa::detect() }
    }
}

/// Is told how far the work is.
pub trait Progress: Send {
    /// Work on row number `index` of the plan begins, which makes tensor `name`.
    fn tensor(&mut self, index: usize, name: &str);
    /// So many more bytes of [`Method::work`] are done.
    fn advance(&mut self, bytes: u64);
}

/// No news.
impl Progress for () {
    fn tensor(&mut self, _: usize, _: &str) {}
    fn advance(&mut self, _: u64) {}
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
}

/// A method of quantizing, planned for a model from its headers alone.
pub trait Method {
    /// What was done.
    type Report;
    /// Why it could not be done.
    type Error: From<RunError>;

    /// Bytes of the input that are gone through.
    fn work(&self) -> u64;

    /// Makes all tensors, and the files that they go to with [`Run::create`].
    ///
    /// # Errors
    /// What the runner cannot know.
    fn make(self, run: &mut Run<'_>) -> Result<Self::Report, Self::Error>;
}

/// What a method works with.
pub struct Run<'a> {
    /// The model.
    pub model: &'a ModelFile,
    /// How to run.
    pub options: RunOptions,
    /// The threads. The method is called by none of them.
    pub pool: &'a ThreadPool,
    /// The files of the model.
    pub readers: &'a [ShardReader],
    /// What is asked for: the output, or what the names of several are made of.
    pub out: &'a Path,
    /// The outputs.
    pub files: Vec<File>,
    /// Who is told how far the work is.
    pub news: News<'a>,
}

/// A file that is written.
pub struct File {
    /// Its header and the places of its tensors. The values of the header can be replaced until the method is done.
    pub layout: Layout,
    /// Takes the data.
    pub writer: ScatterWriter,
}

/// Tells a [`Progress`] how far the threads are, each tensor once and in order.
pub struct News<'a> {
    /// The listener.
    pub progress: &'a mut dyn Progress,
    announced: usize,
}

impl News<'_> {
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
    /// Starts an output, which must be no file of the model and none of `others`.
    ///
    /// # Errors
    /// I/O; an output that is an input.
    pub fn create(&mut self, path: &Path, layout: Layout, others: &[PathBuf]) -> Result<(), RunError> {
        let shards = self.model.shards().iter().map(|s| s.path.as_path());
        let inputs: Vec<&Path> = shards.chain(others.iter().map(PathBuf::as_path)).collect();
        let writer = ScatterWriter::create(path, layout.clone(), &inputs)?;
        self.files.push(File { layout, writer });
        Ok(())
    }
}

/// Carries out a plan for the model it was made from. The files appear under their names when all of them are complete;
/// until then, and after any error, what was there stays. The bytes depend on no option.
///
/// # Errors
/// I/O; a model that changed meanwhile; what the method says.
pub fn run<M: Method>(
    model: &ModelFile,
    method: M,
    out: &Path,
    options: RunOptions,
    progress: &mut dyn Progress,
) -> Result<M::Report, M::Error> {
    let threads = options.threads;
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|e| RunError::Threads { threads, why: e.to_string() })?;
    let readers: Vec<ShardReader> = model.shards().iter().map(ShardReader::new).collect();
    let news = News { progress, announced: 0 };
    let mut run = Run { model, options, pool: &pool, readers: &readers, out, files: Vec::new(), news };
    let report = method.make(&mut run)?;
    readers.iter().try_for_each(ShardReader::unchanged).map_err(RunError::from)?;
    let complete = run.files.into_iter().map(|file| file.writer.complete(&file.layout));
    let complete = complete.collect::<Result<_, _>>().and_then(Complete::keep_all);
    complete.map_err(RunError::from)?;
    Ok(report)
}
