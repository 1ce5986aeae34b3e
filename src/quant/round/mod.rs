//! Tensors that are copied, or encoded row by row.
//!
//! Tensors are cut into chunks of half a megabyte. Every thread takes the next chunk, reads it, converts
//! it and writes the result to its place in the file, all within its core's cache: so all cores work from
//! the first chunk to the last, and while one waits for a file the others go on. A chunk is a few rows,
//! whatever the size of the tensor, and each row is encoded on its own: the bytes do not depend on the
//! number of threads.

mod convert;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

pub use convert::RowFault;
use convert::{Converter, Scratch};

use super::encoder::Encoder;
use super::imatrix::Importance;
use super::plan::{Draft, Fault, Method, Plan};
use super::row::{ROUNDING, Row};
use super::source::{Cut, ShardReader};
use super::ternary::{Loss, NotTernary, TernaryReport, is_ternary_type};
use super::work::{Output, Run, RunError, RunOptions};

/// Bytes of the output after which what was written is brought to the disk, so that less is left in the end.
const SYNC_BYTES: u64 = 1 << 26;

/// The news of one chunk: its tensor among those of the batch, how many bytes were read and written.
struct ChunkDone {
    tensor: usize,
    read: u64,
    written: u64,
}

/// Copies tensors, or encodes them row by row.
#[derive(Debug, Default)]
pub struct Rounding {
    encoder: Encoder,
    importance: Option<Importance>,
    report: TernaryReport,
}

/// Tensors one after the other whose chunks the threads share.
struct Batch<'a> {
    rows: &'a [Row],
    options: &'a RunOptions,
    readers: &'a [ShardReader],
    outputs: Vec<Output<'a>>,
    measure_only: &'a AtomicBool,
    tensors: Vec<(Cut, Converter<'a>)>,
    /// Chunks up to and with each tensor.
    ends: Vec<u64>,
    next: AtomicU64,
    /// The error of the first chunk that failed.
    error: Mutex<Option<(u64, RunError)>>,
    losses: Mutex<Vec<(u64, Loss)>>,
}

impl Rounding {
    pub(super) fn new(encoder: Encoder, importance: Option<&Importance>) -> Rounding {
        Rounding { encoder, importance: importance.cloned(), report: TernaryReport::default() }
    }

    /// The report about tensors that were made ternary.
    pub fn report(&self) -> &TernaryReport {
        &self.report
    }

    /// Encoder that rounds rows.
    pub fn encoder(&self) -> Encoder {
        self.encoder
    }
}

impl Method for Rounding {
    fn name(&self) -> &'static str {
        ROUNDING
    }

    /// The rows that nobody takes are its own.
    fn plan(&mut self, _: &mut Draft<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn begin(&mut self, _: &Plan, _: &mut Run<'_>) -> Result<(), Fault> {
        self.report = TernaryReport::default();
        Ok(())
    }

    fn make(&mut self, rows: Range<usize>, plan: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        let Rounding { encoder, importance, report } = self;
        let first = rows.start;
        let own = &plan.rows[rows.clone()];
        let tensors = own.iter().map(|row| {
            let importance = importance.as_ref().filter(|_| row.weighted);
            let importance = importance.and_then(|w| w.get(&row.source.name));
            (Cut::of(row), Converter::new(row, importance, *encoder, run.options.isa))
        });
        let tensors: Vec<_> = tensors.collect();
        let mut chunks = 0;
        let ends = tensors.iter().map(|(cut, _)| {
            chunks += cut.chunks();
            chunks
        });
        let (files, places) = (&run.files, &run.places);
        let batch = Batch {
            rows: own,
            options: &run.options,
            readers: run.readers,
            outputs: places[rows].iter().map(|&place| Output::of(files, place)).collect(),
            measure_only: &run.measure_only,
            ends: ends.collect(),
            tensors,
            next: AtomicU64::new(0),
            error: Mutex::new(None),
            losses: Mutex::new(Vec::new()),
        };
        let (pool, news) = (run.pool, &mut run.news);
        pool.in_place_scope(|scope| {
            let (tell, told) = channel();
            for _ in 0..pool.current_num_threads() {
                let (tell, batch) = (tell.clone(), &batch);
                scope.spawn(move |_| batch.take_chunks(&tell));
            }
            drop(tell);
            let mut unsynced = 0;
            for ChunkDone { tensor, read, written } in told {
                news.tell(|i| &plan.rows[i].name, first + tensor, read);
                unsynced += written;
                if unsynced >= SYNC_BYTES {
                    unsynced = 0;
                    if let Err(error) = batch.outputs[tensor].sync() {
                        batch.fail(u64::MAX, error);
                    }
                }
            }
        });
        let error = batch.error.into_inner();
        if let Some((_, error)) = error.unwrap_or_else(PoisonError::into_inner) {
            return Err(error.into());
        }
        let losses = batch.losses.into_inner();
        let mut losses = losses.unwrap_or_else(PoisonError::into_inner);
        // In order, so that sums of floats come out the same whoever computed them.
        losses.sort_by_key(|(i, _)| *i);
        for (i, loss) in losses {
            let row = &own[batch.ends.partition_point(|&end| end <= i)];
            report.add(row, loss);
        }
        Ok(())
    }

    fn end(&mut self, _: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        match run.options.force || self.report.worst().is_none() {
            true => Ok(()),
            false => Err(NotTernary(self.report.clone()).into()),
        }
    }
}

