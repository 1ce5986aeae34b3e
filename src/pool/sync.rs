//! The locks and atomics of the pool: the standard library's.
//!
//! The other files of the pool name these things by way of this one, and nothing else of `std::sync` and
//! `std::thread`. So `compat-tests/pool-models` compiles the same files with those of a model checker, which goes
//! through the orders in which threads may run.

use std::cell::UnsafeCell;

pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
pub(super) use std::{thread, thread_local};

/// Callers that helpers can find at the same time: the bits of a word.
pub(super) const CALLERS: usize = u64::BITS as usize;

/// A value that threads write and read, whose users see to it that they never do so at the same time.
pub(super) struct SharedCell<T>(UnsafeCell<T>);

impl<T> SharedCell<T> {
    pub(super) fn new(value: T) -> SharedCell<T> {
        SharedCell(UnsafeCell::new(value))
    }

    /// Calls `f` with the value's place, to read it.
    pub(super) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls `f` with the value's place, to write it.
    pub(super) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
