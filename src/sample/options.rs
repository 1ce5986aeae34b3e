//! The options of the sampler, and the table that command lines, requests and pages of documentation read.

use super::SampleError;
use super::dry::DryOptions;

/// A step of the chain of samplers, before a token is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SamplerKind {
    /// Penalties for tokens that occurred lately.
    Penalties,
    /// DRY: a penalty for tokens that continue a repetition.
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
    /// Eta sampling: tokens that are not too unlikely for the entropy.
    Eta,
    /// XTC: leaves out the most likely tokens now and then.
    Xtc,
    /// The temperature, fixed or by the entropy.
    Temperature,
    /// Adaptive-p, which draws the token itself, last of all.
    AdaptiveP,
}

impl SamplerKind {
    /// The steps in the order that llama.cpp takes them in, and those it does not have where they belong; these are off
    /// unless asked for.
    pub const DEFAULT_CHAIN: &'static [SamplerKind] = &[
        SamplerKind::Penalties,
        SamplerKind::Dry,
        SamplerKind::TopNSigma,
        SamplerKind::TopK,
        SamplerKind::Typical,
        SamplerKind::TopP,
        SamplerKind::MinP,
        SamplerKind::Eta,
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
        (SamplerKind::Eta, "eta", 'h'),
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

    /// Letters of all steps.
    pub fn letters() -> impl Iterator<Item = char> {
        Self::NAMES.iter().map(|n| n.2)
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
    /// The algorithm.
    pub version: MirostatVersion,
    /// The target: surprise in bits.
    pub tau: f32,
    /// How fast the cut follows the difference from the target.
    pub eta: f32,
}

/// Algorithms of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirostatVersion {
    /// None: the steps of the chain.
    Off,
    /// Algorithm 1, which estimates the exponent of Zipf's law from the most likely tokens.
    V1,
    /// Algorithm 2, which cuts by surprise alone.
    V2,
}

impl Mirostat {
    /// True if it takes the place of the steps.
    pub fn is_on(&self) -> bool {
        self.version != MirostatVersion::Off
    }
}

impl Default for Mirostat {
    fn default() -> Mirostat {
        Mirostat { version: MirostatVersion::Off, tau: 5.0, eta: 0.1 }
    }
}

/// Options of the sampler. The default is llama.cpp's.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerOptions {
    /// Seed of the random numbers.
    pub seed: u32,
    /// The steps in their order. Steps that stand twice are taken twice; those that are missing are not taken.
    pub samplers: Vec<SamplerKind>,
    /// Instead of the steps: the temperature, then Mirostat.
    pub mirostat: Mirostat,
    /// Number of tokens that top-p, min-p, typical and XTC leave at least, if there are as many; 0: no such rule.
    pub min_keep: usize,
    /// Temperature; 0 or less is greedy.
    pub temp: f32,
    /// Largest distance of the temperature from [`temp`](Self::temp), by the entropy of the tokens; 0: it is fixed.
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
    /// Keep logits that are at most this number of standard deviations below the highest; 0 or less: all.
    pub top_n_sigma: f32,
    /// Eta sampling: ε, the probability from which on a token stays whatever the entropy is; 0: off.
    pub eta_cutoff: f32,
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
            mirostat: Mirostat::default(),
            min_keep: 0,
            temp: 0.8,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            top_n_sigma: -1.0,
            eta_cutoff: 0.0,
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

    /// True if the state after a text follows from its tokens alone, so that
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
            () if self.mirostat.is_on() => Some("mirostat"),
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
        for option in OPTIONS {
            let value = option.get(self) as f32;
            if !value.is_finite() {
                return Err(SampleError::Option { name: option.field, wanted: "a finite number", value });
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

/// Description of an option that is a number: one row serves command lines, requests, answers and documentation.
#[derive(Clone, Copy, Debug)]
pub struct SamplerOption {
    /// Its member in a JSON object, by llama-server's name.
    pub field: &'static str,
    /// Its names on a command line, with their dashes; llama.cpp's first. Empty: requests alone have it.
    pub flags: &'static [&'static str],
    /// Placeholder of its value in a help text.
    pub value: &'static str,
    /// Its values.
    pub range: Range,
    /// Its meaning, for a help text.
    pub help: &'static str,
    get: fn(&SamplerOptions) -> f64,
    set: fn(&mut SamplerOptions, f64),
}

/// Values of an option. All of them are f32 or whole numbers, and so exact as f64.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Whole numbers only.
    pub whole: bool,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// Fate of values outside of them.
    pub outside: Outside,
    /// A number of the last tokens, where -1 stands for the whole context.
    pub window: bool,
}

