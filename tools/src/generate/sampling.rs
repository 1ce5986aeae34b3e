//! The options that say how tokens are chosen: llama.cpp's names, defaults and order.

use std::hash::{BuildHasher, RandomState};

use anyhow::{Result, bail};
use clap::Args;
use trine::{DryOptions, Mirostat, MirostatVersion, Model, SamplerKind, SamplerOptions};

use crate::text;

/// How tokens are chosen.
#[derive(Args)]
#[command(next_help_heading = "How tokens are chosen")]
pub struct SamplingArgs {
    /// Random seed; -1: a new one every time, printed on standard error
    #[arg(short, long, value_name = "N", default_value_t = -1, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=u32::MAX as i64))]
    pub seed: i64,

    /// The steps in the order they are taken in, with ; between them: penalties, dry, top_n_sigma, top_k, typ_p, top_p,
    /// min_p, xtc, temperature, adaptive_p. Those left out are not taken
    #[arg(long, value_name = "STEPS", value_parser = steps, conflicts_with = "sampler_seq")]
    pub samplers: Option<Steps>,

    /// The same in letters: edskypmxta
    #[arg(long, alias = "sampling-seq", value_name = "LETTERS", value_parser = letters)]
    pub sampler_seq: Option<Steps>,

    /// Temperature, also --temperature; 0: always the most likely token
    #[arg(long, alias = "temperature", value_name = "T", default_value_t = 0.8, allow_negative_numbers = true)]
    pub temp: f32,

    /// Move the temperature by up to so much either way, by the entropy of the tokens; 0: leave it
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    pub dynatemp_range: f32,

    /// The exponent of the entropy's share in that
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    pub dynatemp_exp: f32,

    /// Choose among the K most likely tokens; 0: all
    #[arg(long, value_name = "K", default_value_t = 40, allow_negative_numbers = true)]
    pub top_k: i32,

    /// Choose among the most likely tokens that have this probability together; 1: all
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    pub top_p: f32,

    /// Leave out tokens less likely than this share of the most likely one; 0: none
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    pub min_p: f32,

    /// Locally typical sampling; 1: off
    #[arg(long, value_name = "P", default_value_t = 1.0, visible_alias = "typical-p")]
    pub typical: f32,

    /// Leave out logits more than N standard deviations below the highest, also --top-nsigma; 0 or less: none
    #[arg(long, alias = "top-nsigma", value_name = "N", default_value_t = -1.0, allow_negative_numbers = true)]
    pub top_n_sigma: f32,

    /// XTC: how likely the most likely tokens are left out; 0: never
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub xtc_probability: f32,

    /// XTC: the tokens from this probability up, but for the least likely of them; above 0.5: none
    #[arg(long, value_name = "P", default_value_t = 0.1)]
    pub xtc_threshold: f32,

    /// Make tokens that occurred less likely; 1: off
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub repeat_penalty: f32,

    /// How far back tokens count as occurred; 0: off, -1: the whole context
    #[arg(long, value_name = "N", default_value_t = 64, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    pub repeat_last_n: i64,

    /// Subtract from the logit of a token that occurred; 0: off
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    pub presence_penalty: f32,

    /// Subtract from the logit of a token for every time it occurred; 0: off
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    pub frequency_penalty: f32,

    /// DRY: the penalty of a token that would go on with a repetition, times the base to the power of what is longer
    /// than allowed; 0: off
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    pub dry_multiplier: f32,

    /// DRY: the base; below 1: off
    #[arg(long, value_name = "X", default_value_t = 1.75, allow_negative_numbers = true)]
    pub dry_base: f32,

    /// DRY: the longest repetition in tokens that costs nothing
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=i64::from(i32::MAX)))]
    pub dry_allowed_length: u32,

    /// DRY: how far back repetitions are looked for; 0: off, -1: the whole context
    #[arg(long, value_name = "N", default_value_t = 64, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    pub dry_penalty_last_n: i64,

    /// DRY: a text that no repetition goes across, any number of times; the first one replaces the usual ones, which
    /// are a line break and : " *, and 'none' stands for no text
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub dry_sequence_breaker: Vec<String>,

    /// Adaptive-p (a step of --samplers): the probability near which tokens are chosen; below 0: draw as they are
    #[arg(long, value_name = "P", default_value_t = -1.0, allow_negative_numbers = true)]
    pub adaptive_target: f32,

    /// Adaptive-p: how long it remembers, up to 0.99
    #[arg(long, value_name = "X", default_value_t = 0.9)]
    pub adaptive_decay: f32,

    /// Mirostat 1 or 2 instead of the steps: the temperature, then a cut that holds the surprise at a target; 0: off
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub mirostat: u8,

    /// Mirostat: the learning rate
    #[arg(long, value_name = "X", default_value_t = 0.1, allow_negative_numbers = true)]
    pub mirostat_lr: f32,

    /// Mirostat: the target in bits
    #[arg(long, value_name = "X", default_value_t = 5.0, allow_negative_numbers = true)]
    pub mirostat_ent: f32,

    /// Add to the logit of a token, any number of times: 15043+1 makes it likelier, 15043-1 less likely, 15043-inf
    /// impossible
    #[arg(short = 'l', long, value_name = "TOKEN+BIAS", value_parser = bias)]
    pub logit_bias: Vec<(u32, f32)>,

    /// Never choose a token that ends the text
    #[arg(long)]
    pub ignore_eos: bool,
}

/// Steps in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps(Vec<SamplerKind>);