impl Batch<'_> {
    fn chunks(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The tensor that chunk `i` belongs to, and its number there.
    fn locate(&self, i: u64) -> (usize, u64) {
        let tensor = self.ends.partition_point(|&end| end <= i);
        let before = tensor.checked_sub(1).map_or(0, |t| self.ends[t]);
        (tensor, i - before)
    }

    /// Chunks are taken in order, so that all before the first that fails have been taken and end.
    fn fail(&self, i: u64, error: RunError) {
        self.next.fetch_max(self.chunks(), Ordering::Relaxed);
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|(at, _)| i < *at) {
            *first = Some((i, error));
        }
    }

    /// The work of each thread.
    fn take_chunks(&self, tell: &Sender<ChunkDone>) {
        let (mut buffer, mut scratch) = (Vec::new(), Scratch::default());
        let mut losses = Vec::new();
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            if i >= self.chunks() {
                break;
            }
            match self.do_chunk(i, &mut buffer, &mut scratch) {
                Ok((done, loss)) => {
                    losses.extend(loss.map(|loss| (i, loss)));
                    // Nobody listens when the caller has panicked, which ends the work all the same.
                    let _ = tell.send(done);
                }
                Err(error) => self.fail(i, error),
            }
        }
        let mut all = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        all.append(&mut losses);
    }

    fn do_chunk(
        &self,
        i: u64,
        buffer: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(ChunkDone, Option<Loss>), RunError> {
        let (tensor, number) = self.locate(i);
        let (cut, converter) = &self.tensors[tensor];
        let (chunk, row) = (cut.chunk(number), &self.rows[tensor]);
        let mut done = ChunkDone { tensor, read: chunk.from_bytes as u64, written: 0 };
        let measured = row.converts() && is_ternary_type(row.to);
        if self.measure_only.load(Ordering::Relaxed) && !measured {
            return Ok((done, None));
        }
        let reader = &self.readers[row.source.shard];
        let data = reader.read_chunk(row, chunk.from, chunk.from_bytes, buffer)?;
        let converted = converter.convert(chunk, data, scratch, &self.options.cancel);
        let (bytes, loss) = converted.map_err(|fault| fault.of(row))?;
        if loss.is_some_and(|loss| !loss.is_lossless()) && !self.options.force {
            self.measure_only.store(true, Ordering::Relaxed);
        }
        if !self.measure_only.load(Ordering::Relaxed) {
            self.outputs[tensor].write(chunk.to, bytes)?;
            done.written = bytes.len() as u64;
        }
        Ok((done, loss))
    }
}
