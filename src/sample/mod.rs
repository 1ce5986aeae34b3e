//! Chooses the next token: llama.cpp's sampler chain, draw for draw.
//!
//! Order: biases and banned tokens, then the steps of [`SamplerOptions::samplers`] ([`SamplerKind::DEFAULT_CHAIN`]
//! unless told otherwise), then one draw. The same logits, options and seed give the same token as the reference: the
//! generator is MT19937 read as libstdc++ reads it, the sums are taken in the same order and precision, and equal logits
//! keep the order libstdc++'s sorts leave them in (see
//! `crate::ops::order`).
//!
//! A temperature of 0 or less takes the highest logit.

mod candidates;
mod draw;
mod dry;
mod error;
mod eta;
mod filters;
mod options;
mod recent;
mod recommended;
pub(crate) mod rng;

pub use dry::{DryBreakers, DryOptions, Vocabulary};
pub use error::SampleError;
pub use options::{Mirostat, MirostatVersion, OPTIONS, Outside, Range, SamplerKind, SamplerOption, SamplerOptions};
pub use recommended::Recommended;

use candidates::Candidates;
use draw::{Adaptive, Surprise};
use dry::Dry;
use recent::Counted;
use rng::Mt19937;

/// A step with what it remembers.
#[derive(Clone)]
enum Stage {
    Penalties(Counted),
    Dry(Dry),
    Xtc(Box<Mt19937>),
    /// A stage without a state.
    Filter(fn(&SamplerOptions, &mut Candidates)),
}

/// The last step, which samples the token.
#[derive(Clone)]
enum Draw {
    ByProbability(Box<Mt19937>),
    Mirostat(Box<Surprise>),
    Adaptive(Box<Adaptive>),
}

/// A sampler with its random numbers and its memory of recent tokens.
#[derive(Clone)]
pub struct Sampler {
    options: SamplerOptions,
    chain: Vec<Stage>,
    draw: Draw,
    /// Distribution that the last token was sampled from, where that is wanted.
    odds: Option<Vec<(u32, f32)>>,
}

impl Sampler {
    /// A sampler in its first state.
    ///
    /// # Errors
    /// An option that is not a number, or a repeat penalty that is not above 0.
    pub fn new(options: SamplerOptions) -> Result<Sampler, SampleError> {
        options.check()?;
        let (chain, draw) = first(&options);
        Ok(Sampler { options, chain, draw, odds: None })
    }

    /// The options that it follows.
    pub fn options(&self) -> &SamplerOptions {
        &self.options
    }

    /// Chooses a token.
    ///
    /// # Errors
    /// A NaN or +inf among the logits.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, SampleError> {
        let list = self.candidates(logits)?;
        Ok(self.choose_from(list, logits.len()))
    }

    /// Chooses one of the tokens that `allowed` names; `None` when it names none that may be chosen.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    pub fn sample_among(&mut self, logits: &[f32], allowed: impl Fn(u32) -> bool) -> Result<Option<u32>, SampleError> {
        let mut list = self.candidates(logits)?;
        list.items.retain(|c| c.logit > f32::NEG_INFINITY && allowed(c.id));
        if list.items.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.choose_from(list, logits.len())))
    }

    /// From now on keeps the candidates that tokens are sampled from, for [`Sampler::odds`]. It changes no choice.
    pub fn keep_odds(&mut self) {
        self.odds.get_or_insert_default();
    }

    /// The tokens that the last one was sampled from, itself among them, with their probabilities: the likeliest first,
    /// of equal ones the lower id. Tokens of probability 0 are left out. Empty before the first draw, and without
    /// [`Sampler::keep_odds`].
    pub fn odds(&self) -> &[(u32, f32)] {
        self.odds.as_deref().unwrap_or_default()
    }

    /// All tokens with their logits, biased and banned.
    fn candidates(&self, logits: &[f32]) -> Result<Candidates, SampleError> {
        if logits.is_empty() {
            return Err(SampleError::Empty);
        }
        if let Some(id) = logits.iter().position(|l| l.is_nan() || *l == f32::INFINITY) {
            return Err(SampleError::NotFinite { id });
        }
        let mut list = Candidates::new(logits);
        for &(id, bias) in &self.options.logit_bias {
            if let Some(c) = list.items.get_mut(id as usize) {
                c.logit += bias;
            }
        }
        for &id in &self.options.banned {
            if let Some(c) = list.items.get_mut(id as usize) {
                c.logit = f32::NEG_INFINITY;
            }
        }
        Ok(list)
    }

    /// The steps of the chain, and the draw from what they leave of `n_vocab` tokens.
    fn choose_from(&mut self, mut list: Candidates, n_vocab: usize) -> u32 {
        for stage in &mut self.chain {
            stage.apply(&self.options, &mut list);
        }
        let id = match &mut self.draw {
            Draw::ByProbability(rng) => draw::draw(&list, rng),
            Draw::Mirostat(surprise) => surprise.draw(&mut list, n_vocab),
            Draw::Adaptive(adaptive) => adaptive.draw(&mut list),
        };
        if let Some(odds) = &mut self.odds {
            *odds = draw::odds(&list);
        }
        id
    }

    /// Remembers a token of the text, prompt or generated, for the penalties.
    pub fn accept(&mut self, id: u32) {
        for stage in &mut self.chain {
            match stage {
                Stage::Penalties(recent) => recent.push(id),
                Stage::Dry(dry) => dry.accept(id),
                _ => {}
            }
        }
        if let Draw::Adaptive(adaptive) = &mut self.draw {
            adaptive.accept(id);
        }
    }

    /// As if `id` had been chosen and accepted: what comes next is chosen as after it, for options that
    /// [can be replayed](SamplerOptions::replays).
    pub fn replay(&mut self, id: u32) {
        if let Draw::ByProbability(rng) = &mut self.draw {
            rng.next_f64();
        }
        self.accept(id);
    }

    /// Back to the first state: nothing remembered, the random numbers from the start.
    pub fn reset(&mut self) {
        (self.chain, self.draw) = first(&self.options);
    }
}

