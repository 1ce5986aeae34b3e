//! One forward pass, and what follows from its logits.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use trine::generate::speculate::Aside;
use trine::pool;
use trine::step::{Segment, Sink, StepError};

use super::super::backend::Backend;
use super::super::running::{Drafts, Running};
use super::draft::{Draft, Drafted};
use super::plan::Plan;
use super::{Active, Scheduler};

/// A request in a forward pass.
struct Run<'a> {
    /// The position of its first token there.
    first: usize,
    run: &'a mut Running,
    /// Its drafter, where that hears hidden states.
    listener: Option<&'a mut Aside>,
}

/// The requests of a forward pass by its segments.
struct Runs<'a>(Vec<Run<'a>>);

impl Sink for Runs<'_> {
    fn wants_hidden(&self, segment: usize) -> bool {
        self.0[segment].run.wants_hidden()
    }

    fn hears_hidden(&self, segment: usize) -> bool {
        self.0[segment].listener.is_some()
    }

    fn logits(&mut self, segment: usize, index: usize, logits: &[f32]) {
        let Run { first, run, .. } = &mut self.0[segment];
        run.take_logits(*first + index, logits);
    }

    fn hidden(&mut self, segment: usize, index: usize, state: &[f32]) {
        let Run { first, run, listener } = &mut self.0[segment];
        match listener {
            Some(listener) => listener.hear(*first + index, state),
            None => run.take_hidden(*first + index, state),
        }
    }
}

/// An active request whose next tokens are chosen.
struct Choice<'a> {
    active: &'a mut Active,
    draft: Option<&'a Draft>,
    /// Drafted tokens that the text has.
    accepted: usize,
}

impl<B: Backend> Scheduler<B> {
    /// One forward pass, and the tokens chosen from it, behind one of the model's encoder where a prompt waits for that.
    /// False when there was nothing to evaluate.
    pub(super) fn step(&mut self, clock: &dyn Fn() -> Instant) -> bool {
        let read = self.read_source(clock);
        let plan = self.plan();
        let plan = self.fit(plan, clock());
        if plan.is_empty() {
            return read;
        }
        // Second models read prompts and what was written without drafts; a draft takes as long as others after that.
        let mut drafted = self.may_draft(&plan);
        let start = clock();
        let decoding = plan.iter().filter(|&&(i, _)| self.active[i].is_generating());
        let decoding = decoding.count();
        let rows: usize = plan.iter().map(|(_, n)| n).sum();
        self.draft(&mut drafted);
        if let Err(e) = self.evaluate(&plan, drafted.list()) {
            for &(i, _) in &plan {
                self.active[i].run.fail(e.to_string());
            }
            return true;
        }
        let now = clock();
        for &(i, n) in &plan {
            self.tell_progress(i, n, now);
        }
        let tokens = self.choose(drafted.list(), now);
        let took = now.duration_since(start);
        match drafted {
            Drafted::NotAsked => self.prefill.measured(decoding, rows - decoding, took),
            Drafted::Nothing => self.pace(plan.len()).plain(took / plan.len().max(1) as u32),
            Drafted::Tried(_) => {
                let pace = self.pace(plan.len());
                pace.round(took);
                pace.accepted(tokens);
            }
        }
        self.counters.add_time(took, rows - decoding, decoding);
        self.counters.prompt_tokens.fetch_add((rows - decoding) as u64, Relaxed);
        true
    }

