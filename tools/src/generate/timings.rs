//! What took how long, in the words of llama.cpp.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::load::peak_memory;

/// Times and counts of one run.
pub struct Timings {
    start: Instant,
    load: Duration,
    prompt: (usize, Duration),
    eval: (usize, Duration),
    sample: (usize, Duration),
    weights: String,
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// Milliseconds per token and tokens per second; 0 where there is nothing to divide by.
fn rates((n, time): (usize, Duration)) -> (f64, f64) {
    if n == 0 || time.is_zero() {
        return (0.0, 0.0);
    }
    (ms(time) / n as f64, n as f64 / time.as_secs_f64())
}

impl Timings {
    /// A run that began at `start` and loaded its model in `load`, the weights in the layouts named.
    pub fn new(start: Instant, load: Duration, weights: String) -> Timings {
        Timings {
            start,
            load,
            weights,
            prompt: Default::default(),
            eval: Default::default(),
            sample: Default::default(),
        }
    }

    /// `n` tokens of a prompt were evaluated.
    pub fn prompt(&mut self, n: usize, time: Duration) {
        self.prompt.0 += n;
        self.prompt.1 += time;
    }

    /// A generated token was evaluated.
    pub fn eval(&mut self, time: Duration) {
        self.eval.0 += 1;
        self.eval.1 += time;
    }

    /// A token was chosen.
    pub fn sample(&mut self, time: Duration) {
        self.sample.0 += 1;
        self.sample.1 += time;
    }

    /// The summary on standard error.
    pub fn print(&self) {
        let line = |name: &str, (n, time): (usize, Duration), what: &str| {
            let (each, rate) = rates((n, time));
            note!(
                "{name:>16} = {:10.2} ms / {n:5} {what:<6} ({each:8.2} ms per token, {rate:8.2} tokens per second)",
                ms(time)
            );
        };
        note!("");
        note!("{:>16} = {:10.2} ms", "load time", ms(self.load));
        line("prompt eval time", self.prompt, "tokens");
        line("eval time", self.eval, "runs");
        line("sampling time", self.sample, "runs");
        let n = self.prompt.0 + self.eval.0;
        note!(
            "{:>16} = {:10.2} ms / {n:5} tokens",
            "total time",
            ms(self.start.elapsed())
        );
        note!("{:>16} = {}", "weights", self.weights);
        if let Some(bytes) = peak_memory() {
            note!(
                "{:>16} = {:10.2} MiB",
                "peak memory",
                bytes as f64 / 1_048_576.0
            );
        }
    }

    /// The summary for `--json`.
    pub fn to_json(&self) -> Value {
        json!({
            "load_ms": ms(self.load),
            "prompt_ms": ms(self.prompt.1),
            "prompt_tokens": self.prompt.0,
            "prompt_per_second": rates(self.prompt).1,
            "eval_ms": ms(self.eval.1),
            "eval_tokens": self.eval.0,
            "eval_per_second": rates(self.eval).1,
            "sample_ms": ms(self.sample.1),
            "total_ms": ms(self.start.elapsed()),
            "weights": self.weights,
            "peak_memory_bytes": peak_memory(),
        })
    }
}
