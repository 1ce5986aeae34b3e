//! Atomics, locks and cells of loom, under the names of `src/pool/sync.rs`.
//!
//! loom orders what is sequentially consistent no better than what acquires and releases, but for fences. So with
//! [`FENCED`] set a store or an exchange of that kind is followed by such a fence, as on x86. Such fences order a little
//! more than the language promises; a model that does not depend on the one order of all such accesses runs without them.

use std::cell::Cell;

use loom::sync::atomic;

pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
pub use loom::thread;
pub use std::sync::atomic::Ordering;

/// Callers that helpers can find at the same time: few, so that a third one finds no slot.
pub const CALLERS: usize = 2;

std::thread_local! {
    /// True if sequentially consistent accesses come with fences. All threads of a model run on one thread of the system.
    pub static FENCED: Cell<bool> = const { Cell::new(true) };
}

/// `std::thread_local` with a value that is known at compile time.
macro_rules! local {
    ($(#[$about:meta])* static $name:ident: $type:ty = const $value:block;) => {
        loom::thread_local! {
            $(#[$about])* static $name: $type = $value;
        }
    };
}
pub(super) use local as thread_local;

/// The fence after a sequentially consistent store.
fn fence(order: Ordering) {
    if order == Ordering::SeqCst && FENCED.get() {
        atomic::fence(Ordering::SeqCst);
    }
}

macro_rules! atomics {
    ($($name:ident: $value:ty),*) => {
        $(pub(super) struct $name(atomic::$name);

        #[allow(dead_code)]
        impl $name {
            #[track_caller]
            pub(super) fn new(value: $value) -> $name {
                $name(atomic::$name::new(value))
            }

            #[track_caller]
            pub(super) fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }

            #[track_caller]
            pub(super) fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
                fence(order);
            }

            #[track_caller]
            pub(super) fn compare_exchange(
                &self, old: $value, new: $value, good: Ordering, bad: Ordering,
            ) -> Result<$value, $value> {
                let result = self.0.compare_exchange(old, new, good, bad);
                fence(if result.is_ok() { good } else { bad });
                result
            }

            /// It never fails without a reason here.
            #[track_caller]
            pub(super) fn compare_exchange_weak(
                &self, old: $value, new: $value, good: Ordering, bad: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(old, new, good, bad)
            }
        })*
    };
}
atomics!(AtomicBool: bool, AtomicU32: u32, AtomicU64: u64);

impl AtomicU32 {
    #[track_caller]
    pub(super) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        let old = self.0.fetch_add(value, order);
        fence(order);
        old
    }

    #[track_caller]
    pub(super) fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        let old = self.0.fetch_sub(value, order);
        fence(order);
        old
    }
}

impl AtomicU64 {
    #[track_caller]
    pub(super) fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        let old = self.0.fetch_and(value, order);
        fence(order);
        old
    }
}

/// A value that threads write and read, of which loom knows who may do so when.
pub struct SharedCell<T>(loom::cell::UnsafeCell<T>);

impl<T> SharedCell<T> {
    #[track_caller]
    pub fn new(value: T) -> SharedCell<T> {
        SharedCell(loom::cell::UnsafeCell::new(value))
    }

    #[track_caller]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        self.0.with(f)
    }

    #[track_caller]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        self.0.with_mut(f)
    }
}
