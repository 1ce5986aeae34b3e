//! A request on its way: its text, its drafts, the events that its client has heard.

mod client;

use std::time::{Duration, Instant};

use trine::generate::speculate::Drafter;
use trine::generate::{ChooseError, Chooser, End, TextMachine};
use trine::step::{Kind, Pooled, Setting};
use trine::{CancelToken, Model};

use super::counters::Slot;
use super::job::Job;
use super::request::{Done, Ended, Event, Progress, Refused, Request, Vector};
use client::{Client, Hears};

/// A request that runs or waits.
pub(super) struct Running {
    request: Request,
    text: TextMachine,
    client: Client,
    admitted: Instant,
    /// How the weights are read for the text.
    pub setting: Setting,
    pub drafts: Drafts,
    drafter: Drafter,
    n_ctx: usize,
    /// Positions found in the cache when the request was begun first.
    cached: usize,
    /// The number of its place.
    slot: usize,
    /// The vector that is asked for instead of a text.
    pooled: Option<Pooled>,
    /// True if its tokens are evaluated all at once: they attend to later ones.
    whole: bool,
    /// Logits of the last step: behind the last token, and behind every drafted one.
    rows: Vec<Vec<f32>>,
    /// When the first logits behind the prompt were there.
    prompt_done: Option<Instant>,
    /// True if it held pages before, and gave them back.
    pub begun: bool,
    /// When it got its place first.
    placed: Option<Instant>,
}

/// Where the drafts of a request come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Drafts {
    /// There are none.
    None,
    /// The same model at so many bits.
    Narrow(u8),
    /// A second model, the model's own heads, or the text itself.
    Aside,
}

/// State of a request between two steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It goes on, or its client does not read at the moment.
    Lives,
    /// It ended and its client heard of that, or its client went away.
    Over,
}

impl Running {
    /// A request at its beginning, with drafts of at most `most` tokens.
    pub fn new(model: &Model, job: Job, setting: Setting, drafts: Drafts, most: usize, n_ctx: usize) -> Running {
        let Job { request, text, events, cancel, admitted } = job;
        Running {
            pooled: request
                .pooling
                .map(|pooling| Pooled::new(model.weights(), setting.clone(), pooling, text.given().len())),
            whole: model.weights().attends_both_ways(),
            client: Client::new(events, cancel),
            text,
            request,
            admitted,
            setting,
            drafts,
            drafter: Drafter::new(if drafts == Drafts::None { 0 } else { most }),
            n_ctx,
            cached: 0,
            slot: 0,
            rows: Vec::new(),
            prompt_done: None,
            begun: false,
            placed: None,
        }
    }

    /// All tokens of the context so far.
    pub fn tokens(&self) -> &[u32] {
        self.text.context()
    }

    /// How many of the first tokens of the context are where they were, after others were forgotten; once.
    pub fn take_shift(&mut self) -> Option<usize> {
        self.text.take_shift()
    }

    /// Chooses its tokens; a copy of it drafts.
    pub fn chooser(&self) -> &Chooser {
        self.text.chooser()
    }

    /// The tokens that the model's encoder reads before the first of [`Running::tokens`] is evaluated; none where it has
    /// no encoder.
    pub fn source(&self) -> &[u32] {
        self.text.source()
    }

    /// True if what an encoder read for `other` may serve this one.
    pub fn shares_source(&self, other: &Running) -> bool {
        self.source() == other.source() && self.shared().is_some_and(|kind| other.shared() == Some(kind))
    }

    /// Is cancelled when the client went away.
    pub fn cancel(&self) -> &CancelToken {
        self.client.cancel()
    }

    /// Tokens that were counted into the queue.
    pub fn queued(&self) -> usize {
        self.request.given()
    }

    /// Whose KV cache it may share; `None`: nobody's. Positions that attend to another text are nobody else's.
    pub fn kind(&self) -> Option<Kind> {
        self.shared().filter(|_| self.source().is_empty())
    }

    /// Whose work it may share; `None`: nobody's.
    fn shared(&self) -> Option<Kind> {
        let salt = self.request.cache.clone().filter(|_| !self.whole)?;
        Some(Kind { setting: self.setting.clone(), salt })
    }

