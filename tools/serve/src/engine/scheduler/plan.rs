//! How many tokens of which request the next step takes, and who is preempted when pages run short.

use std::time::Instant;

use trine::generate::End;

use super::super::backend::Backend;
use super::super::request::Ended;
use super::{Active, Scheduler};

/// Active requests by their index, ascending, each with how many of its tokens are evaluated.
pub(super) type Plan = Vec<(usize, usize)>;

impl<B: Backend> Scheduler<B> {
    /// How many tokens of which active request the next step takes; ascending, nothing of requests that are left out.
    pub(super) fn plan(&mut self) -> Plan {
        let ready = |a: &Active| !a.run.is_stalled() && a.rest() > 0 && !a.lacks_source();
        let settings = self.active.iter().filter(|a| ready(a)).map(|a| &a.run.setting);
        // The next setting in the round.
        let Some(setting) = settings.min_by_key(|&setting| (*setting <= self.setting, setting)).cloned() else {
            return Vec::new();
        };
        self.setting = setting;
        let active = &self.active;
        let group = (0..active.len()).filter(|&i| ready(&active[i]) && active[i].run.setting == self.setting);
        let (decoding, mut reading): (Vec<_>, Vec<_>) = group.partition(|&i| active[i].rest() == 1);
        let others = active.len() + self.waiting.len() > 1;
        let mut budget = self.prefill.budget(decoding.len(), others);
        let half = budget.div_ceil(2);
        let mut plan: Plan = decoding.into_iter().map(|i| (i, 1)).collect();
        let mut read = |i: usize, most: usize| {
            let rest = active[i].rest();
            let n = match active[i].run.is_whole() {
                // The first of a step may be longer than any chunk.
                true if rest <= budget || plan.is_empty() => rest,
                true => 0,
                false => rest.min(most).min(budget),
            };
            budget = budget.saturating_sub(n);
            if n > 0 {
                plan.push((i, n));
            }
        };
        reading.sort_by_key(|&i| active[i].run.admitted());
        if reading.len() > 1 {
            // Half for the oldest, the rest first for the one that is through soonest.
            read(reading.remove(0), half);
            reading.sort_by_key(|&i| active[i].rest());
        }
        reading.into_iter().for_each(|i| read(i, usize::MAX));
        plan.sort_unstable();
        plan
    }

    /// Sees to pages for all of a plan; what is preempted leaves it.
    pub(super) fn fit(&mut self, mut plan: Plan, now: Instant) -> Plan {
        let mut forgotten = false;
        loop {
            let pages = plan.iter().map(|&(i, n)| self.active[i].seq.pages_for(n));
            if self.make_room(pages.sum()) {
                return plan;
            }
            let order = |&i: &usize| (self.active[i].run.is_stalled(), self.active[i].run.admitted());
            let last = (0..self.active.len()).max_by_key(order);
            let Some(last) = last.filter(|_| self.active.len() > 1) else {
                if !forgotten {
                    // A page that the cache shares with the sequence would be copied; without the cache it need not be.
                    self.tree.clear();
                    forgotten = true;
                    continue;
                }
                // Alone, with all pages there are: the memory is its context.
                for &(i, _) in &plan {
                    let run = &mut self.active[i].run;
                    run.end(Ended::Text(End::Context), now);
                }
                return Vec::new();
            };
            self.preempt(last);
            plan.retain(|&(i, _)| i != last);
            for (i, _) in &mut plan {
                *i -= usize::from(*i > last);
            }
        }
    }
}
