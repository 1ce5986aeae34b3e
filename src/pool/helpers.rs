//! Helpers: which region they work on, and how they sleep and wake.
//!
//! A caller claims a slot for as long as the pool is installed. Helpers look through the claimed slots
//! after every run of tasks: with one caller that is one word and one counter, which stay in the helper's cache
//! until the caller opens the next region.
//!
//! Why no helper sleeps through a region. A helper that goes to sleep stores `asleep` and then looks for
//! tasks, in `claimed` and in the slots; a caller claims, opens its region and then loads `asleep`. All of
//! these are sequentially consistent, so they stand in one order, and either the caller's load comes
//! after the helper's store, or the helper's looks come after the caller's claim and opening. In the
//! second case the helper finds the task and does not sleep. In the first case the caller sees `asleep`, and
//! wakes everybody under the lock, which the helper holds from before its store until it waits. Or it sees that
//! another caller has set `asleep` back already: that one woke everybody under the same lock, and the
//! helper will store and look again.

use super::patience::Patience;
use super::region::Slot;
use super::sync::{Arc, AtomicBool, AtomicU64, CALLERS, Condvar, Mutex, MutexGuard, Ordering};

/// State that callers and helpers of a pool share.
pub(super) struct Shared {
    slots: [Slot; CALLERS],
    /// One bit per slot that has a caller.
    claimed: AtomicU64,
    /// True if helpers may be asleep.
    asleep: AtomicBool,
    stop: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Shared {
    /// The shared state of a pool of `threads` threads.
    pub(super) fn new(threads: usize) -> Shared {
        Shared {
            slots: std::array::from_fn(|_| Slot::new(threads)),
            claimed: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    #[cfg(test)]
    pub(super) fn callers(&self) -> usize {
        self.claimed.load(Ordering::SeqCst).count_ones() as usize
    }

    fn guard(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Ends all helpers, once they are through with their tasks.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        // Under the lock: a helper has either seen `stop` or waits already.
        let _guard = self.guard();
        self.wake.notify_all();
    }

    /// Wakes sleeping helpers. Called after a region was opened.
    fn wake(&self) {
        if self.asleep.load(Ordering::SeqCst) {
            let _guard = self.guard();
            self.asleep.store(false, Ordering::SeqCst);
            self.wake.notify_all();
        }
    }

    /// The life of a helper.
    pub(super) fn help(&self) {
        let mut at = None;
        let mut patience = Patience::new();
        while !self.stop.load(Ordering::Relaxed) {
            if self.help_once(&mut at) {
                patience = Patience::new();
            } else if !patience.spin() {
                self.leave(&mut at);
                self.sleep();
                patience = Patience::new();
            }
        }
    }

    /// True if there are several callers.
    fn is_crowded(&self) -> bool {
        !self.claimed.load(Ordering::Relaxed).is_power_of_two()
    }

    /// Runs some tasks of the region that needs this helper most; false when it found none. `at` is the slot whose
    /// helper it is.
    fn help_once(&self, at: &mut Option<usize>) -> bool {
        while let Some((slot, helpers)) = self.neediest(*at) {
            if *at == Some(slot) {
                return self.slots[slot].help(self.is_crowded());
            }
            // It leaves before it joins, so that the numbers are never too high; it joins only if no other
            // helper did meanwhile, so that they do not all go to where one is needed.
            self.leave(at);
            let count = &self.slots[slot].helpers;
            let joined = count.compare_exchange(helpers, helpers + 1, Ordering::Relaxed, Ordering::Relaxed);
            if joined.is_ok() {
                *at = Some(slot);
                return self.slots[slot].help(self.is_crowded());
            }
        }
        false
    }

    fn leave(&self, at: &mut Option<usize>) {
        if let Some(slot) = at.take() {
            self.slots[slot].helpers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The slot with tasks left that has the fewest helpers, and their number. A helper that is `at` one of the slots,
    /// and counted there, stays unless another has fewer; among equals the next one in the round comes first. So
    /// helpers spread evenly, and where they are fewer than regions they go round, task by task.
    fn neediest(&self, at: Option<usize>) -> Option<(usize, u32)> {
        let first = at.map_or(0, |at| at + 1);
        let mut round = self.claimed.load(Ordering::SeqCst).rotate_right(first as u32);
        let mut best: Option<(usize, u32)> = None;
        while round != 0 {
            let slot = (first + round.trailing_zeros() as usize) % u64::BITS as usize;
            round &= round - 1;
            if !self.slots[slot].has_tasks() {
                continue;
            }
            let helpers = self.slots[slot].helpers.load(Ordering::Relaxed);
            // The slot that it is at comes last in the round.
            let better = |(_, fewest)| helpers < fewest || helpers == fewest && at == Some(slot);
            if best.is_none_or(better) {
                best = Some((slot, helpers));
            }
        }
        best
    }

    /// Sleeps until there may be a task.
    fn sleep(&self) {
        let mut guard = self.guard();
        loop {
            self.asleep.store(true, Ordering::SeqCst);
            if self.neediest(None).is_some() || self.stop.load(Ordering::SeqCst) {
                return;
            }
            guard = self.wake.wait(guard).unwrap_or_else(|e| e.into_inner());
        }
    }
}

/// The right to run regions in a slot, one after the other.
pub(super) struct Claim {
    shared: Arc<Shared>,
    slot: usize,
}

impl Claim {
    /// Claims a free slot, if there is one.
    pub(super) fn new(shared: &Arc<Shared>) -> Option<Claim> {
        let mut claimed = shared.claimed.load(Ordering::Relaxed);
        loop {
            let slot = claimed.trailing_ones() as usize;
            if slot == CALLERS {
                return None;
            }
            // Acquires what the slot's last caller released by dropping its claim.
            match shared.claimed.compare_exchange_weak(
                claimed,
                claimed | 1 << slot,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    return Some(Claim { shared: shared.clone(), slot });
                }
                Err(now) => claimed = now,
            }
        }
    }

    /// Calls `f(i)` for every `i < tasks` in this thread and those of helpers that come.
    ///
    /// # Panics
    /// With the panic of the first task that panicked, after all have ended.
    pub(super) fn region<F: Fn(usize) + Sync>(&mut self, tasks: u32, f: &F) {
        let (shared, slot) = (&*self.shared, &self.shared.slots[self.slot]);
        // Callers and helpers are then more threads than the pool was made for: the helper that is waited for
        // may be off its core because this thread is on it.
        let crowded = shared.is_crowded();
        // SAFETY: the slot's bit was 0 when this claim set it, so that no other claim has the slot, and
        // what an earlier one did was acquired with the bit; `&mut self` keeps this one to a region at a time.
        unsafe { slot.region(tasks, f, crowded, || shared.wake()) }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.shared.claimed.fetch_and(!(1 << self.slot), Ordering::Release);
    }
}
