//! Knowledge of a block about the others: nothing, until one of its threads has read by an atomic operation the value
//! that a thread of another has written by one to the same word, with fences on both sides.
//!
//! Kernels here synchronize blocks in that one way: all threads write, the block comes to a barrier, a thread fences
//! and takes a ticket; the block whose ticket is the last fences, comes to a barrier, and reads. Where a fence or a
//! barrier of these is missing, the writes of others stay unknown, and a read of them is a race.

use std::collections::HashMap;

use super::shadow::{Learnt, Stamp};

/// A thread on its way to others.
#[derive(Default, Debug)]
struct Thread {
    /// Its last fence: what comes before that is given with an atomic operation after it.
    fence: Option<Stamp>,
    /// Fences that it has read and that no fence of its own follows yet.
    taken: Vec<Stamp>,
}

/// The fences and atomic operations of a launch.
#[derive(Default, Debug)]
pub(super) struct Order {
    /// Fences before each word's atomic operations.
    given: HashMap<u64, Vec<Stamp>>,
    /// The threads of the block that runs.
    threads: HashMap<u16, Thread>,
    /// Knowledge of its threads.
    learnt: Vec<Learnt>,
}

impl Order {
    /// A block begins, which knows nothing.
    pub(super) fn begin_block(&mut self) {
        self.threads.clear();
        self.learnt.clear();
    }

    /// Knowledge of the block until now.
    pub(super) fn learnt(&self) -> &[Learnt] {
        &self.learnt
    }

    /// A thread executes a fence for the whole device.
    pub(super) fn fence(&mut self, now: Stamp) {
        let thread = self.threads.entry(now.thread).or_default();
        thread.fence = Some(now);
        let taken = thread.taken.drain(..);
        self.learnt.extend(taken.map(|given| Learnt { given, at: now }));
    }

    /// A thread applies an atomic operation to a word.
    pub(super) fn meet(&mut self, address: u64, now: Stamp) {
        let thread = self.threads.entry(now.thread).or_default();
        let given = self.given.entry(address).or_default();
        thread.taken.extend_from_slice(given);
        given.extend(thread.fence);
    }
}
