//! Carries out a plan: reads, converts and writes in chunks, three stages at once.
//!
//! One thread reads chunks of whole rows, a pool decodes and encodes the rows of a chunk, one thread
//! writes. A few chunks are in memory, never a tensor, whatever its size. The bytes do not depend on the
//! number of threads: every row is encoded on its own.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use thiserror::Error;
use trine_formats::gguf::write::{Layout, NewTensor, WriteError, Writer};
use trine_formats::gguf::{GgufError, ModelFile, Value, split};
use trine_formats::types::TypeId;
use trine_formats::types::ternary::TernaryError;

use crate::kernels::Isa;

use super::convert::{Converter, RowFault};
use super::lossless::{CarryFault, MoveReport, carry};
use super::plan::{Plan, PlanError, Row};
use super::source::{Chunk, ReadError, ShardReader};
use super::ternary::{TensorLoss, TernaryReport, is_ternary_type};

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Instruction set of the codecs; changes no bit.
    pub isa: Isa,
    /// Threads that convert; 0: one per processor.
    pub threads: usize,
    /// Go on when tensors made ternary were not.
    pub force: bool,
}

/// Is told how far the work is.
pub trait Progress {
    /// `index` counts from 0.
    fn tensor(&mut self, index: usize, row: &Row);
    /// So many more bytes of the input are done.
    fn advance(&mut self, bytes: u64);
}

/// No news.
impl Progress for () {
    fn tensor(&mut self, _: usize, _: &Row) {}
    fn advance(&mut self, _: u64) {}
}

/// What was done.
#[derive(Debug)]
pub struct Report {
    /// The files written.
    pub files: Vec<PathBuf>,
    /// Their size, headers included.
    pub file_bytes: u64,
    /// What became of ternary tensors.
    pub ternary: TernaryReport,
    /// What became of weights that were ternary before and were moved.
    pub moves: MoveReport,
}

/// Why no file was written.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
pub enum QuantError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("the output cannot be laid out")]
    Layout(#[from] GgufError),
    #[error(
        "general.alignment is {0}, and llama-quantize places tensors at multiples of 32 all the same, which makes a damaged file; add --override-kv general.alignment=int:32"
    )]
    Alignment(u64),
    #[error(
        "tensor {tensor}: the input holds {what} in block {block} (type {ty}); the model is damaged"
    )]
    BadInput {
        tensor: String,
        ty: TypeId,
        block: u64,
        what: &'static str,
    },
    #[error(
        "tensor {tensor}: {what} in block {block} of the result (type {ty}); its weights are too large for the type, choose another with --tensor-type"
    )]
    BadOutput {
        tensor: String,
        ty: TypeId,
        block: u64,
        what: &'static str,
    },
    #[error("{0}; use a model that was trained to be ternary, or accept the loss with --force")]
    NotTernary(TernaryReport),
    #[error("{0}; choose a type that can hold them, or accept the change with --force")]
    NotExact(MoveReport),
    #[error("tensor {tensor}: {fault}")]
    Ternary { tensor: String, fault: TernaryError },
    #[error("tensor {tensor}: its scale is {scale}; the model is damaged")]
    Scale { tensor: String, scale: f32 },
    #[error("tensor {tensor}: {ty} cannot be converted")]
    Codec { tensor: String, ty: TypeId },
    #[error("cannot start {threads} threads: {why}")]
    Threads { threads: usize, why: String },
}

/// The files that a plan makes for the path `out`: with `--keep-split` their names are numbered.
pub fn output_paths(plan: &Plan, out: &Path) -> Vec<PathBuf> {
    if !plan.keep_split {
        return vec![out.to_owned()];
    }
    let prefix = out.to_string_lossy();
    let prefix = prefix.strip_suffix(".gguf").unwrap_or(&prefix);
    let count = plan.shards.len() as u32;
    (0..count)
        .map(|no| split::shard_path(prefix, no, count))
        .collect()
}

