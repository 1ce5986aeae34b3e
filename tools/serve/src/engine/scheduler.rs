//! What the next step consists of, and what follows from it.
//!
//! Nothing here can be seen in a text: a sequence's logits are the same in any step, so all choices are made for time and
//! memory alone. Every running sequence that has all but its last token evaluated gets its next token in every step of
//! its width; prompts are read in portions beside that. When pages run short, what the cache holds goes first, then the
//! youngest sequence gives its pages back and begins again later, with the same tokens.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use trine::generate::End;
use trine::pool;
use trine::step::{PagePool, PrefixTree, Segment, Sequence, StepError, StepOptions};
use trine::{Engine, Model};

use super::counters::Counters;
use super::handle::Job;
use super::options::Options;
use super::pace::Pace;
use super::queue::Admission;
use super::request::{Ended, Refused};
use super::running::{Fate, Running};

/// What evaluates the tokens of sequences.
pub(super) trait Backend {
    /// The pages of all sequences.
    fn pages(&self) -> &PagePool;

    /// [`Engine::step`] at a width; 0 where the model has one.
    fn step(
        &self,
        bits: u8,
        segments: &mut [Segment<'_>],
        sink: &mut (dyn FnMut(usize, usize, &[f32]) + Send),
    ) -> Result<(), StepError>;
}

impl Backend for Engine {
    fn pages(&self) -> &PagePool {
        self.pages()
    }

    fn step(
        &self,
        bits: u8,
        segments: &mut [Segment<'_>],
        sink: &mut (dyn FnMut(usize, usize, &[f32]) + Send),
    ) -> Result<(), StepError> {
        let options = StepOptions {
            bits: (bits > 0).then_some(bits),
            ..StepOptions::default()
        };
        self.step(segments, &options, sink)
    }
}

/// A request that holds pages.
struct Active {
    run: Running,
    seq: Sequence,
    /// Its client does not read.
    stalled: bool,
}

impl Active {
    /// Tokens that are not evaluated.
    fn rest(&self) -> usize {
        self.run.tokens().len() - self.seq.len()
    }

    /// Leaves its first positions to those that begin alike.
    fn remember(&self, positions: usize, tree: &mut PrefixTree) {
        if let Some(kind) = self.run.kind() {
            let tokens = &self.run.tokens()[..positions];
            tree.insert(&kind, tokens, &self.seq.fork(positions));
        }
    }
}

/// The requests of a server.
pub(super) struct Scheduler<B> {
    backend: B,
    model: Model,
    options: Options,
    admission: Arc<Admission>,
    counters: Arc<Counters>,
    waiting: VecDeque<Running>,
    active: Vec<Active>,
    tree: PrefixTree,
    pace: Pace,
    /// Width of the last step.
    width: u8,
}

/// A row of logits from which the next token of an active request is chosen.
type Choice<'a> = (&'a mut Running, Vec<f32>);

impl<B: Backend> Scheduler<B> {
    pub fn new(
        backend: B,
        model: &Model,
        options: &Options,
        admission: &Arc<Admission>,
        counters: &Arc<Counters>,
    ) -> Scheduler<B> {
        Scheduler {
            tree: PrefixTree::new(backend.pages()),
            pace: Pace::new(options),
            backend,
            model: model.clone(),
            options: options.clone(),
            admission: admission.clone(),
            counters: counters.clone(),
            waiting: VecDeque::new(),
            active: Vec::new(),
            width: 0,
        }
    }

    /// Takes a request from the queue's door.
    pub fn take(&mut self, job: Job) {
        let bits = job.request.bits.or(self.options.bits).unwrap_or(0);
        let tokens = job.request.prompt.len() + job.request.resume.len();
        match Running::new(job, &self.model, bits, self.options.n_ctx()) {
            Ok(run) => self.waiting.push_back(run),
            // It was checked before, so nobody waits for more than the end of its events.
            Err(_) => self.admission.leave(tokens),
        }
    }

    /// Whether there is any request.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.active.is_empty()
    }

    /// Ends all requests, because the server does.
    pub fn shut_down(&mut self, now: Instant) {
        let active = self.active.drain(..).map(|a| a.run);
        for mut run in active.chain(self.waiting.drain(..)) {
            run.end(String::new(), Ended::Shutdown, now);
            let _ = run.fate(now, self.options.stall_timeout);
        }
    }

    /// Ends all requests that hold pages, because a step failed.
    pub fn fail_all(&mut self, why: &str) {
        for active in &mut self.active {
            active.run.fail(why.to_owned());
        }
        // Nothing is known of pages that were being written.
        self.tree.clear();
    }

