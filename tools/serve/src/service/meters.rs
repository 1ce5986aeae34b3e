//! Measurements of finished texts, for `/metrics`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::engine::{Done, Vector};

/// How often values fell below each of some bounds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for all above.
    buckets: Vec<AtomicU64>,
    micros: AtomicU64,
}

/// Seconds until a first token.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
/// Seconds between tokens.
const BETWEEN: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
/// Seconds of a request.
const WHOLE: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];

impl Histogram {
    fn new(bounds: &'static [f64]) -> Histogram {
        Histogram {
            bounds,
            buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            micros: AtomicU64::new(0),
        }
    }

    fn observe(&self, value: Duration, times: u64) {
        let seconds = value.as_secs_f64();
        let bucket = self.bounds.iter().position(|b| seconds <= *b);
        self.buckets[bucket.unwrap_or(self.bounds.len())].fetch_add(times, Relaxed);
        let micros = (value.as_micros() as u64).saturating_mul(times);
        self.micros.fetch_add(micros, Relaxed);
    }

    /// Upper bounds with how many values were at most as large, the last being the number of all values; then the sum
    /// of the values in seconds.
    pub fn read(&self) -> (Vec<(Option<f64>, u64)>, f64) {
        let bounds = self.bounds.iter().map(|b| Some(*b)).chain([None]);
        let mut sum = 0;
        let counts = bounds.zip(&self.buckets).map(|(bound, count)| {
            sum += count.load(Relaxed);
            (bound, sum)
        });
        let counts = counts.collect();
        (counts, self.micros.load(Relaxed) as f64 / 1e6)
    }
}

/// Measurements of finished texts.
#[derive(Debug)]
pub struct Meters {
    /// From the request to the logits of its first token.
    pub first_token: Histogram,
    /// From token to token, the mean of each text counted once for every pair.
    pub between: Histogram,
    /// From the request to the end.
    pub whole: Histogram,
    tokens: Mutex<BTreeMap<(u8, &'static str), u64>>,
}

impl Default for Meters {
    fn default() -> Meters {
        Meters {
            first_token: Histogram::new(FIRST_TOKEN),
            between: Histogram::new(BETWEEN),
            whole: Histogram::new(WHOLE),
            tokens: Mutex::default(),
        }
    }
}

impl Meters {
    /// A text ended.
    pub fn text(&self, done: &Done) {
        if done.generated_tokens > 0 {
            self.first_token.observe(done.prompt_time, 1);
        }
        if let Some(pairs @ 1..) = done.generated_tokens.checked_sub(1) {
            self.between.observe(done.generation_time / pairs as u32, pairs as u64);
        }
        self.whole.observe(done.prompt_time + done.generation_time, 1);
        self.count(done.bits, [done.prompt_tokens, done.cached_tokens, done.generated_tokens]);
    }

    /// A vector was made.
    pub fn vector(&self, vector: &Vector) {
        self.whole.observe(vector.time, 1);
        self.count(vector.bits, [vector.prompt_tokens, vector.cached_tokens, 0]);
    }

    /// Counts tokens of a prompt, those of them that were found in the cache, and generated ones.
    fn count(&self, bits: u8, [prompt, cached, generated]: [usize; 3]) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, n) in [("prompt", prompt - cached), ("cached", cached), ("generated", generated)] {
            *tokens.entry((bits, kind)).or_default() += n as u64;
        }
    }

    /// Tokens of finished texts by bits per weight and kind: read, found in the cache, generated.
    pub fn tokens(&self) -> BTreeMap<(u8, &'static str), u64> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let h = Histogram::new(&[0.1, 1.0]);
        for (ms, times) in [(50, 1), (100, 2), (500, 1), (5000, 3)] {
            h.observe(Duration::from_millis(ms), times);
        }
        let (buckets, sum) = h.read();
        assert_eq!(buckets, [(Some(0.1), 3), (Some(1.0), 4), (None, 7)]);
        assert_eq!(sum, 15.75);
    }
}