    /// True if the beginning may be taken from the cache: not when something of every token of the prompt is wanted.
    pub fn may_reuse(&self) -> bool {
        !self.request.prompt_logprobs && !self.pools_all()
    }

    /// True if its tokens are evaluated all at once.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// True if hidden states are wanted, and no logits.
    pub fn wants_hidden(&self) -> bool {
        self.pooled.is_some()
    }

    fn pools_all(&self) -> bool {
        self.pooled.as_ref().is_some_and(Pooled::wants_all)
    }

    /// Those that wait get their places by this first.
    pub fn priority(&self) -> i32 {
        self.request.priority
    }

    /// Who asks.
    pub fn party(&self) -> &str {
        &self.request.party
    }

    /// How long ago it got its place first.
    pub fn held(&self, now: Instant) -> Duration {
        self.placed.map_or(Duration::ZERO, |placed| now.duration_since(placed))
    }

    /// When it was admitted.
    pub fn admitted(&self) -> Instant {
        self.admitted
    }

    /// True if the logits behind its prompt were there, and it has not ended.
    pub fn has_read_prompt(&self) -> bool {
        self.prompt_done.is_some() && !self.is_over()
    }

    /// Most tokens that the next draft may have; 0: there is none.
    pub fn most_drafted(&self) -> usize {
        let room = self.n_ctx.saturating_sub(self.tokens().len() + 1);
        self.drafter.length(self.text.left().unwrap_or(usize::MAX), room)
    }

    /// The number of the place that it asks for.
    pub fn wanted_slot(&self) -> Option<usize> {
        self.request.slot
    }

    /// Takes up its sequence at a place; `cached` positions of it were there already.
    pub fn begin(&mut self, cached: usize, slot: usize, now: Instant) {
        let cached = cached.min(self.text.given().len());
        if !self.begun {
            self.begun = true;
            self.placed = Some(now);
            self.cached = cached;
        }
        self.slot = slot;
        self.progress(cached, now);
    }

    /// The tokens behind the first `evaluated` that are evaluated next, `count` of them, and the index among them from
    /// which on logits, or hidden states, are wanted.
    pub fn wanted(&self, evaluated: usize, count: usize) -> (&[u32], usize) {
        let (tokens, from) = self.text.wanted(evaluated, count);
        (tokens, if self.pools_all() { 0 } else { from })
    }

    /// Takes in the logits behind the token at `position`.
    pub fn take_logits(&mut self, position: usize, logits: &[f32]) {
        match position + 1 < self.tokens().len() {
            true => self.text.read(position, logits),
            false => self.rows.push(logits.to_vec()),
        }
    }

    /// Takes in the hidden state of the token at `position`.
    pub fn take_hidden(&mut self, position: usize, state: &[f32]) {
        if let Some(pooled) = &mut self.pooled {
            pooled.take(position, state);
        }
    }

    /// Tells how much of the prompt was read, and ends with the vector where that is all that is asked for.
    pub fn progress(&mut self, processed: usize, now: Instant) {
        let total = self.prompt_tokens();
        let time = now.duration_since(self.admitted);
        if self.prompt_done.is_none() {
            // an encoder reads its text before anything else is evaluated
            let source = if processed > 0 { self.source().len() } else { 0 };
            let processed = (source + processed).min(total);
            self.client.send(Event::Prompt(Progress { total, cached: self.cached, processed, slot: self.slot, time }));
        }
        match self.pooled.as_mut().map_or(Ok(None), Pooled::vector) {
            Ok(None) => {}
            Err(e) => self.fail(e.to_string()),
            Ok(Some(numbers)) => {
                let (cached_tokens, bits) = (self.cached, self.setting.bits);
                self.client.end(Event::Vector(Vector { numbers, prompt_tokens: total, cached_tokens, time, bits }));
            }
        }
    }

    /// True if a step left logits to choose from.
    pub fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Chooses the next tokens: one from the logits behind the last one, and one more for every token of `drafted` that
    /// agrees with the choice before it. How many agreed.
    pub fn follow(&mut self, drafted: &[u32], now: Instant) -> usize {
        let mut rows = std::mem::take(&mut self.rows).into_iter();
        let mut next = rows.next();
        let before = self.drafter.counts().accepted;
        self.drafter.verify(drafted.iter().copied().zip(rows));
        while let Some(logits) = next.filter(|_| !self.is_over()) {
            next = self.choose(&logits, now).and_then(|id| self.drafter.follow(id));
        }
        self.drafter.forget();
        self.drafter.counts().accepted - before
    }