    /// Evaluates the tokens of a plan, and drafted ones.
    fn evaluate(&mut self, plan: &Plan, drafts: &[Draft]) -> Result<(), StepError> {
        let mut planned = plan.iter().peekable();
        let mut drafts = drafts.iter().peekable();
        // Of every segment its tokens, which its request has too, while that takes in logits.
        let mut tokens: Vec<(Vec<u32>, usize)> = Vec::new();
        for &(i, n) in plan {
            tokens.push(match drafts.next_if(|d| d.index == i) {
                Some(draft) => (draft.tokens.clone(), draft.of_text - 1),
                None => {
                    let Active { run, seq, .. } = &self.active[i];
                    let (tokens, from) = run.wanted(seq.len(), n);
                    (tokens.to_vec(), from)
                }
            });
        }
        let mut tokens = tokens.iter();
        let (mut segments, mut runs) = (Vec::new(), Runs(Vec::new()));
        let source = self.aside.as_ref().filter(|source| source.hears());
        for (i, Active { run, seq, aside, .. }) in self.active.iter_mut().enumerate() {
            if planned.next_if(|(at, _)| *at == i).is_some()
                && let Some((tokens, logits_from)) = tokens.next()
            {
                let source = source.filter(|_| run.drafts == Drafts::Aside);
                let listener =
                    source.map(|source| &mut *aside.get_or_insert_with(|| source.for_text(self.options.n_ctx())));
                runs.0.push(Run { first: seq.len(), run, listener });
                segments.push(Segment { seq, tokens, logits_from: *logits_from });
            }
        }
        self.backend.step(&self.setting, &mut segments, &mut runs)?;
        self.catch_up(plan);
        Ok(())
    }

    /// Lets heads read texts of which many hidden states wait for them.
    fn catch_up(&mut self, plan: &Plan) {
        for &(i, _) in plan {
            let Active { run, seq, aside: Some(aside), .. } = &mut self.active[i] else {
                continue;
            };
            let text = &run.tokens()[..seq.len().min(run.tokens().len())];
            if aside.catch_up(text).is_err() {
                run.drafts = Drafts::None;
            }
        }
    }

    /// Tells how much of its prompt an active request has read, of which `n` tokens just now, and leaves the pages that
    /// it filled to others.
    fn tell_progress(&mut self, i: usize, n: usize, now: Instant) {
        let active = &mut self.active[i];
        // Behind the text may be a draft.
        let read = active.seq.len().min(active.run.tokens().len());
        // One token may be all of a prompt that was not in the cache.
        active.run.progress(read, now);
        if n == 1 {
            return;
        }
        let first = read - n;
        let page = active.seq.layout().positions;
        let whole = read / page * page;
        if whole > first / page * page {
            // Whole pages only: whoever shares the last one makes this sequence copy it.
            active.remember(whole, &mut self.tree);
        }
    }

    /// Chooses the next tokens, on all threads: a large vocabulary takes as long to sort as its logits take to compute.
    /// The sequences let go of drafted tokens that their texts do not have. The number of chosen tokens.
    fn choose(&mut self, drafts: &[Draft], now: Instant) -> usize {
        let generated = |active: &[Active]| -> usize { active.iter().map(|a| a.run.generated()).sum() };
        let before = generated(&self.active);
        let mut drafts = drafts.iter().peekable();
        let mut choices: Vec<Choice<'_>> = Vec::new();
        for (i, active) in self.active.iter_mut().enumerate() {
            if active.run.has_rows() {
                choices.push(Choice { active, draft: drafts.next_if(|d| d.index == i), accepted: 0 });
            }
        }
        self.model.pool().install(|| {
            pool::chunks_mut(&mut choices, 1, |_, choice| {
                for c in choice {
                    c.accepted = c.active.run.follow(c.draft.map_or(&[], Draft::drafted), now);
                }
            });
        });
        for Choice { active, draft, accepted } in choices {
            if let Some(draft) = draft {
                active.seq.take_back(draft.before.len() + draft.of_text + accepted, &draft.before);
                self.counters.add_draft(draft.drafted().len(), accepted);
            }
        }
        for active in &mut self.active {
            if let Some(keep) = active.run.take_shift() {
                active.seq.truncate(keep);
                active.aside = None;
            }
        }
        let tokens = generated(&self.active) - before;
        self.counters.generated_tokens.fetch_add(tokens as u64, Relaxed);
        tokens
    }
}
