//! Peak rates of the machine: reading memory, multiplying in registers.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use trine::pool::{self, Pool};
use trine_formats::gguf::Blob;
use trine_kernels::packed::Arena;
use trine_kernels::{Isa, probe};

use crate::stats::Summary;

/// Bytes that are read over and over: far more than any cache of a desktop machine holds, and several
/// times the largest last-level cache of a core complex.
pub const DRAM: usize = 256 << 20;
/// Bytes a task of the reading loop takes.
const TASK: usize = 1 << 20;
/// Prefetch distance of the reading loop where that makes it faster, bytes.
const AHEAD: usize = 8192;
/// Time a peak of the multipliers is measured for.
const PEAK: Duration = Duration::from_millis(20);

/// A pool with memory to read.
pub struct Machine {
    pool: Pool,
    buffer: Blob,
    /// Prefetch distance of the reading loop, the better of none and [`AHEAD`], bytes.
    ahead: usize,
}

impl Machine {
    /// `threads` threads; the memory has large pages where the system gives them.
    ///
    /// # Errors
    /// The system gives no threads or no memory.
    pub fn new(threads: usize) -> Result<Machine> {
        let pool = Pool::new(threads).with_context(|| format!("cannot start {threads} threads"))?;
        let buffer = Arena::default().region(DRAM, |bytes| {
            // Written, or all of it would be the one page of zeros.
            bytes.fill(1);
            true
        });
        let Some(buffer) = buffer.context("cannot get memory to read")? else {
            bail!("cannot get memory to read");
        };
        let mut machine = Machine { pool, buffer, ahead: 0 };
        machine.read();
        let passes = [0, AHEAD].map(|ahead| {
            machine.ahead = ahead;
            let passes: Vec<f64> = (0..5).map(|_| machine.read()).collect();
            (Summary::of(&passes).median, ahead)
        });
        machine.ahead = passes[usize::from(passes[1].0 < passes[0].0)].1;
        Ok(machine)
    }

    /// The threads.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Seconds to read [`DRAM`] bytes once, with all threads.
    pub fn read(&self) -> f64 {
        let start = Instant::now();
        self.pool.install(|| {
            pool::for_each(DRAM / TASK, |i| {
                black_box(probe::read(&self.buffer[i * TASK..][..TASK], self.ahead));
            });
        });
        start.elapsed().as_secs_f64()
    }

    /// Bytes per second of the reading loop, the median of some passes.
    pub fn bandwidth(&self) -> f64 {
        self.read();
        let passes: Vec<f64> = (0..7).map(|_| self.read()).collect();
        DRAM as f64 / Summary::of(&passes).median
    }

    /// Products of bytes per second that the multipliers reach with all threads.
    pub fn int8(&self, isa: Isa) -> f64 {
        self.peak(|rounds| black_box(probe::multiply_int8(isa, rounds)).0)
    }

    /// Fused multiply-adds of f32 per second that the multipliers reach with all threads.
    pub fn f32(&self, isa: Isa) -> f64 {
        self.peak(|rounds| black_box(probe::multiply_f32(isa, rounds)).0)
    }

    /// The best rate of a few runs: nothing but other programs can slow such a loop down.
    fn peak(&self, run: impl Fn(u64) -> u64 + Sync) -> f64 {
        // more tasks than threads, so that one that is held up leaves some to the others
        let tasks = self.pool.threads() * 8;
        let mut best = 0f64;
        let mut rounds = 1000;
        let start = Instant::now();
        while start.elapsed() < PEAK {
            let start = Instant::now();
            self.pool.install(|| {
                pool::for_each(tasks, |_| {
                    run(rounds);
                });
            });
            let seconds = start.elapsed().as_secs_f64();
            let per_task = run(1) as f64 * rounds as f64;
            best = best.max(per_task * tasks as f64 / seconds);
            if seconds < 1e-3 {
                rounds *= 2;
            }
        }
        best
    }
}