    /// Everything between two steps, and one step. False when there was nothing to evaluate.
    pub fn round(&mut self, clock: &dyn Fn() -> Instant) -> bool {
        self.sweep(clock());
        self.admit(clock());
        let stepped = self.step(clock);
        self.sweep(clock());
        self.count();
        stepped
    }

    /// Lets go of requests that ended.
    fn sweep(&mut self, now: Instant) {
        let (patience, timeout) = (self.options.stall_timeout, self.options.queue_timeout);
        self.waiting.retain_mut(|run| {
            let waited = now.duration_since(run.admitted());
            if !run.begun && waited > timeout {
                let seconds = timeout.as_secs();
                run.refuse(Refused::WaitedTooLong { seconds });
            }
            let stays = !matches!(run.fate(now, patience), Fate::Over);
            if !stays && !run.begun {
                self.admission.leave(run.tokens().len());
            }
            stays
        });
        let mut i = 0;
        while i < self.active.len() {
            let active = &mut self.active[i];
            match active.run.fate(now, patience) {
                Fate::Over => {
                    let active = self.active.remove(i);
                    self.counters.ended.fetch_add(1, Relaxed);
                    active.remember(active.seq.len(), &mut self.tree);
                    continue;
                }
                Fate::Stalled => active.stalled = true,
                Fate::Lives => active.stalled = false,
            }
            i += 1;
        }
    }

    /// Gives pages to requests that wait, as long as there are some.
    fn admit(&mut self, now: Instant) {
        let mut i = 0;
        while i < self.waiting.len() && self.active.len() < self.options.parallel {
            if self.is_being_read(&self.waiting[i]) {
                i += 1;
                continue;
            }
            let run = &self.waiting[i];
            let known = run.tokens().len() - 1;
            let seq = match run.kind().filter(|_| run.may_reuse()) {
                Some(kind) => self.tree.find(&kind, &run.tokens()[..known]),
                None => self.backend.pages().sequence(),
            };
            // One more for each sequence, so that the next ones to grow need not give way at once.
            let needed = seq.pages_for(run.tokens().len() - seq.len()) + self.active.len() + 1;
            let all = self.backend.pages().budget();
            if !self.make_room(needed.min(all)) && !self.active.is_empty() {
                return;
            }
            let Some(mut run) = self.waiting.remove(i) else {
                return;
            };
            let queued = (!run.begun).then(|| run.tokens().len());
            run.begin(seq.len(), now);
            self.counters
                .cached_tokens
                .fetch_add(seq.len() as u64, Relaxed);
            self.active.push(Active {
                run,
                seq,
                stalled: false,
            });
            if let Some(tokens) = queued {
                // Counted as running before it is no more counted as waiting: whoever waits for the end sees one of both.
                self.count();
                self.admission.leave(tokens);
            }
        }
    }

    /// Whether an active request is reading a page that this one begins with too: then it is worth waiting for it.
    fn is_being_read(&self, run: &Running) -> bool {
        let Some(kind) = run.kind().filter(|_| run.may_reuse()) else {
            return false;
        };
        let page = self.backend.pages().layout().positions;
        self.active.iter().any(|a| {
            let pairs = a.run.tokens().iter().zip(run.tokens());
            let same = || pairs.take_while(|(x, y)| x == y).count();
            let next = (a.seq.len() / page + 1) * page;
            a.rest() > 1 && !a.stalled && a.run.kind().as_ref() == Some(&kind) && same() >= next
        })
    }

    /// Frees pages of the cache until `pages` are free.
    fn make_room(&mut self, pages: usize) -> bool {
        while self.backend.pages().free() < pages {
            if !self.tree.evict() {
                return false;
            }
        }
        true
    }

