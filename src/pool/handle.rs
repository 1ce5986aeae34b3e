//! Handles of a pool, and the current one of a thread.

use std::cell::Cell;

use super::helpers::{Claim, Shared};
use super::sync::{Arc, thread, thread_local};

/// A handle of threads that run the tasks of regions. Clones are handles of the same threads.
///
/// Any number of threads may have the pool installed and be in regions at the same time. Each works on
/// its own, and helpers go, task by task, to the region that has the fewest of them. Up to 64 callers
/// share the helpers so; a further one runs its regions alone until one of them leaves [`Pool::install`].
///
/// Helpers end when the last handle is dropped, which waits for them.
#[derive(Clone)]
pub struct Pool {
    crew: Arc<Crew>,
}

/// The helpers of a pool. Their threads hold `shared` and not the crew, so that the crew goes with the last handle.
struct Crew {
    shared: Arc<Shared>,
    helpers: Vec<thread::JoinHandle<()>>,
}

/// The pool that is installed in a thread.
struct Current {
    pool: Pool,
    /// Made by the first region.
    claim: Option<Claim>,
}

thread_local! {
    /// Taken out while the thread is in a region, so that what its tasks call finds no pool and runs in place.
    static CURRENT: Cell<Option<Current>> = const { Cell::new(None) };
}

/// Makes something current when it is dropped.
struct Restore(Option<Current>);

impl Drop for Restore {
    fn drop(&mut self) {
        let before = self.0.take();
        CURRENT.with(|current| current.set(before));
    }
}

impl Pool {
    /// A pool of `threads` in all: the caller of [`Pool::install`] and `threads - 1` helpers.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub fn new(threads: usize) -> std::io::Result<Pool> {
        let mut crew = Crew { shared: Arc::new(Shared::new(threads.max(1))), helpers: Vec::new() };
        for i in 1..threads.max(1) {
            let shared = crew.shared.clone();
            let helper = thread::Builder::new().name(format!("trine-{i}"));
            crew.helpers.push(helper.spawn(move || shared.help())?);
        }
        Ok(Pool { crew: Arc::new(crew) })
    }

    /// Threads, the calling one included.
    pub fn threads(&self) -> usize {
        self.crew.helpers.len() + 1
    }

    /// Runs `f` with this pool as the current one of the calling thread.
    pub fn install<R>(&self, f: impl FnOnce() -> R) -> R {
        let current = Current { pool: self.clone(), claim: None };
        let _restore = Restore(CURRENT.with(|place| place.replace(Some(current))));
        f()
    }
}

#[cfg(test)]
impl Pool {
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.crew.shared
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // A helper that is joined here is in no task, and never the thread that joins: a task belongs to a
        // region, and a region to a call of `install`, which borrows a handle until the region has ended.
        self.shared.stop();
        for helper in self.helpers.drain(..) {
            // A helper catches the panics of its tasks, so there is nothing to learn from its end.
            let _ = helper.join();
        }
    }
}

/// Threads of the current pool.
pub fn threads() -> usize {
    let current = Restore(CURRENT.with(Cell::take));
    current.0.as_ref().map_or(1, |c| c.pool.threads())
}

/// Calls `f(i)` for every `i < tasks`, on the threads of the current pool, in no particular order.
///
/// # Panics
/// When a call panics, after all have ended.
pub fn for_each(tasks: usize, f: impl Fn(usize) + Sync) {
    let (Ok(n @ 2..), 2..) = (u32::try_from(tasks), threads()) else {
        return (0..tasks).for_each(f);
    };
    let mut current = Restore(CURRENT.with(Cell::take));
    if let Some(Current { pool, claim }) = &mut current.0 {
        if claim.is_none() {
            *claim = Claim::new(&pool.crew.shared);
        }
        if let Some(claim) = claim {
            return claim.region(n, &f);
        }
    }
    (0..tasks).for_each(f);
}
