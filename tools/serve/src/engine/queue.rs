//! Who may wait, and for how long.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use super::counters::Counters;
use super::options::Options;
use super::request::Refused;

/// The door of the queue.
#[derive(Debug)]
pub struct Admission {
    max_requests: usize,
    max_tokens: usize,
    requests: AtomicUsize,
    tokens: AtomicUsize,
    /// One of the constants below.
    state: AtomicU8,
}

const OPEN: u8 = 0;
const CLOSED: u8 = 1;
const STOPPED: u8 = 2;

/// Seconds that a client is told to wait, at least and at most: some clients give up at once when they are told more.
const RETRY: (u64, u64) = (1, 120);

impl Admission {
    pub(super) fn new(options: &Options) -> Admission {
        Admission {
            max_requests: options.max_queue,
            max_tokens: options.max_queue_tokens,
            requests: AtomicUsize::new(0),
            tokens: AtomicUsize::new(0),
            state: AtomicU8::new(OPEN),
        }
    }

    /// Counts a request with a prompt of `tokens` tokens into the queue.
    pub(super) fn enter(&self, tokens: usize, counters: &Counters) -> Result<(), Refused> {
        if self.is_closed() {
            return Err(Refused::Draining);
        }
        let waiting = self.requests.fetch_add(1, Ordering::SeqCst);
        let queued = self.tokens.fetch_add(tokens, Ordering::SeqCst);
        // An empty queue takes any prompt that fits the context.
        if waiting >= self.max_requests || waiting > 0 && queued + tokens > self.max_tokens {
            self.leave(tokens);
            let retry_after = retry_after(queued, counters);
            return Err(Refused::Busy { waiting, retry_after });
        }
        Ok(())
    }

    /// Counts it out again.
    pub(super) fn leave(&self, tokens: usize) {
        self.requests.fetch_sub(1, Ordering::SeqCst);
        self.tokens.fetch_sub(tokens, Ordering::SeqCst);
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub(super) fn close(&self) {
        self.state.fetch_max(CLOSED, Ordering::SeqCst);
    }

    pub(super) fn stop(&self) {
        self.state.store(STOPPED, Ordering::SeqCst);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.load(Ordering::SeqCst) >= CLOSED
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.load(Ordering::SeqCst) == STOPPED
    }
}

/// Seconds until the prompts that wait are read, as fast as prompts were read so far.
fn retry_after(queued: usize, counters: &Counters) -> u64 {
    let micros = counters.prompt_micros.load(Ordering::Relaxed);
    let read = counters.prompt_tokens.load(Ordering::Relaxed).max(1);
    let seconds = micros as f64 / read as f64 * queued as f64 / 1e6;
    (seconds.ceil() as u64).clamp(RETRY.0, RETRY.1)
}
