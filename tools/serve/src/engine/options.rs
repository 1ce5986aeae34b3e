//! How the engine serves.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use trine::generate::speculate::{self, AsideSource};
use trine::kv::PageLayout;
use trine::{DraftSource, Model, Pooling};

use super::memory;
use super::request::{Refused, Request};

/// How the engine serves. None of it changes a text.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sequences that run at the same time.
    pub parallel: usize,
    /// Tokens of a request's context; `None`: as many as the model was trained with.
    pub n_ctx: Option<usize>,
    /// Bytes for keys, values and recurrent states; `None`: as many as all sequences may need, at most half of the free
    /// memory.
    pub kv_memory: Option<usize>,
    /// Most bytes where `kv_memory` does not say, instead of half of the free memory.
    pub kv_default: Option<usize>,
    /// Rows of one forward pass.
    pub ubatch: usize,
    /// Longest step while somebody waits for the next token, as far as shorter chunks of prompts can see to it.
    pub target_step: Duration,
    /// Tokens of prompts that a step reads; `None`: what `target_step` allows.
    pub prefill_chunk: Option<usize>,
    /// Requests that wait.
    pub max_queue: usize,
    /// Tokens of the prompts of requests that wait.
    pub max_queue_tokens: usize,
    /// How long a request waits.
    pub queue_timeout: Duration,
    /// Bytes that the texts of a request may take.
    pub max_request_memory: usize,
    /// How long a client may leave its events unread.
    pub stall_timeout: Duration,
    /// Bits per weight where a request names none; `None`: the widest of the file.
    pub bits: Option<u8>,
    /// Widths that may be asked for; empty: all of the file.
    pub widths: Vec<u8>,
    /// Where drafts come from where a request does not say; `None`: there are none.
    pub drafts: Option<DraftSource>,
    /// Most tokens of a draft.
    pub draft: usize,
    /// Draft even where it was measured not to make texts faster.
    pub draft_always: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            parallel: 16,
            n_ctx: None,
            kv_memory: None,
            kv_default: None,
            ubatch: 512,
            target_step: Duration::from_millis(100),
            prefill_chunk: None,
            max_queue: 64,
            max_queue_tokens: 1 << 20,
            queue_timeout: Duration::from_secs(120),
            max_request_memory: 1 << 30,
            stall_timeout: Duration::from_secs(30),
            bits: None,
            widths: Vec::new(),
            drafts: None,
            draft: 16,
            draft_always: false,
        }
    }
}

/// Most tokens whose probabilities a request may ask for, most stop strings and the longest of them, most biases.
const MOST_LOGPROBS: usize = 100;
pub(crate) const MOST_STOPS: usize = 16;
const LONGEST_STOP: usize = 1024;
pub(crate) const MOST_BIASES: usize = 1024;

/// Bytes of a token and its text in an answer, and of a token with how likely it was, in JSON.
const TOKEN: usize = 32;
const LIKELY: usize = 160;

/// Tokens that the model's encoder reads, and those that the text of a request begins with.
fn parts(model: &Model, r: &Request) -> [usize; 2] {
    match model.weights().encoder() {
        Some(_) => [r.prompt.len(), 1 + r.resume.len()],
        None => [0, r.given()],
    }
}

