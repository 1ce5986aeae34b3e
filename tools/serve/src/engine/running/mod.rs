//! A request on its way: its tokens, its sampler, what its client has heard.

mod ahead;
mod gathered;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TrySendError;
use trine::Model;
use trine::eval::LogProbabilities;
use trine::generate::{ChooseError, End, TextStream};
use trine::step::Kind;

use super::counters::Slot;
use super::drafting::Drafting;
use super::job::Job;
use super::request::{Done, Ended, Event, Progress, Refused, Token, TokenLogprobs, TokenOdds, Told, Vector};
use gathered::Gathered;

/// Tokens of one text, evaluated and not.
pub(super) struct Running {
    job: Job,
    /// Prompt, resumed and generated tokens.
    tokens: Vec<u32>,
    /// Those that were there at the beginning.
    given: usize,
    /// Tokens generated, resumed ones included.
    generated: usize,
    pub bits: u8,
    pub drafting: Drafting,
    text: TextStream,
    n_ctx: usize,
    /// Found in the cache when the request was begun first.
    cached: usize,
    prompt_logprobs: Vec<TokenLogprobs>,
    /// The vectors that are asked for instead of a text.
    gathered: Option<Gathered>,
    /// When the first logits behind the prompt were there.
    prompt_done: Option<Instant>,
    /// Events that the client had no room for, and since when.
    unsent: VecDeque<Event>,
    stalled: Option<Instant>,
    /// Nothing comes any more.
    over: bool,
    /// Whether it held pages before, and gave them back.
    pub begun: bool,
}

/// Why a text needs no further step.
pub(super) enum Fate {
    /// It goes on.
    Lives,
    /// It ended, or its client went away.
    Over,
    /// Its client does not read.
    Stalled,
}

impl Running {
    /// A request at its beginning.
    pub fn new(job: Job, model: &Model, bits: u8, drafting: Drafting, n_ctx: usize) -> Running {
        let r = &job.request;
        let mut text = TextStream::new(r.stop.clone());
        for &id in &r.resume {
            // The client has that text already.
            text.push(&model.tokenizer().piece(id, false));
        }
        let tokens = [&r.prompt[..], &r.resume[..]].concat();
        Running {
            gathered: r.vectors.map(|v| Gathered::new(v, tokens.len())),
            given: tokens.len(),
            generated: r.resume.len(),
            tokens,
            bits,
            drafting,
            text,
            n_ctx,
            cached: 0,
            prompt_logprobs: Vec::new(),
            prompt_done: None,
            unsent: VecDeque::new(),
            stalled: None,
            over: false,
            begun: false,
            job,
        }
    }

    /// All tokens so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Whose keys and values it may share; `None`: nobody's.
    pub fn kind(&self) -> Option<Kind> {
        let salt = self.job.request.cache.clone()?;
        let bits = self.bits;
        Some(Kind { bits, salt })
    }

    /// Whether the beginning may be taken from the cache: not when something of every token of the prompt is wanted.
    pub fn may_reuse(&self) -> bool {
        !self.job.request.prompt_logprobs && !self.pools_all()
    }

    /// Whether hidden states are wanted, and no logits.
    pub fn wants_hidden(&self) -> bool {
        self.gathered.is_some()
    }

    fn pools_all(&self) -> bool {
        self.gathered.as_ref().is_some_and(Gathered::wants_all)
    }

    /// Takes in the hidden state of the token at `position`, and ends with the last.
    pub fn pool(&mut self, position: usize, state: &[f32], now: Instant) {
        let Some(gathered) = &mut self.gathered else {
            return;
        };
        gathered.take(position, state);
        match gathered.finish() {
            Ok(None) => {}
            Err(e) => self.fail(e.to_string()),
            Ok(Some(numbers)) => {
                self.end_with(Event::Vector(Vector {
                    numbers,
                    prompt_tokens: self.given,
                    cached_tokens: self.cached,
                    time: now.duration_since(self.job.admitted),
                    bits: self.bits,
                }));
            }
        }
    }

    /// When it was admitted.
    pub fn admitted(&self) -> Instant {
        self.job.admitted
    }