/// Fate of a value outside of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// The value is refused.
    Refused,
    /// The nearer end counts.
    Nearest,
    /// The nearer end counts in a request, as in llama-server; a command line is refused.
    NearestInRequests,
}

impl Range {
    const NUMBER: Range =
        Range { whole: false, low: f32::MIN as f64, high: f32::MAX as f64, outside: Outside::Refused, window: false };
    /// Range of a probability.
    const SHARE: Range = Range { low: 0.0, high: 1.0, outside: Outside::NearestInRequests, ..Range::NUMBER };
    const WHOLE: Range = Range { whole: true, low: i32::MIN as f64, high: i32::MAX as f64, ..Range::NUMBER };
    const COUNT: Range = Range { low: 0.0, ..Range::WHOLE };
    const WINDOW: Range = Range { low: -1.0, window: true, ..Range::WHOLE };

    /// A value as people write it.
    pub fn show(&self, value: f64) -> String {
        if self.whole { (value as i64).to_string() } else { (value as f32).to_string() }
    }

    const fn between(low: f64, high: f64, outside: Outside) -> Range {
        Range { low, high, outside, ..Range::NUMBER }
    }
}

impl SamplerOption {
    /// The option of a JSON member's name.
    pub fn by_field(field: &str) -> Option<&'static SamplerOption> {
        OPTIONS.iter().find(|o| o.field == field)
    }

    /// Its value in `options`; exact, though it may be infinite or no number.
    pub fn get(&self, options: &SamplerOptions) -> f64 {
        (self.get)(options)
    }

    /// Changes its value in `options`, for texts in a context of `n_ctx` tokens. The value is one of its range.
    pub fn set(&self, options: &mut SamplerOptions, value: f64, n_ctx: usize) {
        let whole_context = self.range.window && value < 0.0;
        (self.set)(options, if whole_context { n_ctx as f64 } else { value });
    }

    /// Reads its value from a word of a command line.
    ///
    /// # Errors
    /// No such number.
    pub fn parse(&self, word: &str) -> Result<f64, String> {
        let Range { whole, low, high, outside, .. } = self.range;
        let value = match whole {
            true => word.parse::<i64>().ok().map(|n| n as f64),
            false => word.parse::<f32>().ok().map(f64::from).filter(|x| x.is_finite()),
        };
        match value {
            Some(value) if outside == Outside::Nearest => Ok(value.clamp(low, high)),
            Some(value) if (low..=high).contains(&value) => Ok(value),
            Some(_) if self.range == Range::SHARE => {
                Err(format!("it is a probability: give a number from 0 to 1, not {word}"))
            }
            Some(_) => Err(format!("give a number from {} to {}", self.range.show(low), self.range.show(high))),
            None => Err(format!("'{word}' is no {}number that can stand here", if whole { "whole " } else { "" })),
        }
    }
}

/// A field of the options, which is a float or a whole number, as [`SamplerOption`] reads and writes it.
macro_rules! number {
    ($($field:ident).+ as $type:ty) => {
        (|o| o.$($field).+ as f64, |o, x| o.$($field).+ = x as $type)
    };
}

type Access = (fn(&SamplerOptions) -> f64, fn(&mut SamplerOptions, f64));

const fn row(
    field: &'static str,
    flags: &'static [&'static str],
    value: &'static str,
    range: Range,
    (get, set): Access,
    help: &'static str,
) -> SamplerOption {
    SamplerOption { field, flags, value, range, help, get, set }
}

const MIROSTAT: Access = (
    |o| f64::from(o.mirostat.version as u8),
    |o, x| {
        o.mirostat.version = match x {
            2.0 => MirostatVersion::V2,
            1.0 => MirostatVersion::V1,
            _ => MirostatVersion::Off,
        }
    },
);

