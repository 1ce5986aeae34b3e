//! One forward pass, and what follows from its logits.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use trine::pool;
use trine::step::{Segment, Sink, StepError};

use super::super::backend::Backend;
use super::super::request::TokenLogprobs;
use super::super::running::Running;
use super::plan::Plan;
use super::{Active, Scheduler};

/// What a forward pass gave, by the indices of active requests, ascending.
#[derive(Default)]
struct Evaluated {
    /// Logits from which the next token is chosen.
    ends: Vec<(usize, Vec<f32>)>,
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
        if position + 1 == run.tokens().len() {
            self.out.ends.push((i, logits.to_vec()));
        } else if let Some(logprobs) = run.read(position, logits) {
            self.out.prompts.push((i, logprobs));
        }
    }

    fn hidden(&mut self, segment: usize, index: usize, state: &[f32]) {
        let (i, first, _) = self.runs[segment];
        self.out.states.push((i, first + index, state.to_vec()));
    }
}

/// A row of logits from which the next token of an active request is chosen.
type Choice<'a> = (&'a mut Running, Vec<f32>);

impl<B: Backend> Scheduler<B> {
    /// One forward pass, and the tokens chosen from it. False when there was nothing to evaluate.
    pub(super) fn step(&mut self, clock: &dyn Fn() -> Instant) -> bool {
        let plan = self.plan();
        let plan = self.fit(plan, clock());
        if plan.is_empty() {
            return false;
        }
        let start = clock();
        let decoding = plan.iter().filter(|&&(i, _)| self.active[i].rest() == 1);
        let decoding = decoding.count();
        let rows: usize = plan.iter().map(|(_, n)| n).sum();
        let evaluated = match self.evaluate(&plan) {
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
        self.choose(evaluated.ends, now);
        let took = now.duration_since(start);
        self.pace.measured(rows, took);
        self.counters.add_time(took, rows - decoding, decoding);
        self.counters
            .prompt_tokens
            .fetch_add((rows - decoding) as u64, Relaxed);
        true
    }

    /// The logits of a plan.
    fn evaluate(&mut self, plan: &Plan) -> Result<Evaluated, StepError> {
        let mut planned = plan.iter().peekable();
        let (mut segments, mut runs) = (Vec::new(), Vec::new());
        for (i, Active { run, seq, .. }) in self.active.iter_mut().enumerate() {
            let Some(&(_, n)) = planned.next_if(|(at, _)| *at == i) else {
                continue;
            };
            let first = seq.len();
            segments.push(Segment {
                seq,
                tokens: &run.tokens()[first..first + n],
                logits_from: run.logits_from(first, n),
            });
            runs.push((i, first, &*run));
        }
        let mut sorter = Sorter {
            runs: &runs,
            out: Evaluated::default(),
        };
        self.backend.step(self.width, &mut segments, &mut sorter)?;
        Ok(sorter.out)
    }

    /// Tells how much of its prompt an active request has read, of which `n` tokens just now, and leaves the pages that
    /// it filled to others.
    fn tell_progress(&mut self, i: usize, n: usize, now: Instant) {
        let active = &mut self.active[i];
        let first = active.seq.len() - n;
        // One token may be all of a prompt that was not in the cache.
        active.run.progress(active.seq.len(), now);
        if n == 1 {
            return;
        }
        let page = active.seq.layout().positions;
        let whole = active.seq.len() / page * page;
        if whole > first / page * page {
            // Whole pages only: whoever shares the last one makes this sequence copy it.
            active.remember(whole, &mut self.tree);
        }
    }

    /// Chooses the next tokens, on all threads: a large vocabulary takes as long to sort as its logits take to compute.
    fn choose(&mut self, ends: Vec<(usize, Vec<f32>)>, now: Instant) {
        let mut ends = ends.into_iter().peekable();
        let mut choices: Vec<Choice<'_>> = Vec::new();
        for (i, active) in self.active.iter_mut().enumerate() {
            if let Some((_, logits)) = ends.next_if(|(at, _)| *at == i) {
                choices.push((&mut active.run, logits));
            }
        }
        let before: usize = choices.iter().map(|(run, _)| run.generated_here()).sum();
        let model = &self.model;
        model.pool().install(|| {
            pool::chunks_mut(&mut choices, 1, |_, choice| {
                for (run, logits) in choice {
                    run.advance(model, logits, now);
                }
            });
        });
        let after: usize = choices.iter().map(|(run, _)| run.generated_here()).sum();
        let generated = (after - before) as u64;
        self.counters.generated_tokens.fetch_add(generated, Relaxed);
    }
}