    /// Chooses the next token from the logits behind the last one, and tells what follows.
    fn choose(&mut self, logits: &[f32], now: Instant) -> Option<u32> {
        self.prompt_done.get_or_insert(now);
        if let Some(all) = self.text.take_prompt_logprobs() {
            self.client.send(Event::PromptLogprobs(all));
        }
        let choice = match self.text.choose(logits, self.n_ctx) {
            Ok(choice) => choice,
            Err(ChooseError::Grammar(e)) => {
                self.refuse(Refused::Invalid(e.to_string()));
                return None;
            }
            Err(e) => {
                self.fail(e.to_string());
                return None;
            }
        };
        let id = choice.token.as_ref().map(|token| token.id);
        choice.token.into_iter().for_each(|token| self.client.send(Event::Token(token)));
        if let Some(ending) = choice.ending {
            self.done(ending.text, Ended::Text(ending.end), now);
        }
        id
    }

    /// Ends the text for a reason from outside, unless its pending text has a stop string.
    pub fn end(&mut self, ended: Ended, now: Instant) {
        let ending = self.text.end(match ended {
            Ended::Text(end) => end,
            Ended::Deadline | Ended::Shutdown => End::Cancelled,
        });
        let stopped = matches!(ending.end, End::Stop(_));
        self.done(ending.text, if stopped { Ended::Text(ending.end) } else { ended }, now);
    }

    /// Tokens of the prompt and of what is resumed; where an encoder reads it, also the one that the text begins with.
    fn prompt_tokens(&self) -> usize {
        self.source().len() + self.text.given().len()
    }

    fn done(&mut self, text: String, ended: Ended, now: Instant) {
        let prompt_done = self.prompt_done.unwrap_or(now);
        let drafts = self.drafter.counts();
        self.client.end(Event::Done(Done {
            text,
            ended,
            prompt_tokens: self.prompt_tokens(),
            cached_tokens: self.cached,
            generated_tokens: self.text.generated(),
            prompt_time: prompt_done.duration_since(self.admitted),
            generation_time: now.duration_since(prompt_done),
            seed: self.request.sampler.seed,
            bits: self.setting.bits,
            adapters: self.setting.adapters.clone(),
            shifts: self.text.shifts(),
            drafted: drafts.drafted,
            accepted: drafts.accepted,
        }));
    }

    /// Ends the text by a fault.
    pub fn fail(&mut self, why: String) {
        self.client.end(Event::Failed(why));
    }

    /// Ends a request that cannot be followed.
    pub fn refuse(&mut self, why: Refused) {
        self.client.end(Event::Refused(why));
    }

    /// Its state between two steps; sends the events that wait.
    pub fn fate(&mut self, now: Instant, patience: Duration) -> Fate {
        match self.client.hear(now, patience) {
            Hears::Nothing => return Fate::Over,
            Hears::Late => return Fate::Lives,
            Hears::All => {}
        }
        if self.is_over() {
            return Fate::Over;
        }
        let deadline = self.request.deadline;
        if deadline.is_some_and(|most| now.duration_since(self.admitted) > most) {
            self.end(Ended::Deadline, now);
            return self.fate(now, patience);
        }
        Fate::Lives
    }

    /// True if its client did not read when it heard last.
    pub fn is_stalled(&self) -> bool {
        self.client.stalled().is_some()
    }

    /// True if its client has not read for so long.
    pub fn is_stalled_for(&self, time: Duration, now: Instant) -> bool {
        self.client.stalled().is_some_and(|since| now.duration_since(since) >= time)
    }

    /// Its line in `/slots`.
    pub fn slot(&self) -> Slot {
        Slot { busy: true, generated: self.generated(), left: self.text.left() }
    }

    /// Tokens generated here.
    pub fn generated(&self) -> usize {
        self.text.generated()
    }

    /// True if it has ended, though its client may not have heard of that yet.
    pub fn is_over(&self) -> bool {
        self.client.is_over()
    }
}