    /// Takes up its sequence, of which `cached` positions were there already.
    pub fn begin(&mut self, cached: usize, now: Instant) {
        if !self.begun {
            self.begun = true;
            self.cached = cached.min(self.given);
        }
        self.progress(cached.min(self.given), now);
    }

    /// From which of `count` tokens behind `first` on logits, or hidden states, are wanted.
    pub fn logits_from(&self, first: usize, count: usize) -> usize {
        let every = self.job.request.prompt_logprobs || self.pools_all();
        if every && self.prompt_done.is_none() {
            return 0;
        }
        if first + count == self.tokens.len() { count - 1 } else { count }
    }

    /// How likely the token behind `position` of the prompt was, where that is to be told and was not before.
    pub fn read(&self, position: usize, logits: &[f32]) -> Option<TokenLogprobs> {
        let next = position + 1;
        let known = self.prompt_logprobs.len();
        if !self.job.request.prompt_logprobs || next <= known || next >= self.given {
            return None;
        }
        let top = self.job.request.logprobs.unwrap_or(0);
        Some(token_logprobs(logits, self.tokens[next], top))
    }

    /// Keeps what [`Running::read`] found.
    pub fn keep(&mut self, logprobs: TokenLogprobs) {
        self.prompt_logprobs.push(logprobs);
    }

    /// Tells how much of the prompt was read.
    pub fn progress(&mut self, processed: usize, now: Instant) {
        if self.prompt_done.is_none() {
            self.send(Event::Prompt(Progress {
                total: self.given,
                cached: self.cached,
                processed: processed.min(self.given),
                time: now.duration_since(self.job.admitted),
            }));
        }
    }

    /// Chooses the next token from the logits behind the last one. What it says is the same wherever it runs.
    pub fn advance(&mut self, model: &Model, logits: &mut [f32], now: Instant) {
        if self.prompt_done.is_none() {
            self.prompt_done = Some(now);
            if self.job.request.prompt_logprobs {
                let all = std::mem::take(&mut self.prompt_logprobs);
                self.send(Event::PromptLogprobs(all));
            }
        }
        if self.left() == Some(0) {
            return self.end(String::new(), Ended::Text(End::Length), now);
        }
        // The model's own opinion, before anything is added to it.
        let wanted = self.job.request.logprobs.filter(|_| !self.job.request.odds);
        let raw = wanted.map(|top| (top, logits.to_vec()));
        self.add_biases(logits);
        let id = match self.job.chooser.choose(logits) {
            Ok(Some(id)) => id,
            Ok(None) => return self.end(String::new(), Ended::Text(End::Eos), now),
            Err(ChooseError::Grammar(e)) => return self.refuse(Refused::Invalid(e.to_string())),
            Err(e) => return self.fail(e.to_string()),
        };
        let evaluated = self.tokens.len();
        self.tokens.push(id);
        self.generated += 1;
        self.drafting.chosen(id);
        let ends = model.end_tokens().contains(&id);
        let (text, stop) =
            if ends { (String::new(), None) } else { self.text.push(&model.tokenizer().piece(id, false)) };
        self.send(Event::Token(Token {
            id,
            text,
            logprobs: match raw {
                Some((top, raw)) => Some(Told::Logprobs(token_logprobs(&raw, id, top))),
                None => self.odds(id),
            },
        }));
        let end = match stop {
            Some(index) => End::Stop(index),
            None if ends => End::Eos,
            None if self.left() == Some(0) => End::Length,
            None if evaluated + 1 >= self.n_ctx => End::Context,
            None => return,
        };
        self.end(String::new(), Ended::Text(end), now);
    }

    /// How likely `id` was to be drawn, where that is to be told.
    fn odds(&self, id: u32) -> Option<Told> {
        let top = self.job.request.logprobs?;
        let odds = self.job.chooser.odds();
        let of = odds.iter().find(|(token, _)| *token == id);
        Some(Told::Odds(TokenOdds {
            id,
            odds: of.map_or(0.0, |(_, p)| *p),
            top: odds.iter().take(top).copied().collect(),
        }))
    }