/// Carries out `plan` for the model it was made from. The files appear under their names when all of
/// them are complete; until then, and after any error, what was there stays.
///
/// # Errors
/// Problems of the plan, I/O, values that are not finite, ternary types for what is not ternary.
pub fn run(
    model: &ModelFile,
    plan: &Plan,
    out: &Path,
    options: RunOptions,
    progress: &mut dyn Progress,
) -> Result<Report, QuantError> {
    plan.check()?;
    let layouts = plan
        .shards
        .iter()
        .map(|s| layout(plan, s))
        .collect::<Result<Vec<_>, _>>()?;
    let file_bytes = layouts.iter().map(Layout::file_bytes).sum();
    let files = output_paths(plan, out);
    let inputs: Vec<&Path> = model.shards().iter().map(|s| s.path.as_path()).collect();
    let mut writers = Vec::with_capacity(files.len());
    for (path, layout) in files.iter().zip(layouts) {
        writers.push(Writer::create(path, layout, &inputs)?);
    }
    let readers = model
        .shards()
        .iter()
        .map(ShardReader::open)
        .collect::<Result<Vec<_>, ReadError>>()?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .build()
        .map_err(|e| QuantError::Threads {
            threads: options.threads,
            why: e.to_string(),
        })?;

    let measure_only = AtomicBool::new(false);
    let ((ternary, moves), writers) = thread::scope(|scope| {
        let (to_convert, chunks) = sync_channel(2);
        let (to_write, converted) = sync_channel(2);
        let reader = scope.spawn(|| read_all(plan, readers, to_convert, &measure_only));
        let writer = scope.spawn(move || write_all(plan, writers, converted));
        let work = Work {
            plan,
            pool: &pool,
            options,
            measure_only: &measure_only,
        };
        let ternary = work.convert_all(chunks, to_write, progress);
        // The stages before and after end when their channels do. A failed write shows here as an
        // early end, and a failed read as a file that is not whole: the cause comes first.
        let written = join(writer);
        join(reader)?;
        Ok::<_, QuantError>((ternary?, written?))
    })?;
    if !options.force && ternary.worst().is_some() {
        return Err(QuantError::NotTernary(ternary));
    }
    if !options.force && !moves.is_exact() {
        return Err(QuantError::NotExact(moves));
    }
    for writer in writers {
        writer.finish()?;
    }
    Ok(Report {
        files,
        file_bytes,
        ternary,
        moves,
    })
}

pub(super) fn join<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The header of one output file. ggml's writer knows no alignment but 32.
fn layout(plan: &Plan, shard: &super::plan::OutShard) -> Result<Layout, QuantError> {
    let tensors: Vec<NewTensor> = plan.rows[shard.rows.clone()]
        .iter()
        .map(|r| NewTensor {
            name: r.name.clone(),
            shape: r.shape.clone(),
            ty: r.to,
            bytes: Some(r.bytes),
        })
        .collect();
    let layout = Layout::new(&shard.meta, &tensors)?;
    let alignment = shard.meta.get_u64("general.alignment")?.unwrap_or(32);
    if alignment != 32 {
        let mut meta = shard.meta.clone();
        meta.set("general.alignment", Value::U32(32));
        let usual = Layout::new(&meta, &tensors)?;
        let same = usual.header().len() == layout.header().len()
            && usual.tensors() == layout.tensors()
            && usual.file_bytes() == layout.file_bytes();
        if !same {
            return Err(QuantError::Alignment(alignment));
        }
    }
    Ok(layout)
}