impl Options {
    /// The same with everything decided that the model decides.
    pub(super) fn resolved(mut self, model: &Model) -> Result<Options> {
        let widths = model.weights().widths();
        if self.parallel == 0 || self.ubatch == 0 || self.prefill_chunk == Some(0) {
            bail!("--parallel, --ubatch-size and --prefill-chunk must be at least 1");
        }
        self.n_ctx = Some(self.n_ctx.unwrap_or(model.n_ctx_train()).max(8));
        if let Some(unknown) = self.widths.iter().find(|w| !widths.contains(w)) {
            bail!("--widths: the model has no {unknown} bits; it has {widths:?}");
        }
        if self.widths.is_empty() {
            self.widths = widths.to_vec();
        }
        // Decided once: the free memory is another one at every look.
        let layout = model.weights().page_layout();
        let states = self.states(&layout);
        if self.kv_memory.is_some_and(|most| most <= states) {
            bail!(
                "--kv-memory: the recurrent states of {} texts alone take {states} bytes; give more, a smaller --parallel or no drafts",
                self.parallel
            );
        }
        self.kv_memory = Some(self.pages(&layout) * layout.bytes() + states);
        self.bits = match self.bits {
            Some(bits) if !self.widths.contains(&bits) => {
                bail!("--bits: the model is not served at {bits} bits, but at {:?}", self.widths)
            }
            Some(bits) => Some(bits),
            None => self.widths.last().copied(),
        };
        let widest = self.widths.last().copied().unwrap_or(0);
        if let Some(DraftSource::Narrow(draft)) = self.drafts
            && let Err(why) = speculate::check(model.weights(), draft, widest)
        {
            bail!("--draft-bits: {why}");
        }
        Ok(self)
    }

    /// The source of drafts that come from a second model or from the texts.
    pub(super) fn aside(&self, model: &Model) -> Result<Option<AsideSource>> {
        let Some(source) = &self.drafts else { return Ok(None) };
        let option = match source {
            DraftSource::Mtp | DraftSource::Eagle3 | DraftSource::Dflash => "--spec-type",
            _ => "--model-draft",
        };
        AsideSource::new(source, model).context(option)
    }

    /// Bytes of the recurrent states of all sequences that run. A sequence has its state from its first token on, and
    /// while a draft of it is verified that from before the draft; no other one is ever kept.
    fn states(&self, layout: &PageLayout) -> usize {
        let may_draft = self.drafts.is_some() || self.widths.len() > 1;
        let each = if may_draft { 2 } else { 1 };
        self.parallel * each * layout.state * size_of::<f32>()
    }

    /// Pages for keys and values: what `kv_memory` holds beside recurrent states, or what all sequences may need within
    /// half of the free memory.
    pub(super) fn pages(&self, layout: &PageLayout) -> usize {
        let bytes = layout.bytes().max(1);
        // One more for a page that two sequences part in.
        let each = self.n_ctx().div_ceil(layout.positions) + 1;
        let all = self.parallel * each;
        let within = |memory: usize| memory.saturating_sub(self.states(layout)) / bytes;
        let usual = || self.kv_default.or_else(|| Some(memory::available()? / 2));
        let pages = match self.kv_memory {
            Some(memory) => within(memory),
            None => usual().map_or(all, |most| all.min(within(most))),
        };
        pages.max(1)
    }

    /// Tokens that all pages hold.
    fn room(&self, layout: &PageLayout) -> usize {
        self.pages(layout) * layout.positions
    }

    /// Returns the most bytes that a text may take beside its keys and values: what was asked, and the answer until it
    /// is sent.
    pub fn cost(&self, model: &Model, r: &Request) -> usize {
        let tokens = r.given();
        if r.pooling.is_some() {
            return tokens * TOKEN + model.weights().config().n_embd * size_of::<f32>();
        }
        let [source, text] = parts(model, r);
        let room = self.n_ctx().saturating_sub(text);
        let new = match (r.max_tokens, r.shift) {
            (Some(most), Some(_)) => most,
            (Some(most), None) => most.min(room),
            (None, _) => room,
        };
        let told = |tokens: usize| r.logprobs.map_or(0, |n| tokens.saturating_mul((1 + n) * LIKELY));
        let stops: usize = r.stop.iter().map(|stop| stop.len() + size_of::<String>()).sum();
        let asked = stops + (r.sampler.logit_bias.len() + r.sampler.banned.len()) * size_of::<(u32, f32)>();
        let prompt = if r.prompt_logprobs { told(tokens) } else { 0 };
        // keys and values of an encoder's text are no part of the pages
        let elements: usize = model.weights().source_widths().iter().map(|width| 2 * width).sum();
        source.saturating_mul(elements * size_of::<f32>())
            + asked
            + (tokens + new) * TOKEN
            + prompt.saturating_add(told(new))
    }

