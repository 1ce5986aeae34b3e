//! How long a thread looks before it sleeps.

use std::time::{Duration, Instant};

/// How long a helper looks for the next region before it parks: longer than the gap between regions,
/// shorter than anybody notices.
pub(super) const SPIN: Duration = Duration::from_micros(60);

/// Counts down the time to spin.
pub(super) struct Patience {
    rounds: u32,
    since: Option<Instant>,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { rounds: 0, since: None }
    }

    /// Waits a moment; false when it has been long enough.
    pub(super) fn spin(&mut self) -> bool {
        std::hint::spin_loop();
        self.rounds = self.rounds.wrapping_add(1);
        // Asking for the time costs as much as a few dozen rounds.
        if !self.rounds.is_multiple_of(64) {
            return true;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() < SPIN
    }
}