/// First stage: chunks of all tensors in order; of ternary ones only when the rest is of no use.
fn read_all(
    plan: &Plan,
    mut readers: Vec<ShardReader>,
    to_convert: SyncSender<(usize, Chunk)>,
    measure_only: &AtomicBool,
) -> Result<(), QuantError> {
    for (index, row) in plan.rows.iter().enumerate() {
        for mut chunk in Chunk::split(row) {
            let measured = row.moves.is_some() || (row.converts() && is_ternary_type(row.to));
            if measure_only.load(Ordering::Relaxed) && !measured {
                break;
            }
            readers[row.source.shard].read(row, &mut chunk)?;
            if to_convert.send((index, chunk)).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Last stage: the bytes of all tensors in order, each file in turn.
fn write_all(
    plan: &Plan,
    mut writers: Vec<Writer>,
    converted: Receiver<(usize, Vec<u8>)>,
) -> Result<Vec<Writer>, QuantError> {
    let mut shard = 0;
    for (index, bytes) in converted {
        while !plan.shards[shard].rows.contains(&index) {
            shard += 1;
        }
        writers[shard].write(&bytes)?;
    }
    Ok(writers)
}

struct Work<'a> {
    plan: &'a Plan,
    pool: &'a rayon::ThreadPool,
    options: RunOptions,
    measure_only: &'a AtomicBool,
}

impl Work<'_> {
    /// Middle stage. Returns early, without an error of its own, when the writer has given up.
    fn convert_all(
        &self,
        chunks: Receiver<(usize, Chunk)>,
        to_write: SyncSender<(usize, Vec<u8>)>,
        progress: &mut dyn Progress,
    ) -> Result<(TernaryReport, MoveReport), QuantError> {
        let mut report = TernaryReport::default();
        let mut moves = MoveReport::default();
        let mut to_write = Some(to_write);
        let mut current = None;
        for (index, chunk) in chunks {
            let row = &self.plan.rows[index];
            if current.replace(index) != Some(index) {
                progress.tensor(index, row);
            }
            let importance = self
                .plan
                .importance
                .get(&row.source.name)
                .map(Vec::as_slice);
            let read = chunk.data.len() as u64;
            let (bytes, loss) = if let Some(how) = row.moves {
                let carried = self.pool.install(|| carry(row, how, &chunk.data));
                let (bytes, moved) = carried.map_err(|fault| blame_move(row, fault))?;
                moves.tensors.push(moved);
                if !self.options.force && !moves.is_exact() {
                    self.measure_only.store(true, Ordering::Relaxed);
                    to_write = None;
                }
                (bytes, None)
            } else {
                let converter = Converter::new(row, importance, self.options.isa);
                self.pool
                    .install(|| converter.convert(chunk))
                    .map_err(|fault| blame(row, fault))?
            };
            if let Some(loss) = loss {
                match report.tensors.last_mut() {
                    Some(last) if last.name == row.name => last.loss.add(&loss),
                    _ => report.tensors.push(TensorLoss {
                        name: row.name.clone(),
                        ty: row.to,
                        loss,
                    }),
                }
                if !self.options.force && !loss.is_lossless() {
                    // nothing will be kept: only find out how bad it is
                    self.measure_only.store(true, Ordering::Relaxed);
                    to_write = None;
                }
            }
            if let Some(send) = &to_write
                && send.send((index, bytes)).is_err()
            {
                break;
            }
            progress.advance(read);
        }
        Ok((report, moves))
    }
}

fn blame_move(row: &Row, fault: CarryFault) -> QuantError {
    let tensor = row.name.clone();
    match fault {
        CarryFault::Row(fault) => blame(row, fault),
        CarryFault::Ternary(fault) => QuantError::Ternary { tensor, fault },
        CarryFault::Scale(scale) => QuantError::Scale { tensor, scale },
        CarryFault::Codec(ty) => QuantError::Codec { tensor, ty },
    }
}

fn blame(row: &Row, fault: RowFault) -> QuantError {
    let tensor = row.name.clone();
    match fault {
        RowFault::Input { block, what } => QuantError::BadInput {
            tensor,
            ty: row.from,
            block,
            what,
        },
        RowFault::Output { block, what } => QuantError::BadOutput {
            tensor,
            ty: row.to,
            block,
            what,
        },
    }
}
