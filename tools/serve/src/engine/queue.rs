//! Who may wait, and for how long.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::counters::Counters;
use super::options::Options;
use super::request::Refused;

/// The door of the queue.
#[derive(Debug)]
pub struct Admission {
    max_requests: usize,
    max_tokens: usize,
    parallel: usize,
    /// Requests that wait, by those who ask.
    parties: Mutex<HashMap<String, usize>>,
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
            parallel: options.parallel,
            parties: Mutex::default(),
            requests: AtomicUsize::new(0),
            tokens: AtomicUsize::new(0),
            state: AtomicU8::new(OPEN),
        }
    }

    /// Counts a request with a prompt of `tokens` tokens into the queue. Where it is full there is room for one of each
    /// party that has none there: nobody keeps others out.
    pub(super) fn enter(&self, tokens: usize, party: &str, counters: &Counters) -> Result<(), Refused> {
        if self.is_closed() {
            return Err(Refused::Draining);
        }
        let waiting = self.requests.fetch_add(1, Ordering::SeqCst);
        let queued = self.tokens.fetch_add(tokens, Ordering::SeqCst);
        let own = self.count(party, 1) - 1;
        // An empty queue takes any prompt that fits the context.
        let full = waiting >= self.max_requests || waiting > 0 && queued + tokens > self.max_tokens;
        if full && (own > 0 || party.is_empty()) {
            self.leave(tokens, party);
            let retry_after = self.retry_after(waiting, queued, counters);
            return Err(Refused::Busy { waiting, retry_after });
        }
        Ok(())
    }

    /// Counts it out again.
    pub(super) fn leave(&self, tokens: usize, party: &str) {
        self.count(party, -1);
        self.requests.fetch_sub(1, Ordering::SeqCst);
        self.tokens.fetch_sub(tokens, Ordering::SeqCst);
    }

    /// Counts requests of a party in or out, and returns how many wait then.
    fn count(&self, party: &str, more: isize) -> usize {
        let mut parties = self.parties.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = parties.get(party).copied().unwrap_or(0).saturating_add_signed(more);
        match waiting {
            0 => drop(parties.remove(party)),
            _ => drop(parties.insert(party.to_owned(), waiting)),
        }
        waiting
    }

    /// Returns the seconds until the requests that wait have had their turn: as fast as prompts were read and as places
    /// became free so far.
    fn retry_after(&self, waiting: usize, queued: usize, counters: &Counters) -> u64 {
        let get = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed) as f64;
        let reading = get(&counters.prompt_micros) / get(&counters.prompt_tokens).max(1.0) * queued as f64;
        let held = get(&counters.held_micros) / get(&counters.ended).max(1.0);
        let turns = (waiting + 1) as f64 / self.parallel.max(1) as f64;
        let seconds = reading.max(held * turns) / 1e6;
        (seconds.ceil() as u64).clamp(RETRY.0, RETRY.1)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_has_room_for_those_who_have_none_there() {
        let options = Options { parallel: 2, max_queue: 3, ..Options::default() };
        let (door, counters) = (Admission::new(&options), Counters::new(2));
        (0..3).for_each(|_| assert_eq!(door.enter(10, "one", &counters), Ok(())));
        assert!(matches!(door.enter(10, "one", &counters), Err(Refused::Busy { waiting: 3, retry_after: 1 })));
        assert_eq!(door.enter(10, "two", &counters), Ok(()));
        assert!(door.enter(10, "two", &counters).is_err());
        door.leave(10, "two");
        assert_eq!(door.enter(10, "two", &counters), Ok(()));
        // Without keys all are one party.
        assert!(door.enter(10, "", &counters).is_err());
        // Eight requests held their places for 16 s each, two at a time: four and this one wait for three turns.
        counters.ended.store(8, Ordering::Relaxed);
        counters.held_micros.store(8 * 16_000_000, Ordering::Relaxed);
        assert_eq!(door.enter(10, "one", &counters), Err(Refused::Busy { waiting: 4, retry_after: 40 }));
    }
}
