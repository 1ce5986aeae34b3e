//! How fast an answer came.

use std::fmt;
use std::time::Duration;

use trine::generate::{Stats, Timed};

/// The cost of an answer: tokens that were read for it, and tokens that were written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Speed {
    read: Timed,
    written: Timed,
}

impl Speed {
    /// The work between two moments.
    pub fn between(before: &Stats, after: &Stats) -> Speed {
        let since =
            |before: Timed, after: Timed| Timed { count: after.count - before.count, time: after.time - before.time };
        Speed { read: since(before.prompt, after.prompt), written: since(before.eval, after.eval) }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |timed: Timed| match timed.time {
            Duration::ZERO => 0.0,
            time => timed.count as f64 / time.as_secs_f64(),
        };
        let (read, written) = (self.read.count, self.written.count);
        let (reading, writing) = (rate(self.read), rate(self.written));
        write!(f, "({read} tokens read, {reading:.1} t/s; {written} written, {writing:.1} t/s)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_of_one_answer() {
        let timed = |count, seconds| Timed { count, time: Duration::from_secs(seconds) };
        let before = Stats { prompt: timed(100, 1), eval: timed(10, 1), ..Stats::default() };
        let after = Stats { prompt: timed(130, 3), eval: timed(60, 5), ..Stats::default() };
        assert_eq!(Speed::between(&before, &after).to_string(), "(30 tokens read, 15.0 t/s; 50 written, 12.5 t/s)");
        let none = Speed::between(&after, &after).to_string();
        assert_eq!(none, "(0 tokens read, 0.0 t/s; 0 written, 0.0 t/s)");
    }
}
