//! Times and counts of a generation.

use std::time::Duration;

/// How often something was done, and the time it took in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timed {
    /// How often.
    pub count: usize,
    /// How long in all.
    pub time: Duration,
}

impl Timed {
    pub(super) fn add(&mut self, count: usize, time: Duration) {
        self.count += count;
        self.time += time;
    }
}

/// Counts and times of everything a context did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Tokens of prompts that were evaluated.
    pub prompt: Timed,
    /// Tokens of prompts that were in the context already.
    pub reused: usize,
    /// How often a full context was shifted; what was evaluated again for it counts among the prompts.
    pub shifts: usize,
    /// Generated tokens that were evaluated.
    pub eval: Timed,
    /// Tokens that were chosen.
    pub sample: Timed,
}