    /// How many tokens of which active request the next step takes; ascending, nothing of requests that are left out.
    fn plan(&mut self) -> Vec<(usize, usize)> {
        let ready = |a: &Active| !a.stalled && a.rest() > 0;
        let widths = self.active.iter().filter(|a| ready(a)).map(|a| a.run.bits);
        // The next width in the round.
        let Some(width) = widths.min_by_key(|&w| (w <= self.width, w)) else {
            return Vec::new();
        };
        self.width = width;
        let active = &self.active;
        let group = (0..active.len()).filter(|&i| ready(&active[i]) && active[i].run.bits == width);
        let (decoding, mut reading): (Vec<_>, Vec<_>) = group.partition(|&i| active[i].rest() == 1);
        let mut budget = self.pace.budget(decoding.len());
        let half = budget.div_ceil(2);
        let mut plan: Vec<(usize, usize)> = decoding.into_iter().map(|i| (i, 1)).collect();
        let mut read = |i: usize, most: usize| {
            let n = active[i].rest().min(most).min(budget);
            budget -= n;
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

    /// Sees to pages for all of a plan; what gives way leaves it.
    fn fit(&mut self, mut plan: Vec<(usize, usize)>, now: Instant) -> Vec<(usize, usize)> {
        let mut forgotten = false;
        loop {
            let pages = plan.iter().map(|&(i, n)| self.active[i].seq.pages_for(n));
            if self.make_room(pages.sum()) {
                return plan;
            }
            let youngest = (0..self.active.len()).max_by_key(|&i| self.active[i].run.admitted());
            let Some(youngest) = youngest.filter(|_| self.active.len() > 1) else {
                if !forgotten {
                    // A page that the cache shares with the sequence would be copied; without the cache it need not be.
                    self.tree.clear();
                    forgotten = true;
                    continue;
                }
                // Alone, with all pages there are: the memory is its context.
                for &(i, _) in &plan {
                    let run = &mut self.active[i].run;
                    run.end(String::new(), Ended::Text(End::Context), now);
                }
                return Vec::new();
            };
            let active = self.active.remove(youngest);
            active.remember(active.seq.len(), &mut self.tree);
            self.counters.preemptions.fetch_add(1, Relaxed);
            self.waiting.push_front(active.run);
            plan.retain(|&(i, _)| i != youngest);
            for (i, _) in &mut plan {
                *i -= usize::from(*i > youngest);
            }
        }
    }

    /// One forward pass, and the tokens chosen from it.
    fn step(&mut self, clock: &dyn Fn() -> Instant) -> bool {
        let plan = self.plan();
        let plan = self.fit(plan, clock());
        if plan.is_empty() {
            return false;
        }
        let start = clock();
        let decoding = plan.iter().filter(|&&(i, _)| self.active[i].rest() == 1);
        let decoding = decoding.count();
        let rows: usize = plan.iter().map(|(_, n)| n).sum();

        let mut planned = plan.iter().peekable();
        let (mut segments, mut runs) = (Vec::new(), Vec::new());
        for (i, active) in self.active.iter_mut().enumerate() {
            let Some(&(_, n)) = planned.next_if(|(at, _)| *at == i) else {
                continue;
            };
            let first = active.seq.len();
            segments.push(Segment {
                seq: &mut active.seq,
                tokens: &active.run.tokens()[first..first + n],
                logits_from: active.run.logits_from(first, n),
            });
            runs.push((i, first, &active.run));
        }
        let (mut ends, mut prompt) = (Vec::new(), Vec::new());
        let mut sink = |segment: usize, index: usize, logits: &[f32]| {
            let (i, first, run) = runs[segment];
            let position = first + index;
            if position + 1 == run.tokens().len() {
                ends.push((i, logits.to_vec()));
            } else if let Some(logprobs) = run.read(position, logits) {
                prompt.push((i, logprobs));
            }
        };
        let done = self.backend.step(self.width, &mut segments, &mut sink);
        let now = clock();
        if let Err(e) = done {
            for &(i, _) in &plan {
                self.active[i].run.fail(e.to_string());
            }
            return true;
        }
        for (i, logprobs) in prompt {
            self.active[i].run.keep(logprobs);
        }
        for &(i, n) in &plan {
            let active = &mut self.active[i];
            let first = active.seq.len() - n;
            // One token may be all of a prompt that was not in the cache.
            active.run.progress(active.seq.len(), now);
            if n == 1 {
                continue;
            }
            let page = active.seq.layout().positions;
            let whole = active.seq.len() / page * page;
            if whole > first / page * page {
                // Whole pages only: whoever shares the last one makes this sequence copy it.
                active.remember(whole, &mut self.tree);
            }
        }
        self.choose(ends, now);
        self.pace.measured(rows, now.duration_since(start));
        let took = now.duration_since(start);
        self.counters.add_time(took, rows - decoding, decoding);
        self.counters
            .prompt_tokens
            .fetch_add((rows - decoding) as u64, Relaxed);
        true
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

    fn count(&self) {
        let c = &self.counters;
        c.set_slots(self.active.iter().map(|a| a.run.slot()));
        let longest = self.active.iter().map(|a| a.seq.len()).max();
        c.longest.fetch_max(longest.unwrap_or(0) as u64, Relaxed);
        c.pages.store(self.backend.pages().budget() as u64, Relaxed);
        c.free_pages
            .store(self.backend.pages().free() as u64, Relaxed);
    }
}
