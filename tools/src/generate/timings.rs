//! The times of the phases, in the words of llama.cpp.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trine::generate::{Stats, Timed};

use crate::load::peak_memory;

/// When a run began, how its model was loaded.
pub struct Timings {
    start: Instant,
    load: Duration,
    weights: String,
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// Milliseconds per token and tokens per second; 0 where there is nothing to divide by.
fn rates(t: Timed) -> (f64, f64) {
    if t.count == 0 || t.time.is_zero() {
        return (0.0, 0.0);
    }
    (ms(t.time) / t.count as f64, t.count as f64 / t.time.as_secs_f64())
}

impl Timings {
    /// A run that began at `start` and loaded its model in `load`, the weights in the layouts named.
    pub fn new(start: Instant, load: Duration, weights: String) -> Timings {
        Timings { start, load, weights }
    }

    /// The summary on standard error.
    pub fn print(&self, stats: &Stats) {
        let line = |name: &str, timed: Timed, what: &str| {
            let (each, rate) = rates(timed);
            let (n, time) = (timed.count, timed.time);
            note!(
                "{name:>16} = {:10.2} ms / {n:5} {what:<6} ({each:8.2} ms per token, {rate:8.2} tokens per second)",
                ms(time)
            );
        };
        note!("");
        note!("{:>16} = {:10.2} ms", "load time", ms(self.load));
        line("prompt eval time", stats.prompt, "tokens");
        line("eval time", stats.eval, "runs");
        line("sampling time", stats.sample, "runs");
        let n = stats.prompt.count + stats.eval.count;
        note!("{:>16} = {:10.2} ms / {n:5} tokens", "total time", ms(self.start.elapsed()));
        note!("{:>16} = {}", "weights", self.weights);
        if let Some(bytes) = peak_memory() {
            note!("{:>16} = {:10.2} MiB", "peak memory", bytes as f64 / 1_048_576.0);
        }
    }

    /// The summary for `--json`.
    pub fn to_json(&self, stats: &Stats) -> Value {
        json!({
            "load_ms": ms(self.load),
            "prompt_ms": ms(stats.prompt.time),
            "prompt_tokens": stats.prompt.count,
            "prompt_per_second": rates(stats.prompt).1,
            "eval_ms": ms(stats.eval.time),
            "eval_tokens": stats.eval.count,
            "eval_per_second": rates(stats.eval).1,
            "sample_ms": ms(stats.sample.time),
            "total_ms": ms(self.start.elapsed()),
            "weights": self.weights,
            "peak_memory_bytes": peak_memory(),
        })
    }
}
