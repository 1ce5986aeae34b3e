//! The sequences that share a step, their pages, and what follows from a step.
//!
//! Nothing here can be seen in a text: a sequence's logits are the same in any step, so all choices are made for time
//! and memory alone. Every running sequence that has all but its last token evaluated gets its next token in every step
//! of its setting; prompts are read in chunks beside that. When pages run short, what the cache holds goes first, then
//! one whose client does not read, or else the youngest, is preempted: it gives its pages back and begins again later, with
//! the same tokens. So is one whose client does not read when another request waits for its place.

mod draft;
mod plan;
mod source;
mod step;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use trine::generate::speculate::{Aside, AsideSource, Pace};
use trine::step::{PrefixTree, Sequence, Setting};
use trine::{DraftSource, Model};

use super::backend::Backend;
use super::counters::Counters;
use super::job::Job;
use super::options::Options;
use super::prefill::Prefill;
use super::queue::Admission;
use super::request::{Ended, Refused};
use super::running::{Drafts, Fate, Running};
use super::slots::{SlotCommand, SlotTexts};

/// A request that holds pages.
struct Active {
    run: Running,
    seq: Sequence,
    /// The number of its place, which no other one has.
    slot: usize,
    /// Its drafter, where that is not the model at fewer bits: from its first draft on, or from its first token where
    /// hidden states are heard.
    aside: Option<Aside>,
}

impl Active {
    /// Tokens that are not evaluated.
    fn rest(&self) -> usize {
        self.run.tokens().len() - self.seq.len()
    }

    /// True if the model's encoder has still to read its prompt.
    fn lacks_source(&self) -> bool {
        !self.run.source().is_empty() && self.seq.source().is_none()
    }

    /// True if the next step gives it its next token, and its prompt needs no step any more.
    fn is_generating(&self) -> bool {
        self.continues(1)
    }

    /// True if a step that evaluates `n` of its tokens gives it its next one, and its prompt was read before.
    fn continues(&self, n: usize) -> bool {
        self.rest() == n && self.run.has_read_prompt()
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
    slots: SlotTexts,
    prefill: Prefill,
    /// Measured pace of drafts, by the width and the number of texts of a step: one of several texts reads the weights
    /// once for all of them already.
    paces: BTreeMap<(u8, usize), Pace>,
    /// The source of drafts that come from a second model or from the texts.
    aside: Option<AsideSource>,
    /// Setting of the last step.
    setting: Setting,
    /// Places that were given so far, and for each party, of which there are as many as keys, the number of its last.
    turns: u64,
    served: HashMap<String, u64>,
}

impl<B: Backend> Scheduler<B> {
    pub fn new(
        backend: B,
        model: &Model,
        (options, aside): (&Options, Option<AsideSource>),
        admission: &Arc<Admission>,
        counters: &Arc<Counters>,
    ) -> Scheduler<B> {
        Scheduler {
            tree: PrefixTree::new(backend.pages()),
            slots: SlotTexts::new(options.parallel),
            prefill: Prefill::new(options),
            paces: BTreeMap::new(),
            aside,
            backend,
            model: model.clone(),
            options: options.clone(),
            admission: admission.clone(),
            counters: counters.clone(),
            waiting: VecDeque::new(),
            active: Vec::new(),
            setting: Setting::default(),
            turns: 0,
            served: HashMap::new(),
        }
    }

    /// Takes a request from the queue's door.
    pub fn take(&mut self, job: Job) {
        let bits = job.request.bits.or(self.options.bits).unwrap_or(0);
        let drafts = self.drafts_of(&job, bits);
        let setting = Setting { bits, adapters: job.request.adapters.clone() };
        let (draft, n_ctx) = (self.options.draft, self.options.n_ctx());
        self.waiting.push_back(Running::new(&self.model, job, setting, drafts, draft, n_ctx));
    }

    /// Where the drafts of a request at `bits` come from: fewer bits that it names itself, or what the server has.
    fn drafts_of(&self, job: &Job, bits: u8) -> Drafts {
        let narrow = |draft: u8| if (1..bits).contains(&draft) { Drafts::Narrow(draft) } else { Drafts::None };
        match (job.request.draft_bits, &self.options.drafts) {
            _ if job.request.pooling.is_some() => Drafts::None,
            (Some(draft), _) => narrow(draft),
            (None, Some(DraftSource::Narrow(draft))) => narrow(*draft),
            (None, Some(_)) => Drafts::Aside,
            (None, None) => Drafts::None,
        }
    }

    /// True if there is any request.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.active.is_empty()
    }

