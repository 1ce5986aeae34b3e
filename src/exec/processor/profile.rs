//! Times of operations.

use std::sync::Mutex;
use std::time::Duration;

/// How often each operation of a program ran, and how long it took all together.
#[derive(Debug, Default)]
pub struct Profile(Mutex<Vec<(u64, Duration)>>);

impl Profile {
    /// Adds a run of operation number `at`.
    pub fn add(&self, at: usize, took: Duration) {
        let mut times = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if times.len() <= at {
            times.resize(at + 1, (0, Duration::ZERO));
        }
        times[at].0 += 1;
        times[at].1 += took;
    }

    /// Runs and time by number of the operation; shorter than the program where the last ones did not run.
    pub fn times(&self) -> Vec<(u64, Duration)> {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Forgets all runs.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).clear();
    }
}
