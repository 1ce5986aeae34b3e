//! How often a thread looks before it sleeps, in place of how long.

use std::cell::Cell;

std::thread_local! {
    /// Looks after which a helper sleeps. All threads of a model run on one thread of the system.
    pub static LOOKS: Cell<u32> = const { Cell::new(0) };
}

pub(super) struct Patience(u32);

impl Patience {
    pub(super) fn new() -> Patience {
        Patience(LOOKS.get())
    }

    /// Lets others run; false when it has been often enough.
    pub(super) fn spin(&mut self) -> bool {
        let more = self.0 > 0;
        if more {
            self.0 -= 1;
            loom::thread::yield_now();
        }
        more
    }
}