    /// Ends all requests, because the server does.
    pub fn shut_down(&mut self, now: Instant) {
        let active = self.active.drain(..).map(|a| a.run);
        for mut run in active.chain(self.waiting.drain(..)) {
            run.end(Ended::Shutdown, now);
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
        // Before clients hear of ends, and again with the pages that these free.
        self.count();
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
            let over = run.fate(now, patience) == Fate::Over;
            match over {
                true if run.begun => self.counters.end(run.held(now)),
                true => self.admission.leave(run.queued(), run.party()),
                false => {}
            }
            !over
        });
        for active in self.active.extract_if(.., |active| active.run.fate(now, patience) == Fate::Over) {
            self.counters.end(active.run.held(now));
            active.remember(active.seq.len(), &mut self.tree);
            self.slots.note(active.slot, active.run.kind(), &active.run.tokens()[..active.seq.len()]);
        }
    }

    /// Takes the pages and the place of an active request, which begins again later. It is the first of those that wait.
    fn preempt(&mut self, i: usize) {
        let active = self.active.remove(i);
        active.remember(active.seq.len(), &mut self.tree);
        self.counters.preemptions.fetch_add(1, Relaxed);
        self.waiting.push_front(active.run);
    }

    /// Preempts a request whose client has not read for a tenth of its patience. False if there is none.
    fn preempt_stalled(&mut self, now: Instant) -> bool {
        let time = self.options.stall_timeout / 10;
        let stalled = self.active.iter().position(|a| a.run.is_stalled_for(time, now));
        stalled.map(|i| self.preempt(i)).is_some()
    }

    /// Gives pages to requests that wait, as long as there are some, or somebody who holds them has not read for a while.
    fn admit(&mut self, now: Instant) {
        loop {
            let waiting = self.waiting.iter().enumerate();
            let may = waiting.filter(|(_, run)| !run.is_stalled() && !self.is_being_read(run));
            let Some(i) = may.map(|(i, _)| i).min_by_key(|&i| self.turn(i)) else {
                return;
            };
            if self.active.len() >= self.options.parallel {
                match self.preempt_stalled(now) {
                    true => continue,
                    false => return,
                }
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
                drop(seq);
                match self.preempt_stalled(now) {
                    true => continue,
                    false => return,
                }
            }
            let Some(mut run) = self.waiting.remove(i) else {
                return;
            };
            let queued = (!run.begun).then(|| (run.queued(), run.party().to_owned()));
            self.turns += 1;
            self.served.insert(run.party().to_owned(), self.turns);
            let slot = self.free_slot(run.wanted_slot());
            run.begin(seq.len(), slot, now);
            self.counters.cached_tokens.fetch_add(seq.len() as u64, Relaxed);
            self.active.push(Active { run, seq, slot, aside: None });
            if let Some((tokens, party)) = queued {
                // Counted as running before it is no more counted as waiting: whoever waits for the end sees one of
                // both.
                self.count();
                self.admission.leave(tokens, &party);
            }
        }
    }

    /// The place that is wanted, where it is free, or the first free one.
    fn free_slot(&self, wanted: Option<usize>) -> usize {
        let is_free = |slot: &usize| *slot < self.options.parallel && self.active.iter().all(|a| a.slot != *slot);
        wanted.filter(is_free).or_else(|| (0..self.options.parallel).find(is_free)).unwrap_or(0)
    }

    /// Does what is asked about a place. Nobody waits for an answer that does not come.
    pub fn about_slot(&mut self, command: SlotCommand) {
        let _ = match command {
            SlotCommand::Take(slot, salt, back) => back.send(self.slots.take(slot, &salt, &mut self.tree)).is_ok(),
            SlotCommand::MakeRoom(pages, back) => {
                self.make_room(pages);
                back.send(()).is_ok()
            }
            SlotCommand::Put(slot, salt, text, back) => {
                self.slots.put(slot, salt, *text, &mut self.tree);
                back.send(()).is_ok()
            }
            SlotCommand::Erase(slot, salt, back) => back.send(self.slots.erase(slot, &salt, &mut self.tree)).is_ok(),
        };
    }

    /// Returns by what a request that waits gets its place: those that had one first, then those of the highest priority,
    /// of these those of the party that has the fewest places, then of the one that has waited longest for one, in their
    /// order.
    fn turn(&self, i: usize) -> (bool, Reverse<i32>, usize, u64, usize) {
        let run = &self.waiting[i];
        let places = self.active.iter().filter(|a| a.run.party() == run.party()).count();
        let served = self.served.get(run.party()).copied().unwrap_or(0);
        match run.begun {
            true => (false, Reverse(0), 0, 0, i),
            false => (true, Reverse(run.priority()), places, served, i),
        }
    }

    /// True if an active request is reading a page that this one begins with too: then it is worth waiting for it.
    fn is_being_read(&self, run: &Running) -> bool {
        let Some(kind) = run.kind().filter(|_| run.may_reuse()) else {
            return false;
        };
        let page = self.backend.pages().layout().positions;
        self.active.iter().any(|a| {
            let pairs = a.run.tokens().iter().zip(run.tokens());
            let same = || pairs.take_while(|(x, y)| x == y).count();
            let next = (a.seq.len() / page + 1) * page;
            a.rest() > 1 && !a.run.is_stalled() && a.run.kind().as_ref() == Some(&kind) && same() >= next
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

    fn count(&self) {
        let c = &self.counters;
        let running = self.active.iter().filter(|a| !a.run.is_over());
        c.set_slots(running.map(|a| (a.slot, a.run.slot())));
        let longest = self.active.iter().map(|a| a.seq.len()).max();
        c.longest.fetch_max(longest.unwrap_or(0) as u64, Relaxed);
        c.pages.store(self.backend.pages().budget() as u64, Relaxed);
        c.free_pages.store(self.backend.pages().free() as u64, Relaxed);
    }
}
