//! One forward pass, and what follows from its logits.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use trine::pool;
use trine::step::{Segment, Sink, StepError};

use super::super::backend::Backend;
use super::super::request::TokenLogprobs;
use super::super::running::Running;
use super::draft::{Draft, Drafted};
use super::plan::Plan;
use super::{Active, Scheduler};

/// What a forward pass gave, by the indices of active requests, ascending.
#[derive(Default)]
struct Evaluated {
    /// Logits from which the next token is chosen, and where tokens were drafted those behind each of them.
    ends: Vec<(usize, Vec<Vec<f32>>)>,
    /// How likely the tokens of prompts were, where that was asked for.
    prompts: Vec<(usize, TokenLogprobs)>,
    /// Hidden states, where a vector was asked for, with their positions.
    states: Vec<(usize, usize, Vec<f32>)>,
}

/// Sorts what a forward pass gives.
struct Sorter<'a> {
    /// Of every segment: the index of its request, its first position, the request.
    runs: &'a [(usize, usize, &'a Running)],
    out: Evaluated,
}

impl Sink for Sorter<'_> {
    fn wants_hidden(&self, segment: usize) -> bool {
        self.runs[segment].2.wants_hidden()
    }

    fn logits(&mut self, segment: usize, index: usize, logits: &[f32]) {
        let (i, first, run) = self.runs[segment];
        let position = first + index;
        if position + 1 >= run.tokens().len() {
            match self.out.ends.last_mut().filter(|(last, _)| *last == i) {
                Some((_, rows)) => rows.push(logits.to_vec()),
                None => self.out.ends.push((i, vec![logits.to_vec()])),
            }
        } else if let Some(logprobs) = run.read(position, logits) {
            self.out.prompts.push((i, logprobs));
        }
    }

    fn hidden(&mut self, segment: usize, index: usize, state: &[f32]) {
        let (i, first, _) = self.runs[segment];
        self.out.states.push((i, first + index, state.to_vec()));
    }
}

/// An active request whose next tokens are chosen.
struct Choice<'a> {
    run: &'a mut Running,
    /// The logits behind its last token and behind every drafted one.
    rows: Vec<Vec<f32>>,
    drafted: &'a [u32],
    /// Drafted tokens that the text has.
    accepted: usize,
}

impl<B: Backend> Scheduler<B> {
    /// One forward pass, and the tokens chosen from it. False when there was nothing to evaluate.
    pub(super) fn step(&mut self, clock: &dyn Fn() -> Instant) -> bool {
        let plan = self.plan();
        let plan = self.fit(plan, clock());
        if plan.is_empty() {
            return false;
        }
        let start = clock();
        let decoding = plan.iter().filter(|&&(i, _)| self.active[i].is_generating());
        let decoding = decoding.count();
        let rows: usize = plan.iter().map(|(_, n)| n).sum();
        let drafted = self.draft(&plan);
        let evaluated = match self.evaluate(&plan, drafted.list()) {
            Ok(evaluated) => evaluated,
            Err(e) => {
                for &(i, _) in &plan {
                    self.active[i].run.fail(e.to_string());
                }
                return true;
            }
        };
        let now = clock();
        for (i, logprobs) in evaluated.prompts {
            self.active[i].run.keep(logprobs);
        }
        for &(i, n) in &plan {
            self.tell_progress(i, n, now);
        }
        for (i, position, state) in evaluated.states {
            self.active[i].run.pool(position, &state, now);
        }
        let tokens = self.choose(evaluated.ends, drafted.list(), now);
        let took = now.duration_since(start);
        match drafted {
            Drafted::NotAsked => self.pace.measured(decoding, rows - decoding, took),
            Drafted::Nothing => self.worth.measured(self.width, rows, false, tokens, took),
            Drafted::Tried(_) => self.worth.measured(self.width, rows, true, tokens, took),
        }
        self.counters.add_time(took, rows - decoding, decoding);
        self.counters.prompt_tokens.fetch_add((rows - decoding) as u64, Relaxed);
        true
    }

    /// The logits of a plan, and those behind drafted tokens.
    fn evaluate(&mut self, plan: &Plan, drafts: &[Draft]) -> Result<Evaluated, StepError> {
        let mut planned = plan.iter().peekable();
        let mut drafts = drafts.iter().peekable();
        let (mut segments, mut runs) = (Vec::new(), Vec::new());
        for (i, Active { run, seq, .. }) in self.active.iter_mut().enumerate() {
            let Some(&(_, n)) = planned.next_if(|(at, _)| *at == i) else {
                continue;
            };
            let first = seq.len();
            let (tokens, logits_from) = match drafts.next_if(|d| d.index == i) {
                Some(draft) => (&draft.tokens[..], 0),
                None => (&run.tokens()[first..first + n], run.logits_from(first, n)),
            };
            segments.push(Segment { seq, tokens, logits_from });
            runs.push((i, first, &*run));
        }
        let mut sorter = Sorter { runs: &runs, out: Evaluated::default() };
        self.backend.step(self.width, &mut segments, &mut sorter)?;
        Ok(sorter.out)
    }

    /// Tells how much of its prompt an active request has read, of which `n` tokens just now, and leaves the pages that
    /// it filled to others.
    fn tell_progress(&mut self, i: usize, n: usize, now: Instant) {
        let active = &mut self.active[i];
        // One token may be all of a prompt that was not in the cache.
        active.run.progress(active.seq.len(), now);
        if n == 1 {
            return;
        }
        let first = active.seq.len() - n;
        let page = active.seq.layout().positions;
        let whole = active.seq.len() / page * page;
        if whole > first / page * page {
            // Whole pages only: whoever shares the last one makes this sequence copy it.
            active.remember(whole, &mut self.tree);
        }
    }

    /// Chooses the next tokens, on all threads: a large vocabulary takes as long to sort as its logits take to compute.
    /// Says how many there are.
    fn choose(&mut self, ends: Vec<(usize, Vec<Vec<f32>>)>, drafts: &[Draft], now: Instant) -> usize {
        let mut ends = ends.into_iter().peekable();
        let mut drafted = drafts.iter().peekable();
        let mut choices: Vec<Choice<'_>> = Vec::new();
        for (i, active) in self.active.iter_mut().enumerate() {
            if let Some((_, rows)) = ends.next_if(|(at, _)| *at == i) {
                let draft = drafted.next_if(|d| d.index == i);
                choices.push(Choice {
                    run: &mut active.run,
                    rows,
                    drafted: draft.map_or(&[], Draft::drafted),
                    accepted: 0,
                });
            }
        }
        let before: usize = choices.iter().map(|c| c.run.generated_here()).sum();
        let model = &self.model;
        model.pool().install(|| {
            pool::chunks_mut(&mut choices, 1, |_, choice| {
                for c in choice {
                    c.accepted = c.run.follow(model, &mut c.rows, c.drafted, now);
                }
            });
        });
        let after: usize = choices.iter().map(|c| c.run.generated_here()).sum();
        let accepted = choices.iter().filter(|c| !c.drafted.is_empty());
        let accepted: Vec<usize> = accepted.map(|c| c.accepted).collect();
        self.settle(drafts, &accepted);
        let generated = after - before;
        self.counters.generated_tokens.fetch_add(generated as u64, Relaxed);
        generated
    }
}
