//! What a caller may choose about the choice of tokens.

use super::SampleError;
use super::dry::DryOptions;

/// A step of the chain that a token goes through before it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SamplerKind {
    /// Penalties for tokens that occurred lately.
    Penalties,
    /// DRY: a penalty for tokens that go on with a repetition.
    Dry,
    /// Top-nσ: logits within some standard deviations of the highest.
    TopNSigma,
    /// The k highest logits.
    TopK,
    /// Locally typical sampling.
    Typical,
    /// Top-p, or nucleus sampling.
    TopP,
    /// Tokens with a share of the most likely one's probability.
    MinP,
    /// XTC: leaves out the most likely tokens now and then.
    Xtc,
    /// The temperature, fixed or by the entropy.
    Temperature,
    /// Adaptive-p, which draws the token itself, last of all.
    AdaptiveP,
}

impl SamplerKind {
    /// The steps in the order that llama.cpp takes them in.
    pub const DEFAULT_CHAIN: &'static [SamplerKind] = &[
        SamplerKind::Penalties,
        SamplerKind::Dry,
        SamplerKind::TopNSigma,
        SamplerKind::TopK,
        SamplerKind::Typical,
        SamplerKind::TopP,
        SamplerKind::MinP,
        SamplerKind::Xtc,
        SamplerKind::Temperature,
    ];

    /// All steps with their names and the letters of llama.cpp's `--sampler-seq`.
    const NAMES: &'static [(SamplerKind, &'static str, char)] = &[
        (SamplerKind::Penalties, "penalties", 'e'),
        (SamplerKind::Dry, "dry", 'd'),
        (SamplerKind::TopNSigma, "top_n_sigma", 's'),
        (SamplerKind::TopK, "top_k", 'k'),
        (SamplerKind::Typical, "typ_p", 'y'),
        (SamplerKind::TopP, "top_p", 'p'),
        (SamplerKind::MinP, "min_p", 'm'),
        (SamplerKind::Xtc, "xtc", 'x'),
        (SamplerKind::Temperature, "temperature", 't'),
        (SamplerKind::AdaptiveP, "adaptive_p", 'a'),
    ];

    /// llama.cpp's name of the step.
    pub fn name(self) -> &'static str {
        let of = |n: &&(SamplerKind, &'static str, char)| n.0 == self;
        Self::NAMES.iter().find(of).map_or("", |n| n.1)
    }

    /// Names of all steps.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|n| n.1)
    }

    /// The step of a name as llama.cpp takes it: with `_`, `-` or nothing between its words, in any case, and by the
    /// other names that are in use.
    pub fn by_name(name: &str) -> Option<SamplerKind> {
        let plain = |name: &str| name.to_lowercase().replace(['_', '-'], "");
        let asked = plain(name);
        let own = Self::NAMES.iter().find(|n| plain(n.1) == asked);
        own.map(|n| n.0).or(match asked.as_str() {
            "nucleus" => Some(SamplerKind::TopP),
            "typical" | "typicalp" => Some(SamplerKind::Typical),
            "temp" => Some(SamplerKind::Temperature),
            _ => None,
        })
    }

    /// The step of a letter.
    pub fn by_letter(letter: char) -> Option<SamplerKind> {
        let of = |n: &&(SamplerKind, &'static str, char)| n.2 == letter;
        Self::NAMES.iter().find(of).map(|n| n.0)
    }
}

/// Mirostat (Basu et al. 2021), which holds the surprise of the text at a target instead of cutting lists.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mirostat {
    /// Version 1 estimates the exponent of Zipf's law from the most likely tokens, version 2 cuts by surprise alone.
    pub version: MirostatVersion,
    /// The target: surprise in bits.
    pub tau: f32,
    /// How fast the cut follows the difference from the target.
    pub eta: f32,
}

/// Which of the two algorithms of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirostatVersion {
    /// Algorithm 1.
    V1,
    /// Algorithm 2.
    V2,
}

