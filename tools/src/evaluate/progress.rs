//! Progress on standard error: a line with the expected time, on a terminal a bar as well.

use std::time::Instant;

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

/// Counts chunks.
pub struct Progress {
    start: Instant,
    total: usize,
    bar: ProgressBar,
}

impl Progress {
    /// `total` chunks to come.
    pub fn new(total: usize) -> Progress {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} chunks, ETA {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        Progress {
            start: Instant::now(),
            total,
            // Draws on standard error, and only where that is a terminal.
            bar: ProgressBar::new(total as u64).with_style(style),
        }
    }

    /// `done` chunks are done.
    pub fn tick(&mut self, done: usize) {
        if done == 1 {
            let pass = self.start.elapsed();
            let all = pass * u32::try_from(self.total).unwrap_or(u32::MAX);
            note!(
                "{:.2} seconds per chunk - ETA {}",
                pass.as_secs_f64(),
                HumanDuration(all)
            );
        }
        self.bar.set_position(done as u64);
    }

    /// No more chunks.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