/// Parses names of steps.
fn steps(text: &str) -> Result<Steps, String> {
    let names = text.split(';').filter(|name| !name.is_empty());
    let kinds = names.map(|name| {
        SamplerKind::by_name(name.trim()).ok_or_else(|| {
            let all: Vec<_> = SamplerKind::names().collect();
            format!("there is no step '{name}'; there are {}", all.join(", "))
        })
    });
    kinds.collect::<Result<_, _>>().map(Steps)
}

/// Parses letters of steps.
fn letters(text: &str) -> Result<Steps, String> {
    let kinds = text.chars().map(|letter| {
        SamplerKind::by_letter(letter)
            .ok_or_else(|| format!("there is no step '{letter}'; there are e, d, s, k, y, p, m, x, t and a"))
    });
    kinds.collect::<Result<_, _>>().map(Steps)
}

/// Parses a token and what is added to its logit.
fn bias(text: &str) -> Result<(u32, f32), String> {
    let wanted = "give a token id, + or -, and a number, such as 15043+1 or 15043-inf";
    let at = text.find(['+', '-']).ok_or(wanted)?;
    let (id, value) = text.split_at(at);
    let id = id.trim().parse().map_err(|_| wanted)?;
    let size: f32 = value[1..].trim().parse().map_err(|_| wanted)?;
    let value = if value.starts_with('-') { -size } else { size };
    if value.is_nan() || value == f32::INFINITY || size.is_sign_negative() {
        return Err(wanted.to_owned());
    }
    Ok((id, value))
}

impl SamplingArgs {
    /// Finds what clap cannot.
    pub(super) fn check(&self) -> Result<()> {
        for (name, p) in [
            ("--top-p", self.top_p),
            ("--min-p", self.min_p),
            ("--typical", self.typical),
            ("--xtc-probability", self.xtc_probability),
            ("--xtc-threshold", self.xtc_threshold),
        ] {
            if !(0.0..=1.0).contains(&p) {
                bail!("{name} is a probability: give a number from 0 to 1, not {p}");
            }
        }
        Ok(())
    }

    /// The seed asked for, or a new one.
    fn seed(&self) -> u32 {
        match u32::try_from(self.seed) {
            Ok(seed) if seed != u32::MAX => seed,
            // Keyed by the system's random numbers.
            _ => RandomState::new().hash_one(std::process::id()) as u32,
        }
    }

    /// As the library takes them; the seed may be a new one every time. `escapes`: whether texts may have escapes.
    pub(super) fn options(&self, model: &Model, n_ctx: usize, escapes: bool) -> SamplerOptions {
        let chain = self.samplers.as_ref().or(self.sampler_seq.as_ref());
        let chain = chain.map_or_else(|| SamplerKind::DEFAULT_CHAIN.to_vec(), |steps| steps.0.clone());
        let version = match self.mirostat {
            1 => Some(MirostatVersion::V1),
            2 => Some(MirostatVersion::V2),
            _ => None,
        };
        let last_n = |n: i64| usize::try_from(n).unwrap_or(n_ctx);
        SamplerOptions {
            seed: self.seed(),
            samplers: chain,
            mirostat: version.map(|version| Mirostat { version, tau: self.mirostat_ent, eta: self.mirostat_lr }),
            temp: self.temp,
            dynatemp_range: self.dynatemp_range,
            dynatemp_exponent: self.dynatemp_exp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical,
            top_n_sigma: self.top_n_sigma,
            xtc_probability: self.xtc_probability,
            xtc_threshold: self.xtc_threshold,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: last_n(self.repeat_last_n),
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            dry: self.dry(model, last_n(self.dry_penalty_last_n), escapes),
            adaptive_target: self.adaptive_target,
            adaptive_decay: self.adaptive_decay,
            logit_bias: self.logit_bias.clone(),
            ..SamplerOptions::default()
        }
    }

    fn dry(&self, model: &Model, last_n: usize, escapes: bool) -> DryOptions {
        let dry = DryOptions {
            multiplier: self.dry_multiplier,
            base: self.dry_base,
            allowed_length: self.dry_allowed_length as usize,
            last_n,
            ..DryOptions::default()
        };
        if !dry.is_on() {
            return dry;
        }
        let breakers = match &self.dry_sequence_breaker[..] {
            [] => model.dry_breakers(&DryOptions::BREAKERS),
            texts => {
                let texts = texts.iter().filter(|t| *t != "none");
                let plain = |t: &String| match escapes {
                    true => text::unescape(t.as_bytes()),
                    false => t.clone().into_bytes(),
                };
                model.dry_breakers(&texts.map(plain).collect::<Vec<_>>())
            }
        };
        DryOptions { breakers, ..dry }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn biases_are_a_token_a_sign_and_a_number() {
        assert_eq!(bias("15043+1"), Ok((15043, 1.0)));
        assert_eq!(bias("15043-0.5"), Ok((15043, -0.5)));
        assert_eq!(bias("7-inf"), Ok((7, f32::NEG_INFINITY)));
        for wrong in ["", "7", "+1", "7+", "7+inf", "7+nan", "x-1", "7--1"] {
            assert!(bias(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn steps_have_names_and_letters() {
        assert_eq!(steps("top-k;TEMP;top_n_sigma"), letters("kts"));
        assert!(steps("top_k;tip_k").unwrap_err().contains("'tip_k'"));
        assert!(letters("kz").unwrap_err().contains("'z'"));
    }
}
