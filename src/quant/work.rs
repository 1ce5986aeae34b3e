//! How the threads of a pool share a plan.
//!
//! Tensors are cut into chunks of half a megabyte. Every thread takes the next chunk, reads it, converts
//! it and writes the result to its place in the file, all within its core's cache: so all cores work from
//! the first chunk to the last, and while one waits for a file the others go on. A chunk is a few rows,
//! whatever the size of the tensor, and each row is encoded on its own: the bytes do not depend on the
//! number of threads. A tensor that is moved is taken whole, by all threads together.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

use rayon::ThreadPool;
use rayon::prelude::*;
use trine_formats::gguf::ScatterWriter;

use super::convert::{Converter, Scratch};
use super::error::{QuantError, blame, blame_move};
use super::gptq::{self, Factor, FeedbackReport, Gptq};
use super::lossless::{MoveReport, Moved, carry};
use super::options::RunOptions;
use super::plan::Plan;
use super::progress::Progress;
use super::row::Move;
use super::source::{Cut, ShardReader};
use super::ternary::{Loss, TensorLoss, TernaryReport, is_ternary_type};

/// Bytes of a moved tensor that one thread writes at a time.
const WRITE_BYTES: usize = 1 << 22;

/// Bytes of the output after which what was written is brought to the disk, so that less is left in the end.
const SYNC_BYTES: u64 = 1 << 26;

/// What became of tensors that are not merely copied or encoded.
#[derive(Default)]
pub struct Done {
    pub ternary: TernaryReport,
    pub moves: MoveReport,
    pub feedback: FeedbackReport,
}

/// What a chunk did: its tensor, how many bytes were read and written.
struct ChunkDone {
    index: usize,
    read: u64,
    written: u64,
}

/// What all threads look at.
pub struct Work<'a> {
    pub plan: &'a Plan,
    pub readers: &'a [ShardReader],
    pub writers: &'a [ScatterWriter],
    pub options: RunOptions,
    /// Nothing will be kept: only find out how much is lost.
    pub measure_only: AtomicBool,
}

/// Tensors one after the other whose chunks the threads share.
struct Batch<'a> {
    first: usize,
    tensors: Vec<(Cut, Converter<'a>)>,
    /// Chunks up to and with each tensor.
    ends: Vec<u64>,
    next: AtomicU64,
    /// Of the first chunk that failed.
    error: Mutex<Option<(u64, QuantError)>>,
    losses: Mutex<Vec<(u64, Loss)>>,
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
    fn fail(&self, i: u64, error: QuantError) {
        self.next.fetch_max(self.chunks(), Ordering::Relaxed);
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|(at, _)| i < *at) {
            *first = Some((i, error));
        }
    }
}

/// Tells the caller's [`Progress`] how far the threads are, each tensor once and in order.
struct News<'a> {
    progress: &'a mut dyn Progress,
    plan: &'a Plan,
    announced: usize,
}

impl News<'_> {
    fn tell(&mut self, index: usize, bytes: u64) {
        while self.announced <= index {
            let at = self.announced;
            self.progress.tensor(at, &self.plan.rows[at]);
            self.announced += 1;
        }
        self.progress.advance(bytes);
    }
}

