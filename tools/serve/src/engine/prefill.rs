//! Chunked prefill: how many tokens of prompts a step reads.

use std::time::Duration;

use super::options::Options;

/// Fewest tokens of a chunk, while others wait for their next token, and while nobody does.
const LEAST: usize = 4;
const LEAST_ALONE: usize = 16;
/// Tokens of the first chunk while nobody waits for a token: its time is not known.
const FIRST_ALONE: usize = 128;
/// How many times the target a step may take while nobody waits for anything.
const ALONE: u32 = 4;

/// Measured times of steps: of those with tokens of running texts alone, and what each token of a prompt adds to them.
#[derive(Debug)]
pub(super) struct Prefill {
    target: Duration,
    fixed: Option<usize>,
    ubatch: usize,
    /// Seconds of a step without prompts; 0 before the first.
    alone: f64,
    /// Seconds that a token of a prompt adds to a step of others; 0 before the first.
    row: f64,
    /// Tokens of the last chunk beside others. The next has at most twice as many: what was measured with few tokens
    /// says little about many.
    last: usize,
    /// Seconds of a token of a prompt in a step of prompts alone, 0 before the first, and tokens of the last one.
    reading: f64,
    last_alone: usize,
}

impl Prefill {
    pub fn new(options: &Options) -> Prefill {
        Prefill {
            target: options.target_step,
            fixed: options.prefill_chunk,
            ubatch: options.ubatch,
            alone: 0.0,
            row: 0.0,
            last: 0,
            reading: 0.0,
            last_alone: 0,
        }
    }

    /// Tokens of prompts in the next step, in which `decoding` sequences get their next token. `others`: more than one
    /// request is there.
    pub fn budget(&self, decoding: usize, others: bool) -> usize {
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        if decoding == 0 {
            // Whoever comes in the middle of a step waits for its end.
            let target = if others { self.target } else { ALONE * self.target };
            let most = self.ubatch.min((2 * self.last_alone).max(FIRST_ALONE));
            let rows = target.as_secs_f64() / self.reading;
            return (rows as usize).clamp(LEAST_ALONE.min(most), most);
        }
        let most = self.ubatch.min(2 * self.last).max(LEAST);
        let rows = (self.target.as_secs_f64() - self.alone) / self.row;
        // Not a number, and so none, before both are known; none too where others alone take longer than the target.
        (rows as usize).clamp(LEAST, most)
    }

    /// Takes in the time of a step in which `decoding` sequences got their next token and `reading` tokens of prompts
    /// were read.
    pub fn measured(&mut self, decoding: usize, reading: usize, took: Duration) {
        let took = took.as_secs_f64();
        if decoding == 0 {
            if reading > 0 {
                average(&mut self.reading, took / reading as f64);
                self.last_alone = reading;
            }
            return;
        }
        if reading == 0 {
            average(&mut self.alone, took);
        } else {
            // A step cannot be shorter than one with less work; the clock may say so.
            let added = (took - self.alone).max(0.25 * took);
            average(&mut self.row, added / reading as f64);
            self.last = reading;
        }
    }
}

/// Takes a value into an average that forgets a quarter each time.
fn average(average: &mut f64, value: f64) {
    *average = match *average {
        0.0 => value,
        before => 0.75 * before + 0.25 * value,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefill(target: u64, prefill_chunk: Option<usize>) -> Prefill {
        Prefill::new(&Options { target_step: Duration::from_millis(target), prefill_chunk, ..Options::default() })
    }

    /// The chunks of a long prompt beside others, where a step takes 40 ms and each row of the prompt 5 more.
    fn chunks(prefill: &mut Prefill, steps: usize) -> Vec<usize> {
        let took = |rows: usize| Duration::from_millis(40 + 5 * rows as u64);
        prefill.measured(4, 0, took(0));
        let step = |_| {
            let rows = prefill.budget(4, true);
            prefill.measured(4, rows, took(rows));
            rows
        };
        (0..steps).map(step).collect()
    }

    #[test]
    fn chunks_grow_up_to_the_target() {
        assert_eq!(chunks(&mut prefill(100, None), 4), [4, 8, 12, 12]);
        assert_eq!(chunks(&mut prefill(1000, None), 8)[7], 192);
        // Others alone take as long as that already.
        assert_eq!(chunks(&mut prefill(30, None), 3), [LEAST; 3]);
        assert_eq!(chunks(&mut prefill(100, Some(50)), 2), [50; 2]);
    }

    #[test]
    fn prompts_alone_are_read_in_steps_that_end_too() {
        let mut prefill = prefill(100, None);
        assert_eq!(prefill.budget(0, false), FIRST_ALONE);
        // Two milliseconds a token: 200 in four times the target.
        prefill.measured(0, 128, Duration::from_millis(256));
        assert_eq!(prefill.budget(0, false), 200);
        assert_eq!(prefill.budget(0, true), 50);
        // What whole chunks take says nothing of small ones beside others.
        assert_eq!(prefill.budget(4, true), LEAST);
        // A fast machine takes all that a step may have, by and by.
        for expected in [256, 400, 512, 512] {
            prefill.reading = 1e-5;
            prefill.measured(0, expected / 2, Duration::from_micros(expected as u64 * 5));
            assert_eq!(prefill.budget(0, false), expected.min(512));
        }
        // And a slow one some.
        prefill.reading = 1.0;
        assert_eq!(prefill.budget(0, true), LEAST_ALONE);
    }
}