/// How to choose. The default is llama.cpp's.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerOptions {
    /// Seed of the random numbers.
    pub seed: u32,
    /// The steps in their order. Steps that stand twice are taken twice; those that are missing are not taken.
    pub samplers: Vec<SamplerKind>,
    /// Instead of the steps: the temperature, then Mirostat.
    pub mirostat: Option<Mirostat>,
    /// Top-p, min-p, typical and XTC leave at least so many tokens, if there are that many; 0: no such rule.
    pub min_keep: usize,
    /// Temperature; 0 or less is greedy.
    pub temp: f32,
    /// The temperature moves by so much around [`temp`](Self::temp), with the entropy of the tokens; 0: it is fixed.
    pub dynatemp_range: f32,
    /// How the entropy maps to the temperature: the exponent of its share of the largest possible one.
    pub dynatemp_exponent: f32,
    /// Keep the k highest logits; 0 or less: all.
    pub top_k: i32,
    /// Keep the most likely tokens up to this total probability; 1: all.
    pub top_p: f32,
    /// Keep tokens at least this likely relative to the first; 0: all.
    pub min_p: f32,
    /// Locally typical sampling; 1: off.
    pub typical_p: f32,
    /// Keep logits that are no more than so many standard deviations below the highest; 0 or less: all.
    pub top_n_sigma: f32,
    /// How likely XTC leaves out tokens; 0: never.
    pub xtc_probability: f32,
    /// XTC leaves out the tokens above this probability but for the least likely of them; above 0.5: off.
    pub xtc_threshold: f32,
    /// Divides (or, below 0, multiplies) the logits of recent tokens; 1: off.
    pub repeat_penalty: f32,
    /// How many recent tokens count as recent; 0: penalties off.
    pub repeat_last_n: usize,
    /// Subtracted from the logit of a recent token once per occurrence; 0: off.
    pub frequency_penalty: f32,
    /// Subtracted once from the logit of a recent token; 0: off.
    pub presence_penalty: f32,
    /// DRY repetition penalty.
    pub dry: DryOptions,
    /// The probability near which adaptive-p chooses; below 0: it draws without a target.
    pub adaptive_target: f32,
    /// How long adaptive-p remembers, up to 0.99: about 1 / (1 - decay) tokens.
    pub adaptive_decay: f32,
    /// Added to the logits of tokens before all steps.
    pub logit_bias: Vec<(u32, f32)>,
    /// Tokens that are never chosen.
    pub banned: Vec<u32>,
}

impl Default for SamplerOptions {
    fn default() -> SamplerOptions {
        SamplerOptions {
            seed: 0,
            samplers: SamplerKind::DEFAULT_CHAIN.to_vec(),
            mirostat: None,
            min_keep: 0,
            temp: 0.8,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            top_n_sigma: -1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            dry: DryOptions::default(),
            adaptive_target: -1.0,
            adaptive_decay: 0.9,
            logit_bias: Vec::new(),
            banned: Vec::new(),
        }
    }
}

impl SamplerOptions {
    /// Always the highest logit.
    pub fn greedy() -> SamplerOptions {
        SamplerOptions { temp: 0.0, ..SamplerOptions::default() }
    }

    /// Whether the state after a text follows from its tokens alone, so that
    /// [`Sampler::replay`](super::Sampler::replay) can bring it back.
    pub fn replays(&self) -> bool {
        self.unreplayable().is_none()
    }

    /// The option that keeps a text from being replayed: XTC, Mirostat and adaptive-p sample or remember by
    /// probabilities that only the model knows.
    pub fn unreplayable(&self) -> Option<&'static str> {
        let has = |kind| self.samplers.contains(&kind);
        let xtc = has(SamplerKind::Xtc) && self.xtc_probability > 0.0 && self.xtc_threshold <= 0.5;
        match () {
            () if self.mirostat.is_some() => Some("mirostat"),
            () if has(SamplerKind::AdaptiveP) => Some("adaptive_p"),
            () => xtc.then_some("xtc_probability"),
        }
    }

    /// Finds options that no chain can follow.
    pub(super) fn check(&self) -> Result<(), SampleError> {
        let r = self.repeat_penalty;
        if !(r.is_finite() && r > 0.0 && (1.0 / r).is_finite()) {
            return Err(SampleError::Option { name: "the repeat penalty", wanted: "above 0 and finite", value: r });
        }
        let (tau, eta) = self.mirostat.map_or((0.0, 0.0), |m| (m.tau, m.eta));
        for (name, value) in [
            ("the temperature", self.temp),
            ("the range of the temperature", self.dynatemp_range),
            ("the exponent of the temperature", self.dynatemp_exponent),
            ("top-p", self.top_p),
            ("min-p", self.min_p),
            ("typical-p", self.typical_p),
            ("top-n-sigma", self.top_n_sigma),
            ("the probability of XTC", self.xtc_probability),
            ("the threshold of XTC", self.xtc_threshold),
            ("the frequency penalty", self.frequency_penalty),
            ("the presence penalty", self.presence_penalty),
            ("the multiplier of DRY", self.dry.multiplier),
            ("the base of DRY", self.dry.base),
            ("the target of adaptive-p", self.adaptive_target),
            ("the decay of adaptive-p", self.adaptive_decay),
            ("the entropy of Mirostat", tau),
            ("the learning rate of Mirostat", eta),
        ] {
            if !value.is_finite() {
                return Err(SampleError::Option { name, wanted: "a finite number", value });
            }
        }
        // A bias of -inf forbids a token.
        let mut biases = self.logit_bias.iter().map(|b| b.1);
        match biases.find(|b| b.is_nan() || *b == f32::INFINITY) {
            None => Ok(()),
            Some(value) => Err(SampleError::Option { name: "a logit bias", wanted: "a number below infinity", value }),
        }
    }
}