/// The steps that have anything to do, and the draw, before any token.
fn first(o: &SamplerOptions) -> (Vec<Stage>, Draw) {
    if o.mirostat.is_on() {
        let draw = Draw::Mirostat(Box::new(Surprise::new(o.mirostat, o.seed)));
        return (vec![Stage::Filter(|o, list| list.temperature(o.temp))], draw);
    }
    let chain = o.samplers.iter().filter_map(|kind| Stage::new(*kind, o));
    let draw = if o.samplers.contains(&SamplerKind::AdaptiveP) {
        let adaptive = Adaptive::new(o.adaptive_target, o.adaptive_decay, o.seed);
        Draw::Adaptive(Box::new(adaptive))
    } else {
        Draw::ByProbability(Box::new(Mt19937::new(o.seed)))
    };
    (chain.collect(), draw)
}

impl Stage {
    /// The step before any token; `None` where the options switch it off, or where it is no step of the list.
    fn new(kind: SamplerKind, o: &SamplerOptions) -> Option<Stage> {
        let penalties = [(o.repeat_penalty, 1.0), (o.frequency_penalty, 0.0), (o.presence_penalty, 0.0)];
        Some(match kind {
            SamplerKind::Penalties => {
                let on = o.repeat_last_n > 0 && penalties.iter().any(|(value, off)| value != off);
                return on.then(|| Stage::Penalties(Counted::new(o.repeat_last_n)));
            }
            SamplerKind::Dry => return o.dry.is_on().then(|| Stage::Dry(Dry::new(o.dry.clone()))),
            SamplerKind::Xtc => {
                let on = o.xtc_probability > 0.0 && o.xtc_threshold <= 0.5;
                return on.then(|| Stage::Xtc(Box::new(Mt19937::new(o.seed))));
            }
            SamplerKind::TopNSigma => Stage::Filter(|o, list| list.top_n_sigma(o.top_n_sigma)),
            SamplerKind::TopK => Stage::Filter(|o, list| list.top_k(o.top_k)),
            SamplerKind::Typical => Stage::Filter(|o, list| list.typical(o.typical_p, o.min_keep)),
            SamplerKind::TopP => Stage::Filter(|o, list| list.top_p(o.top_p, o.min_keep)),
            SamplerKind::MinP => Stage::Filter(|o, list| list.min_p(o.min_p, o.min_keep)),
            SamplerKind::Eta => Stage::Filter(|o, list| list.eta(o.eta_cutoff, o.min_keep)),
            SamplerKind::Temperature => {
                Stage::Filter(|o, list| list.dynamic_temperature(o.temp, o.dynatemp_range, o.dynatemp_exponent))
            }
            SamplerKind::AdaptiveP => return None,
        })
    }

    fn apply(&mut self, o: &SamplerOptions, list: &mut Candidates) {
        match self {
            Stage::Penalties(recent) => penalize(o, recent, list),
            Stage::Dry(dry) => dry.apply(list),
            Stage::Xtc(rng) => {
                if list.items.len() >= 2 && rng.next_f32() <= o.xtc_probability {
                    list.exclude_top(o.xtc_threshold, o.min_keep);
                }
            }
            Stage::Filter(filter) => filter(o, list),
        }
    }
}

/// Lowers the logits of tokens that occurred lately.
fn penalize(o: &SamplerOptions, recent: &Counted, list: &mut Candidates) {
    let counts = recent.counts();
    list.each_of(counts.keys().copied(), |c| {
        // Dividing a negative logit would make the token more likely.
        if c.logit <= 0.0 {
            c.logit *= o.repeat_penalty;
        } else {
            c.logit /= o.repeat_penalty;
        }
        c.logit -= counts[&c.id] as f32 * o.frequency_penalty + o.presence_penalty;
    });
    list.sorted = false;
}

#[cfg(test)]
mod chain_tests;
#[cfg(test)]
mod tests;