    /// Ends the text, with what was held back of it unless a stop string cuts that off.
    pub fn end(&mut self, mut text: String, mut ended: Ended, now: Instant) {
        if !matches!(ended, Ended::Text(End::Stop(_))) {
            let (rest, stop) = self.text.finish();
            text += &rest;
            if let Some(index) = stop {
                ended = Ended::Text(End::Stop(index));
            }
        }
        let prompt_done = self.prompt_done.unwrap_or(now);
        self.end_with(Event::Done(Done {
            text,
            ended,
            prompt_tokens: self.given,
            cached_tokens: self.cached,
            generated_tokens: self.tokens.len() - self.given,
            prompt_time: prompt_done.duration_since(self.job.admitted),
            generation_time: now.duration_since(prompt_done),
            seed: self.job.request.sampler.seed,
            bits: self.bits,
            drafted: self.drafting.drafted,
            accepted: self.drafting.accepted,
        }));
    }

    /// Ends the text by a fault.
    pub fn fail(&mut self, why: String) {
        self.end_with(Event::Failed(why));
    }

    /// Ends a request that cannot be followed.
    pub fn refuse(&mut self, why: Refused) {
        self.end_with(Event::Refused(why));
    }

    /// What becomes of it: looked at between two steps.
    pub fn fate(&mut self, now: Instant, patience: Duration) -> Fate {
        if self.job.cancel.is_cancelled() {
            return Fate::Over;
        }
        while let Some(event) = self.unsent.pop_front() {
            match self.job.events.try_send(event) {
                Ok(()) => self.stalled = None,
                Err(TrySendError::Full(event)) => {
                    self.unsent.push_front(event);
                    let since = *self.stalled.get_or_insert(now);
                    let lost = now.duration_since(since) > patience;
                    return if lost { Fate::Over } else { Fate::Stalled };
                }
                Err(TrySendError::Closed(_)) => return Fate::Over,
            }
        }
        if self.over {
            return Fate::Over;
        }
        let deadline = self.job.request.deadline;
        if deadline.is_some_and(|most| now.duration_since(self.job.admitted) > most) {
            self.end(String::new(), Ended::Deadline, now);
            return self.fate(now, patience);
        }
        Fate::Lives
    }

    /// What `/slots` shows.
    pub fn slot(&self) -> Slot {
        Slot { busy: true, generated: self.tokens.len() - self.given, left: self.left() }
    }

    /// Tokens generated here.
    pub fn generated_here(&self) -> usize {
        self.tokens.len() - self.given
    }

    fn left(&self) -> Option<usize> {
        let most = self.job.request.max_tokens?;
        Some(most.saturating_sub(self.generated))
    }

    /// Whether it has ended, though its client may not have heard of that yet.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Ends with an event that waits until [`Running::fate`] is asked for: who hears of an end finds it counted.
    fn end_with(&mut self, event: Event) {
        if !self.over {
            self.unsent.push_back(event);
            self.over = true;
        }
    }

    fn send(&mut self, event: Event) {
        if self.over {
            return;
        }
        // Order is kept: nothing overtakes what waits.
        if !self.unsent.is_empty() {
            self.unsent.push_back(event);
            return;
        }
        if let Err(TrySendError::Full(event)) = self.job.events.try_send(event) {
            self.unsent.push_back(event);
        }
    }
}

fn token_logprobs(logits: &[f32], id: u32, top: usize) -> TokenLogprobs {
    let all = LogProbabilities::new(logits);
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    let by_logit = |a: &u32, b: &u32| {
        let (x, y) = (logits[*a as usize], logits[*b as usize]);
        y.total_cmp(&x).then(a.cmp(b))
    };
    if top < ids.len() {
        if top > 0 {
            ids.select_nth_unstable_by(top - 1, by_logit);
        }
        ids.truncate(top);
    }
    ids.sort_unstable_by(by_logit);
    TokenLogprobs { id, logprob: all.of(id) as f32, top: ids.iter().map(|&t| (t, all.of(t) as f32)).collect() }
}
