//! How long a portion of a prompt may be.

use std::time::Duration;

use super::options::Options;

/// Rows that a portion has at least, while others wait for their next token.
const LEAST: usize = 8;

/// Measures how fast prompts are read.
#[derive(Debug)]
pub(super) struct Pace {
    target: Duration,
    fixed: Option<usize>,
    ubatch: usize,
    /// Rows per second, of steps with more than a few rows; 0 before the first.
    rate: f64,
}

impl Pace {
    pub fn new(options: &Options) -> Pace {
        Pace {
            target: options.target_step,
            fixed: options.prefill_chunk,
            ubatch: options.ubatch,
            rate: 0.0,
        }
    }

    /// Rows of prompts in the next step, in which `decoding` sequences get their next token.
    pub fn budget(&self, decoding: usize) -> usize {
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        if decoding == 0 {
            return self.ubatch;
        }
        let rows = (self.target.as_secs_f64() * self.rate) as usize;
        let most = self.ubatch.max(LEAST);
        rows.saturating_sub(decoding).clamp(LEAST, most)
    }

    /// A step of so many rows took so long.
    pub fn measured(&mut self, rows: usize, took: Duration) {
        if rows < LEAST || took.is_zero() {
            return;
        }
        let rate = rows as f64 / took.as_secs_f64();
        self.rate = if self.rate == 0.0 {
            rate
        } else {
            0.75 * self.rate + 0.25 * rate
        };
    }
}
