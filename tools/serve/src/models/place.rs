//! A loaded model of a folder, and who uses it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::args::KeepAlive;
use crate::service::Service;

/// A loaded model.
pub(super) struct LoadedModel {
    pub service: Arc<Service>,
    /// Bytes of its weights, and most bytes of its keys and values.
    pub memory: u64,
    engine: Mutex<Option<JoinHandle<()>>>,
    usage: Mutex<Usage>,
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct Usage {
    leases: usize,
    /// True if nobody gets a lease any more: its memory is needed.
    leaves: bool,
    last: Instant,
    keep: KeepAlive,
}

impl LoadedModel {
    /// A model that was loaded just now and is not in use; `changed` is told whenever a lease ends.
    pub fn new(
        service: Service,
        engine: JoinHandle<()>,
        memory: u64,
        keep: KeepAlive,
        changed: Arc<Notify>,
    ) -> LoadedModel {
        LoadedModel {
            service: Arc::new(service),
            memory,
            engine: Mutex::new(Some(engine)),
            usage: Mutex::new(Usage { leases: 0, leaves: false, last: Instant::now(), keep }),
            changed,
        }
    }

    /// Counts one more use; false where the model is about to leave.
    pub fn take(&self) -> bool {
        let mut usage = self.usage();
        usage.leases += usize::from(!usage.leaves);
        !usage.leaves
    }

    /// Counts a use out again, after which the model stays as `keep` says.
    pub fn give_back(&self, keep: KeepAlive) {
        let mut usage = self.usage();
        usage.leases -= 1;
        (usage.last, usage.keep) = (Instant::now(), keep);
        drop(usage);
        self.changed.notify_one();
    }

    /// When nobody used it any more and how many do, in the order in which models have to leave.
    pub fn rank(&self) -> (bool, Instant) {
        let usage = self.usage();
        (usage.leases > 0, usage.last)
    }

    /// Says that nobody gets a lease any more, or takes that back.
    pub fn set_leaving(&self, leaves: bool) {
        self.usage().leaves = leaves;
    }

    /// True if nobody uses it.
    pub fn is_idle(&self) -> bool {
        self.usage().leases == 0
    }

    /// The moment at which it has been idle for long enough; `None` while it is in use, and where it stays.
    pub fn expires(&self) -> Option<Instant> {
        let usage = self.usage();
        match usage.keep {
            KeepAlive::For(time) if usage.leases == 0 => usage.last.checked_add(time),
            KeepAlive::For(_) | KeepAlive::Always => None,
        }
    }

    /// Time after `now` for which it stays where nobody asks for it; `None`: until its memory is needed.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let usage = self.usage();
        match usage.keep {
            KeepAlive::Always => None,
            // The time begins when nobody uses it any more.
            KeepAlive::For(time) if usage.leases > 0 => Some(time),
            KeepAlive::For(time) => Some(time.saturating_sub(now.saturating_duration_since(usage.last))),
        }
    }

    /// True if its engine has ended without being asked to.
    pub fn has_failed(&self) -> bool {
        self.engine().as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Ends its engine and waits for that. Its memory is free when the last reference is dropped.
    pub fn unload(&self) {
        self.service.engine.stop();
        if let Some(engine) = self.engine().take() {
            // A panic of the engine has been told already.
            let _ = engine.join();
        }
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn engine(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