/// The options that are numbers, apart from the seed.
#[rustfmt::skip]
pub const OPTIONS: &[SamplerOption] = &[
    row("temperature", &["--temp", "--temperature"], "T", Range::between(0.0, f32::MAX as f64, Outside::Nearest), number!(temp as f32),
        "Temperature; 0: always the most likely token"),
    row("dynatemp_range", &["--dynatemp-range"], "T", Range::NUMBER, number!(dynatemp_range as f32),
        "Move the temperature by up to so much either way, by the entropy of the tokens; 0: leave it"),
    row("dynatemp_exponent", &["--dynatemp-exp"], "X", Range::NUMBER, number!(dynatemp_exponent as f32),
        "The exponent of the entropy's share in that"),
    row("top_k", &["--top-k"], "K", Range::WHOLE, number!(top_k as i32),
        "Choose among the K most likely tokens; 0: all"),
    row("top_p", &["--top-p"], "P", Range::SHARE, number!(top_p as f32),
        "Choose among the most likely tokens that have this probability together; 1: all"),
    row("min_p", &["--min-p"], "P", Range::SHARE, number!(min_p as f32),
        "Leave out tokens less likely than this share of the most likely one; 0: none"),
    row("typical_p", &["--typical", "--typical-p"], "P", Range::SHARE, number!(typical_p as f32),
        "Locally typical sampling; 1: off"),
    row("top_n_sigma", &["--top-n-sigma", "--top-nsigma"], "N", Range::NUMBER, number!(top_n_sigma as f32),
        "Leave out logits more than N standard deviations below the highest; 0 or less: none"),
    row("eta_cutoff", &["--eta-cutoff"], "P", Range::SHARE, number!(eta_cutoff as f32),
        "Eta sampling: leave out tokens less likely than P, or than the root of P by e to the entropy if that is lower; 0: none"),
    row("xtc_probability", &["--xtc-probability"], "P", Range::SHARE, number!(xtc_probability as f32),
        "XTC: how likely the most likely tokens are left out; 0: never"),
    row("xtc_threshold", &["--xtc-threshold"], "P", Range::SHARE, number!(xtc_threshold as f32),
        "XTC: the tokens from this probability up, but for the least likely of them; above 0.5: none"),
    row("repeat_penalty", &["--repeat-penalty"], "X", Range::NUMBER, number!(repeat_penalty as f32),
        "Make tokens that occurred less likely; 1: off"),
    row("repeat_last_n", &["--repeat-last-n"], "N", Range::WINDOW, number!(repeat_last_n as usize),
        "How far back tokens count as occurred; 0: off, -1: the whole context"),
    row("presence_penalty", &["--presence-penalty"], "X", Range::NUMBER, number!(presence_penalty as f32),
        "Subtract from the logit of a token that occurred; 0: off"),
    row("frequency_penalty", &["--frequency-penalty"], "X", Range::NUMBER, number!(frequency_penalty as f32),
        "Subtract from the logit of a token for every time it occurred; 0: off"),
    row("dry_multiplier", &["--dry-multiplier"], "X", Range::NUMBER, number!(dry.multiplier as f32),
        "DRY: the penalty of a token that would go on with a repetition, times the base to the power of what is longer than allowed; 0: off"),
    row("dry_base", &["--dry-base"], "X", Range::NUMBER, number!(dry.base as f32),
        "DRY: the base; below 1: off"),
    row("dry_allowed_length", &["--dry-allowed-length"], "N", Range::COUNT, number!(dry.allowed_length as usize),
        "DRY: the longest repetition in tokens that costs nothing"),
    row("dry_penalty_last_n", &["--dry-penalty-last-n"], "N", Range::WINDOW, number!(dry.last_n as usize),
        "DRY: how far back repetitions are looked for; 0: off, -1: the whole context"),
    row("adaptive_target", &["--adaptive-target"], "P", Range::between(f32::MIN as f64, 1.0, Outside::Nearest), number!(adaptive_target as f32),
        "Adaptive-p (a step of --samplers): the probability near which tokens are chosen; below 0: draw as they are"),
    row("adaptive_decay", &["--adaptive-decay"], "X", Range::between(0.0, 0.99f32 as f64, Outside::Refused), number!(adaptive_decay as f32),
        "Adaptive-p: how long it remembers, up to 0.99"),
    row("mirostat", &["--mirostat"], "N", Range { high: 2.0, outside: Outside::NearestInRequests, ..Range::COUNT }, MIROSTAT,
        "Mirostat 1 or 2 instead of the steps: the temperature, then a cut that holds the surprise at a target; 0: off"),
    row("mirostat_eta", &["--mirostat-lr"], "X", Range::NUMBER, number!(mirostat.eta as f32),
        "Mirostat: the learning rate"),
    row("mirostat_tau", &["--mirostat-ent"], "X", Range::NUMBER, number!(mirostat.tau as f32),
        "Mirostat: the target in bits"),
    row("min_keep", &[], "N", Range::COUNT, number!(min_keep as usize),
        "Top-p, min-p, typical and XTC leave at least so many tokens; 0: no such rule"),
];
