//! Prompts that the model's encoder reads, for texts that attend to them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::super::backend::Backend;
use super::Scheduler;

impl<B: Backend> Scheduler<B> {
    /// Has the encoder read the prompt of the request that waits for that longest, and no other one: those that generate
    /// wait for it. Those that begin with the same prompt get what was read for it before. False where nothing was read.
    pub(super) fn read_source(&mut self, clock: &dyn Fn() -> Instant) -> bool {
        let waits = |&i: &usize| !self.active[i].run.is_stalled() && self.active[i].lacks_source();
        let mut waiting: Vec<usize> = (0..self.active.len()).filter(waits).collect();
        waiting.sort_by_key(|&i| self.active[i].run.admitted());
        waiting.retain(|&i| {
            let run = &self.active[i].run;
            let known = self.active.iter().find(|a| a.seq.source().is_some() && a.run.shares_source(run));
            match known.map(|a| a.seq.fork(0)) {
                Some(seq) => self.active[i].seq = seq,
                None => return true,
            }
            false
        });
        let Some(&i) = waiting.first() else {
            return false;
        };
        let start = clock();
        let active = &mut self.active[i];
        let (run, seq) = (&mut active.run, &mut active.seq);
        match self.backend.read_source(&run.setting, seq, run.source(), run.cancel()) {
            // one that was cancelled is let go of before the next step
            Err(_) if run.cancel().is_cancelled() => {}
            Err(e) => run.fail(e.to_string()),
            Ok(()) => {
                let tokens = run.source().len();
                self.counters.add_time(clock().duration_since(start), tokens, 0);
                self.counters.prompt_tokens.fetch_add(tokens as u64, Relaxed);
            }
        }
        true
    }
}