    /// Tokens of a request's context.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx.unwrap_or_default()
    }

    /// Checks a request before it waits.
    pub(super) fn check(&self, model: &Model, r: &Request) -> Result<(), Refused> {
        let invalid = |why: String| Err(Refused::Invalid(why));
        let [source, tokens] = parts(model, r);
        let n_vocab = model.weights().n_vocab() as u32;
        if r.prompt.is_empty() {
            return invalid("the prompt is empty".into());
        }
        let all = r.prompt.iter().chain(&r.resume);
        let biased = r.sampler.logit_bias.iter().map(|(id, _)| id);
        if let Some(id) = all.chain(biased).find(|id| **id >= n_vocab) {
            return invalid(format!("token {id} is outside the vocabulary of {n_vocab}"));
        }
        match r.pooling {
            None if !model.weights().makes_logits() => {
                return invalid("the model makes vectors of texts and no logits: use /v1/embeddings".into());
            }
            Some(_) if source > 0 => {
                return invalid("an encoder reads the prompts of this model for its texts: it makes no vectors".into());
            }
            Some(Pooling::Rank) if !model.ranks() => {
                return invalid("the model does not rank texts: it has no head for that".into());
            }
            _ => {}
        }
        if source > 0 && r.prompt_logprobs {
            return invalid("an encoder reads the prompts of this model, whose tokens have no probabilities".into());
        }
        // A text has at least one token behind its prompt, a vector none.
        let needed = tokens + usize::from(r.pooling.is_none());
        if needed.max(source) > self.n_ctx() {
            let n_ctx = self.n_ctx();
            return Err(Refused::TooLong { tokens: tokens.max(source), n_ctx });
        }
        let room = self.room(&model.weights().page_layout());
        if needed > room {
            return Err(Refused::NeverFits { tokens, room });
        }
        if let Some(bits) = r.bits.filter(|b| !self.widths.contains(b)) {
            return invalid(match self.widths.is_empty() {
                true => "the model has one width: leave 'bits' out".into(),
                false => format!("the model is not served at {bits} bits, but at {:?}", self.widths),
            });
        }
        if let Some(draft) = r.draft_bits.filter(|bits| *bits > 0)
            && let Err(why) = speculate::check(model.weights(), draft, r.bits.or(self.bits).unwrap_or(0))
        {
            return invalid(format!("'draft_bits': {why}"));
        }
        if r.logprobs.is_some_and(|n| n > MOST_LOGPROBS) {
            return invalid(format!("more than {MOST_LOGPROBS} probabilities per token"));
        }
        if r.stop.len() > MOST_STOPS || r.stop.iter().any(|s| s.len() > LONGEST_STOP) {
            return invalid(format!("more than {MOST_STOPS} stop strings, or one of more than {LONGEST_STOP} bytes"));
        }
        if r.stop.iter().any(String::is_empty) {
            return invalid("an empty stop string".into());
        }
        if r.sampler.logit_bias.len() + r.sampler.banned.len() > MOST_BIASES {
            return invalid(format!("more than {MOST_BIASES} biases"));
        }
        let cost = self.cost(model, r);
        if cost > self.max_request_memory {
            return Err(Refused::TooMuch { needed: cost, most: self.max_request_memory });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recurrent_states_are_part_of_the_memory() {
        let layout = PageLayout::new(2, 2, [64, 64]);
        let options =
            Options { parallel: 3, n_ctx: Some(300), kv_memory: Some(10 * layout.bytes()), ..Options::default() };
        assert_eq!(options.pages(&layout), 10);
        // Three states, each as large as a page.
        let states = layout.clone().with_state(layout.bytes() / size_of::<f32>());
        assert_eq!(options.pages(&states), 7);
        let drafting = Options { drafts: Some(DraftSource::Text), ..options.clone() };
        assert_eq!((drafting.pages(&layout), drafting.pages(&states)), (10, 4));
        let small = Options { kv_memory: Some(layout.bytes()), ..options };
        assert_eq!(small.pages(&states), 1);
    }
}
