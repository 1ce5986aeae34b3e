//! Chooses the next token: llama.cpp's default sampler chain, draw for draw.
//!
//! Order: banned tokens, penalties, top-k, typical, top-p, min-p, temperature, then one draw. The same
//! logits, options and seed give the same token as the reference: the generator is MT19937 read as
//! libstdc++ reads it, the sums are taken in the same order and precision, and equal logits keep the
//! order libstdc++'s sorts leave them in (see [`crate::ops::order`]).
//!
//! A temperature of 0 or less takes the highest logit.

mod candidates;
pub(crate) mod rng;

use std::collections::{HashMap, VecDeque};

use candidates::Candidates;
use rng::Mt19937;

/// How to choose. The default is llama.cpp's.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerOptions {
    /// Seed of the random numbers.
    pub seed: u32,
    /// Temperature; 0 or less is greedy.
    pub temp: f32,
    /// Keep the k highest logits; 0 or less: all.
    pub top_k: i32,
    /// Keep the most likely tokens up to this total probability; 1: all.
    pub top_p: f32,
    /// Keep tokens at least this likely relative to the first; 0: all.
    pub min_p: f32,
    /// Locally typical sampling; 1: off.
    pub typical_p: f32,
    /// Divides (or, below 0, multiplies) the logits of recent tokens; 1: off.
    pub repeat_penalty: f32,
    /// How many recent tokens count as recent; 0: penalties off.
    pub repeat_last_n: usize,
    /// Subtracted from the logit of a recent token once per occurrence; 0: off.
    pub frequency_penalty: f32,
    /// Subtracted once from the logit of a recent token; 0: off.
    pub presence_penalty: f32,
    /// Tokens that are never chosen.
    pub banned: Vec<u32>,
}

impl Default for SamplerOptions {
    fn default() -> SamplerOptions {
        SamplerOptions {
            seed: 0,
            temp: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            banned: Vec::new(),
        }
    }
}

impl SamplerOptions {
    /// Always the highest logit.
    pub fn greedy() -> SamplerOptions {
        SamplerOptions {
            temp: 0.0,
            ..SamplerOptions::default()
        }
    }
}

/// Why no token can be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// An option that no chain can follow.
    #[error("{name} must be {wanted}, not {value}")]
    Option {
        /// The option.
        name: &'static str,
        /// What it may be.
        wanted: &'static str,
        /// What it is.
        value: f32,
    },
    /// The model computed a NaN or +inf.
    #[error("the logit of token {id} is not finite: the model's weights are damaged")]
    NotFinite {
        /// The first such token.
        id: usize,
    },
    /// There is nothing to choose from.
    #[error("there are no logits to choose from")]
    Empty,
}

/// A sampler with its random numbers and its memory of recent tokens.
#[derive(Clone)]
pub struct Sampler {
    options: SamplerOptions,
    rng: Mt19937,
    recent: VecDeque<u32>,
    counts: HashMap<u32, u32>,
}

impl Sampler {
    /// A sampler in its first state.
    ///
    /// # Errors
    /// An option that is not a number, or a repeat penalty that is not above 0.
    pub fn new(options: SamplerOptions) -> Result<Sampler, SampleError> {
        let r = options.repeat_penalty;
        if !(r.is_finite() && r > 0.0 && (1.0 / r).is_finite()) {
            return Err(SampleError::Option {
                name: "the repeat penalty",
                wanted: "above 0 and finite",
                value: r,
            });
        }
        for (name, value) in [
            ("the temperature", options.temp),
            ("top-p", options.top_p),
            ("min-p", options.min_p),
            ("typical-p", options.typical_p),
            ("the frequency penalty", options.frequency_penalty),
            ("the presence penalty", options.presence_penalty),
        ] {
            if !value.is_finite() {
                return Err(SampleError::Option {
                    name,
                    wanted: "a finite number",
                    value,
                });
            }
        }
        Ok(Sampler {
            rng: Mt19937::new(options.seed),
            options,
            recent: VecDeque::new(),
            counts: HashMap::new(),
        })
    }

    /// Chooses a token. Draws exactly one random number, whatever the options.
    ///
    /// # Errors
    /// A NaN or +inf among the logits.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, SampleError> {
        let list = self.candidates(logits)?;
        Ok(self.draw(list))
    }

    /// Chooses one of the tokens that `allowed` names; `None` when it names none that may be chosen. Draws exactly one
    /// random number.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    pub fn sample_among(
        &mut self,
        logits: &[f32],
        allowed: impl Fn(u32) -> bool,
    ) -> Result<Option<u32>, SampleError> {
        let mut list = self.candidates(logits)?;
        list.items
            .retain(|c| c.logit > f32::NEG_INFINITY && allowed(c.id));
        if list.items.is_empty() {
            self.rng.next_f64();
            return Ok(None);
        }
        Ok(Some(self.draw(list)))
    }

    /// All tokens with their logits, banned and penalized.
    fn candidates(&self, logits: &[f32]) -> Result<Candidates, SampleError> {
        if logits.is_empty() {
            return Err(SampleError::Empty);
        }
        if let Some(id) = logits
            .iter()
            .position(|l| l.is_nan() || *l == f32::INFINITY)
        {
            return Err(SampleError::NotFinite { id });
        }
        let mut list = Candidates::new(logits);
        for &id in &self.options.banned {
            if let Some(c) = list.items.get_mut(id as usize) {
                c.logit = f32::NEG_INFINITY;
            }
        }
        self.penalize(&mut list);
        Ok(list)
    }

    /// The rest of the chain, and the draw.
    fn draw(&mut self, mut list: Candidates) -> u32 {
        let o = &self.options;
        list.top_k(o.top_k);
        list.typical(o.typical_p);
        list.top_p(o.top_p);
        list.min_p(o.min_p);
        list.temperature(o.temp);
        let uniform = self.rng.next_f64();
        list.choose(uniform)
    }

    /// Remembers a token of the text, prompt or generated, for the penalties.
    pub fn accept(&mut self, id: u32) {
        if !self.penalizes() {
            return;
        }
        if self.recent.len() == self.options.repeat_last_n
            && let Some(old) = self.recent.pop_front()
            && let Some(count) = self.counts.get_mut(&old)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&old);
            }
        }
        self.recent.push_back(id);
        *self.counts.entry(id).or_default() += 1;
    }

    /// As if `id` had been chosen and accepted: what comes next is chosen as after it.
    pub fn replay(&mut self, id: u32) {
        self.rng.next_f64();
        self.accept(id);
    }

    /// Back to the first state: nothing remembered, the random numbers from the start.
    pub fn reset(&mut self) {
        self.rng = Mt19937::new(self.options.seed);
        self.recent.clear();
        self.counts.clear();
    }

    fn penalizes(&self) -> bool {
        let o = &self.options;
        let off =
            o.repeat_penalty == 1.0 && o.frequency_penalty == 0.0 && o.presence_penalty == 0.0;
        o.repeat_last_n > 0 && !off
    }

    fn penalize(&self, list: &mut Candidates) {
        let o = &self.options;
        for (&id, &count) in &self.counts {
            let Some(c) = list.items.get_mut(id as usize) else {
                continue;
            };
            // Dividing a negative logit would make the token more likely.
            if c.logit <= 0.0 {
                c.logit *= o.repeat_penalty;
            } else {
                c.logit /= o.repeat_penalty;
            }
            c.logit -= count as f32 * o.frequency_penalty + o.presence_penalty;
        }
    }
}

#[cfg(test)]
mod tests;
