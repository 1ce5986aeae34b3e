//! Which tokens a micro-batch of llama-imatrix holds.

use std::ops::Range;

use super::error::{CollectError, MAX_SIDE_BY_SIDE};

/// Tokens that a micro-batch must have to count for a plain matrix.
pub(super) const MIN_ROWS: usize = 16;

/// How chunks are batched, which decides the order of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    n_ctx: usize,
    n_batch: usize,
    n_ubatch: usize,
}

/// Tokens that go through the model in one call, of one chunk of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Its number in the group.
    pub chunk: usize,
    /// Its tokens' places in the chunk.
    pub tokens: Range<usize>,
}

impl Schedule {
    /// Chunks of `n_ctx` tokens in batches of `n_batch` and micro-batches of `n_ubatch`, llama.cpp's `-c`,
    /// `-b` and `-ub`; its defaults are 512, 2048 and 512.
    ///
    /// # Errors
    /// More than 256 chunks in a batch.
    pub fn new(n_ctx: usize, n_batch: usize, n_ubatch: usize) -> Result<Schedule, CollectError> {
        let (n_ctx, n_batch) = (n_ctx.max(1), n_batch.max(1));
        let chunks = (n_batch / n_ctx).max(1);
        if chunks > MAX_SIDE_BY_SIDE {
            return Err(CollectError::SideBySide { n_batch, chunks, n_ctx });
        }
        let n_batch = n_batch.min(chunks * n_ctx);
        Ok(Schedule { n_ctx, n_batch, n_ubatch: n_ubatch.clamp(1, n_batch) })
    }

    /// Chunks that run side by side. A run can be continued after a multiple of them without changing
    /// the order of the sums.
    pub fn side_by_side(&self) -> usize {
        (self.n_batch / self.n_ctx).max(1)
    }

    /// Tokens that count for plain matrices in a group of `chunks` chunks.
    pub fn counted(&self, chunks: usize) -> usize {
        let passes = self.passes(chunks);
        let rows = passes.iter().map(|p| rows(p));
        rows.filter(|&n| n >= MIN_ROWS).sum()
    }

    /// The micro-batches of a group of `chunks` chunks.
    pub(super) fn passes(&self, chunks: usize) -> Vec<Vec<Part>> {
        let mut passes = Vec::new();
        let batch = self.n_batch.min(self.n_ctx);
        for start in (0..self.n_ctx).step_by(batch) {
            let end = (start + batch).min(self.n_ctx);
            // Very small micro-batches cannot hold a token of every chunk; then some chunks go first.
            // That llama.cpp lets one more in than there is room for belongs to the order.
            let together = chunks.min(self.n_ubatch + 1);
            let tokens = (self.n_ubatch / together.max(1)).max(1);
            for first in (0..chunks).step_by(together.max(1)) {
                let last = (first + together).min(chunks);
                let tokens = if last - first < together { (self.n_ubatch / (last - first)).max(1) } else { tokens };
                for from in (start..end).step_by(tokens) {
                    let range = from..(from + tokens).min(end);
                    let part = |chunk| Part { chunk, tokens: range.clone() };
                    passes.push((first..last).map(part).collect());
                }
            }
        }
        passes
    }
}

/// Tokens of a pass.
pub(super) fn rows(pass: &[Part]) -> usize {
    pass.iter().map(|p| p.tokens.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `chunk:from-to` of every part, micro-batches apart.
    fn shown(schedule: (usize, usize, usize), chunks: usize) -> Vec<String> {
        let (n_ctx, n_batch, n_ubatch) = schedule;
        let schedule = Schedule::new(n_ctx, n_batch, n_ubatch).expect("a schedule");
        let part = |p: &Part| format!("{}:{}-{}", p.chunk, p.tokens.start, p.tokens.end);
        let pass = |p: &Vec<Part>| p.iter().map(part).collect::<Vec<_>>().join(" ");
        schedule.passes(chunks).iter().map(pass).collect()
    }

    #[test]
    fn micro_batches_hold_a_part_of_every_chunk() {
        assert_eq!(shown((512, 1024, 512), 2), ["0:0-256 1:0-256", "0:256-512 1:256-512"]);
        // 70 tokens for 3 chunks: 23 of each.
        let three = shown((100, 350, 70), 3);
        assert_eq!(three[0], "0:0-23 1:0-23 2:0-23");
        assert_eq!(three[4], "0:92-100 1:92-100 2:92-100");
        // The last group may be smaller.
        assert_eq!(shown((100, 350, 70), 1), ["0:0-70", "0:70-100"]);
    }

    #[test]
    fn a_batch_smaller_than_a_chunk_is_cut_on_its_own() {
        assert_eq!(
            shown((300, 140, 60), 1),
            ["0:0-60", "0:60-120", "0:120-140", "0:140-200", "0:200-260", "0:260-280", "0:280-300"]
        );
    }

    #[test]
    fn chunks_that_find_no_place_come_later() {
        let passes = shown((2, 10, 3), 5);
        let first = ["0:0-1 1:0-1 2:0-1 3:0-1", "0:1-2 1:1-2 2:1-2 3:1-2"];
        assert_eq!(passes[..2], first);
        assert_eq!(passes[2..], ["4:0-2"]);
    }

    #[test]
    fn every_token_comes_once() {
        for (n_ctx, n_batch, n_ubatch) in [(7, 50, 3), (33, 100, 17), (64, 10, 4), (5, 1000, 64)] {
            let schedule = Schedule::new(n_ctx, n_batch, n_ubatch).expect("a schedule");
            for chunks in 1..=schedule.side_by_side() {
                let mut next = vec![0; chunks];
                for part in schedule.passes(chunks).iter().flatten() {
                    assert_eq!(part.tokens.start, next[part.chunk]);
                    next[part.chunk] = part.tokens.end;
                }
                assert_eq!(next, vec![n_ctx; chunks]);
            }
        }
    }

    #[test]
    fn small_micro_batches_do_not_count() {
        let schedule = Schedule::new(500, 500, 485).expect("a schedule");
        assert_eq!(schedule.counted(1), 485);
        assert!(matches!(Schedule::new(4, 2048, 512), Err(CollectError::SideBySide { chunks: 512, .. })));
    }
}
