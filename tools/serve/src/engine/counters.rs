//! Counters of the engine, for `/metrics` and `/slots`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Numbers that only grow, and what runs now.
#[derive(Debug, Default)]
pub struct Counters {
    /// Tokens of prompts that were read, without those found in the cache.
    pub prompt_tokens: AtomicU64,
    /// Tokens of prompts that were found in the cache.
    pub cached_tokens: AtomicU64,
    /// Microseconds of steps, shared between reading and generating by their rows.
    pub prompt_micros: AtomicU64,
    /// Tokens that were generated.
    pub generated_tokens: AtomicU64,
    /// See `prompt_micros`.
    pub generated_micros: AtomicU64,
    /// Steps.
    pub steps: AtomicU64,
    /// Rows of sequences that generate, in all steps.
    pub decode_rows: AtomicU64,
    /// Most positions that a sequence had.
    pub longest: AtomicU64,
    /// Sequences that gave their pages back and began again.
    pub preemptions: AtomicU64,
    /// Requests that ended, cancelled ones included.
    pub ended: AtomicU64,
    /// Microseconds that these held places.
    pub held_micros: AtomicU64,
    /// Pages of keys and values: all, and those that nobody holds.
    pub pages: AtomicU64,
    /// See `pages`.
    pub free_pages: AtomicU64,
    slots: Mutex<Vec<Slot>>,
    drafts: Mutex<Drafts>,
}

/// Counts of drafts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drafts {
    /// Drafts, of one or more tokens each.
    pub drafts: u64,
    /// Their tokens.
    pub drafted: u64,
    /// Drafted tokens that were accepted: the first of drafts, the second, and so on.
    pub accepted: Vec<u64>,
}

/// A place for a running sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// True if a sequence is in it.
    pub busy: bool,
    /// Tokens of the sequence generated so far.
    pub generated: usize,
    /// Most tokens of the sequence that may still be generated; `None` without a limit.
    pub left: Option<usize>,
}

impl Counters {
    pub(super) fn new(parallel: usize) -> Counters {
        Counters { slots: Mutex::new(vec![Slot::default(); parallel]), ..Counters::default() }
    }

    /// Returns the state of the places for running sequences.
    pub fn slots(&self) -> Vec<Slot> {
        self.lock().clone()
    }

    /// Sequences that run.
    pub fn running(&self) -> usize {
        self.lock().iter().filter(|s| s.busy).count()
    }

    /// Sets the places that run, by their numbers.
    pub(super) fn set_slots(&self, running: impl Iterator<Item = (usize, Slot)>) {
        let mut slots = self.lock();
        slots.iter_mut().for_each(|s| *s = Slot::default());
        running.for_each(|(i, now)| slots[i] = now);
    }

    /// A request that had a place for so long ended.
    pub(super) fn end(&self, held: Duration) {
        self.ended.fetch_add(1, Relaxed);
        self.held_micros.fetch_add(held.as_micros() as u64, Relaxed);
    }

    pub(super) fn add_time(&self, took: Duration, prompt_rows: usize, decode_rows: usize) {
        let micros = took.as_micros() as u64;
        let all = (prompt_rows + decode_rows).max(1) as u64;
        let prompt = micros * prompt_rows as u64 / all;
        self.prompt_micros.fetch_add(prompt, Relaxed);
        self.generated_micros.fetch_add(micros - prompt, Relaxed);
        self.steps.fetch_add(1, Relaxed);
        self.decode_rows.fetch_add(decode_rows as u64, Relaxed);
    }

    /// Returns the counts of drafts so far.
    pub fn drafts(&self) -> Drafts {
        let drafts = self.drafts.lock().unwrap_or_else(PoisonError::into_inner);
        drafts.clone()
    }

    /// A draft of `drafted` tokens, whose first `accepted` the text has.
    pub(super) fn add_draft(&self, drafted: usize, accepted: usize) {
        let mut drafts = self.drafts.lock().unwrap_or_else(PoisonError::into_inner);
        drafts.drafts += 1;
        drafts.drafted += drafted as u64;
        let positions = drafts.accepted.len().max(accepted);
        drafts.accepted.resize(positions, 0);
        drafts.accepted[..accepted].iter_mut().for_each(|n| *n += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
