//! Tensors that are copied, or encoded row by row.
//!
//! Tensors are cut into chunks of half a megabyte. Every thread takes the next chunk, reads it, converts
//! it and writes the result to its place in the file, all within its core's cache: so all cores work from
//! the first chunk to the last, and while one waits for a file the others go on. A chunk is a few rows,
//! whatever the size of the tensor, and each row is encoded on its own: the bytes do not depend on the
//! number of threads.

mod convert;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

pub use convert::RowFault;
use convert::{Converter, Scratch};

use super::encoder::Encoder;
use super::method::{File, Run, RunError, RunOptions};
use super::row::Row;
use super::source::{Cut, ShardReader};
use super::ternary::{Loss, TensorLoss, TernaryReport, is_ternary_type};

/// Bytes of the output after which what was written is brought to the disk, so that less is left in the end.
const SYNC_BYTES: u64 = 1 << 26;

/// What a chunk did: its tensor, how many bytes were read and written.
struct ChunkDone {
    index: usize,
    read: u64,
    written: u64,
}

/// Rows of a plan of which some are copied or encoded.
pub struct Rounding<'a> {
    /// All of them.
    pub rows: &'a [Row],
    /// The file of each, and its number there.
    pub places: &'a [(usize, usize)],
    /// Importance weights by source tensor.
    pub importance: &'a HashMap<String, Vec<f32>>,
    /// How rows are rounded.
    pub encoder: Encoder,
    /// Nothing will be kept: only find out how much is lost.
    pub measure_only: &'a AtomicBool,
}

/// Tensors one after the other whose chunks the threads share.
struct Batch<'a> {
    rounding: &'a Rounding<'a>,
    options: RunOptions,
    readers: &'a [ShardReader],
    files: &'a [File],
    first: usize,
    tensors: Vec<(Cut, Converter<'a>)>,
    /// Chunks up to and with each tensor.
    ends: Vec<u64>,
    next: AtomicU64,
    /// Of the first chunk that failed.
    error: Mutex<Option<(u64, RunError)>>,
    losses: Mutex<Vec<(u64, Loss)>>,
}

impl Rounding<'_> {
    /// Makes neighbouring rows and adds what was lost to `report`.
    ///
    /// # Errors
    /// I/O; values that are not finite.
    pub fn make(&self, rows: Range<usize>, run: &mut Run<'_>, report: &mut TernaryReport) -> Result<(), RunError> {
        let options = run.options;
        let tensors: Vec<_> = self.rows[rows.clone()]
            .iter()
            .map(|row| {
                let importance = self.importance.get(&row.source.name);
                let importance = importance.map(Vec::as_slice);
                (Cut::of(row), Converter::new(row, importance, self.encoder, options.isa))
            })
            .collect();
        let mut chunks = 0;
        let ends = tensors.iter().map(|(cut, _)| {
            chunks += cut.chunks();
            chunks
        });
        let batch = Batch {
            rounding: self,
            options,
            readers: run.readers,
            files: &run.files,
            first: rows.start,
            ends: ends.collect(),
            tensors,
            next: AtomicU64::new(0),
            error: Mutex::new(None),
            losses: Mutex::new(Vec::new()),
        };
        run.pool.in_place_scope(|scope| {
            let (tell, told) = channel();
            for _ in 0..run.pool.current_num_threads() {
                let (tell, batch) = (tell.clone(), &batch);
                scope.spawn(move |_| batch.take_chunks(&tell));
            }
            drop(tell);
            let mut unsynced = 0;
            for ChunkDone { index, read, written } in told {
                run.news.tell(|i| &self.rows[i].name, index, read);
                unsynced += written;
                if unsynced >= SYNC_BYTES {
                    unsynced = 0;
                    if let Err(error) = batch.files[self.places[index].0].writer.sync() {
                        batch.fail(u64::MAX, error.into());
                    }
                }
            }
        });
        let error = batch.error.into_inner();
        if let Some((_, error)) = error.unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let losses = batch.losses.into_inner();
        let mut losses = losses.unwrap_or_else(PoisonError::into_inner);
        // In order, so that sums of floats come out the same whoever computed them.
        losses.sort_by_key(|(i, _)| *i);
        for (i, loss) in losses {
            let tensor = batch.ends.partition_point(|&end| end <= i);
            let row = &self.rows[rows.start + tensor];
            match report.tensors.last_mut() {
                Some(last) if last.name == row.name => last.loss.add(&loss),
                _ => report.tensors.push(TensorLoss { name: row.name.clone(), ty: row.to, loss }),
            }
        }
        Ok(())
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

    /// What each thread does.
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
        let (chunk, index) = (cut.chunk(number), self.first + tensor);
        let Rounding { rows, places, measure_only, .. } = self.rounding;
        let row = &rows[index];
        let mut done = ChunkDone { index, read: chunk.from_bytes as u64, written: 0 };
        let measured = row.converts() && is_ternary_type(row.to);
        if measure_only.load(Ordering::Relaxed) && !measured {
            return Ok((done, None));
        }
        let reader = &self.readers[row.source.shard];
        let data = reader.read_chunk(row, chunk.from, chunk.from_bytes, buffer)?;
        let (bytes, loss) = converter.convert(chunk, data, scratch).map_err(|fault| fault.of(row))?;
        if loss.is_some_and(|loss| !loss.is_lossless()) && !self.options.force {
            measure_only.store(true, Ordering::Relaxed);
        }
        if !measure_only.load(Ordering::Relaxed) {
            let (file, tensor) = places[index];
            self.files[file].writer.write(tensor, chunk.to, bytes)?;
            done.written = bytes.len() as u64;
        }
        Ok((done, loss))
    }
}
