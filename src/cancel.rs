//! A request to stop, which one thread makes and another follows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that asks running work to stop at the next good place. Clones share it, so that a copy can be kept by whoever
/// may want to cancel: another thread, a signal handler, a button.
#[derive(Clone, Debug, Default)]
pub struct CancelToken {
    cancelled: Arc<AtomicBool>,
}

impl CancelToken {
    /// A token that nobody has cancelled yet.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Asks the work to stop.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
    }

    /// True if the work should stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Takes the request back, so that the token can be used again; says whether there was one.
    pub fn reset(&self) -> bool {
        self.cancelled.swap(false, Ordering::SeqCst)
    }
}