impl Work<'_> {
    /// Does everything but finish the files.
    pub fn run(&self, pool: &ThreadPool, progress: &mut dyn Progress) -> Result<Done, QuantError> {
        let mut done = Done::default();
        let mut news = News { progress, plan: self.plan, announced: 0 };
        let rows = &self.plan.rows;
        let mut at = 0;
        while at < rows.len() {
            if let Some(how) = rows[at].moves {
                if rows[at].bytes_from > 0 {
                    let moved = pool.install(|| self.move_tensor(at, how))?;
                    done.moves.tensors.push(moved);
                }
                news.tell(at, rows[at].bytes_from);
                at += 1;
            } else if self.plan.feeds_back(at) {
                pool.install(|| self.feed_back(at, &mut done.feedback))?;
                news.tell(at, rows[at].bytes_from);
                at += 1;
            } else {
                let apart = |i: &usize| rows[*i].moves.is_some() || self.plan.feeds_back(*i);
                let end = (at..rows.len()).find(apart).unwrap_or(rows.len());
                self.convert(at..end, pool, &mut news, &mut done.ternary)?;
                at = end;
            }
        }
        Ok(done)
    }

    /// Converts or copies tensors that are not moved.
    fn convert(
        &self,
        rows: Range<usize>,
        pool: &ThreadPool,
        news: &mut News<'_>,
        report: &mut TernaryReport,
    ) -> Result<(), QuantError> {
        let tensors: Vec<_> = self.plan.rows[rows.clone()]
            .iter()
            .map(|row| {
                let importance = self.plan.importance.get(&row.source.name);
                let importance = importance.map(Vec::as_slice);
                (Cut::of(row), Converter::new(row, importance, self.options.isa))
            })
            .collect();
        let mut chunks = 0;
        let ends = tensors.iter().map(|(cut, _)| {
            chunks += cut.chunks();
            chunks
        });
        let batch = Batch {
            first: rows.start,
            ends: ends.collect(),
            tensors,
            next: AtomicU64::new(0),
            error: Mutex::new(None),
            losses: Mutex::new(Vec::new()),
        };
        pool.in_place_scope(|scope| {
            let (tell, told) = channel();
            for _ in 0..pool.current_num_threads() {
                let (tell, batch) = (tell.clone(), &batch);
                scope.spawn(move |_| self.take_chunks(batch, &tell));
            }
            drop(tell);
            let mut unsynced = 0;
            for ChunkDone { index, read, written } in told {
                news.tell(index, read);
                unsynced += written;
                if unsynced >= SYNC_BYTES {
                    unsynced = 0;
                    if let Err(error) = self.place(index).0.sync() {
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
            let row = &self.plan.rows[rows.start + tensor];
            match report.tensors.last_mut() {
                Some(last) if last.name == row.name => last.loss.add(&loss),
                _ => report.tensors.push(TensorLoss { name: row.name.clone(), ty: row.to, loss }),
            }
        }
        Ok(())
    }

    /// What each thread does.
    fn take_chunks(&self, batch: &Batch<'_>, tell: &Sender<ChunkDone>) {
        let (mut buffer, mut scratch) = (Vec::new(), Scratch::default());
        let mut losses = Vec::new();
        loop {
            let i = batch.next.fetch_add(1, Ordering::Relaxed);
            if i >= batch.chunks() {
                break;
            }
            match self.do_chunk(batch, i, &mut buffer, &mut scratch) {
                Ok((done, loss)) => {
                    losses.extend(loss.map(|loss| (i, loss)));
                    // Nobody listens when the caller has panicked, which ends the work all the same.
                    let _ = tell.send(done);
                }
                Err(error) => batch.fail(i, error),
            }
        }
        let mut all = batch.losses.lock().unwrap_or_else(PoisonError::into_inner);
        all.append(&mut losses);
    }

    fn do_chunk(
        &self,
        batch: &Batch<'_>,
        i: u64,
        buffer: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(ChunkDone, Option<Loss>), QuantError> {
        let (tensor, number) = batch.locate(i);
        let (cut, converter) = &batch.tensors[tensor];
        let (chunk, index) = (cut.chunk(number), batch.first + tensor);
        let row = &self.plan.rows[index];
        let mut done = ChunkDone { index, read: chunk.from_bytes as u64, written: 0 };
        let measured = row.converts() && is_ternary_type(row.to);
        if self.measure_only.load(Ordering::Relaxed) && !measured {
            return Ok((done, None));
        }
        let reader = &self.readers[row.source.shard];
        let data = reader.read_chunk(row, chunk.from, chunk.from_bytes, buffer)?;
        let (bytes, loss) = converter.convert(chunk, data, scratch).map_err(|fault| blame(row, fault))?;
        if loss.is_some_and(|loss| !loss.is_lossless()) && !self.options.force {
            self.measure_only.store(true, Ordering::Relaxed);
        }
        if !self.measure_only.load(Ordering::Relaxed) {
            let (writer, tensor) = self.place(index);
            writer.write(tensor, chunk.to, bytes)?;
            done.written = bytes.len() as u64;
        }
        Ok((done, loss))
    }

    /// Moves a whole tensor, on the pool's threads.
    fn move_tensor(&self, index: usize, how: Move) -> Result<Moved, QuantError> {
        let row = &self.plan.rows[index];
        let data = self.readers[row.source.shard].read_whole(row)?;
        let (bytes, moved) = carry(row, how, &data).map_err(|fault| blame_move(row, fault))?;
        drop(data);
        if moved.inexact.is_some() && !self.options.force {
            self.measure_only.store(true, Ordering::Relaxed);
        }
        if !self.measure_only.load(Ordering::Relaxed) {
            let (writer, tensor) = self.place(index);
            let chunks = bytes.par_chunks(WRITE_BYTES).enumerate();
            chunks.try_for_each(|(i, bytes)| writer.write(tensor, (i * WRITE_BYTES) as u64, bytes))?;
        }
        Ok(moved)
    }

    /// Rounds the tensors that read the same input as tensor `index`, when that is the first of them, on the pool's
    /// threads: so the Hessian is factored once.
    fn feed_back(&self, index: usize, report: &mut FeedbackReport) -> Result<(), QuantError> {
        let Some(job) = &self.plan.feedback else {
            return Ok(());
        };
        let mates = job.mates(index);
        if mates.first() != Some(&index) || self.measure_only.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Gptq { hessians, options } = &job.gptq;
        let factor = Factor::read(hessians, job.inputs[&index], options, self.options.isa);
        let factor =
            factor.map_err(|fault| QuantError::Hessian { tensor: self.plan.rows[index].name.clone(), fault })?;
        for mate in mates {
            let row = &self.plan.rows[mate];
            let data = self.readers[row.source.shard].read_whole(row)?;
            let bytes =
                gptq::round(row, &data, &factor, options, self.options.isa).map_err(|fault| blame(row, fault))?;
            let (writer, tensor) = self.place(mate);
            writer.write(tensor, 0, &bytes)?;
            report.tensors += 1;
            if factor.damp() > options.damp {
                report.damped.push((row.name.clone(), factor.damp()));
            }
        }
        Ok(())
    }

    /// The file that a tensor goes to, and its number there.
    fn place(&self, index: usize) -> (&ScatterWriter, usize) {
        let mut shards = self.plan.shards.iter().zip(self.writers);
        match shards.find(|(shard, _)| shard.rows.contains(&index)) {
            Some((shard, writer)) => (writer, index - shard.rows.start),
            None => unreachable!("every row of a plan is in one of its files"),
        }
    }
}
