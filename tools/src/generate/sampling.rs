//! The options that say how tokens are chosen: llama.cpp's names, defaults and order.

use anyhow::Result;
use clap::Args;
use trine::sample::Recommended;
use trine::{DryBreakers, DryOptions, Model, SamplerOptions};

use crate::sampling::{self, SamplerArgs};
use crate::text;

/// Options of choosing tokens.
#[derive(Args)]
pub struct SamplingArgs {
    /// Random seed; -1: the one in TRINE_SEED, or a new one every time, printed on standard error
    #[arg(short, long, value_name = "N", default_value_t = -1, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=u32::MAX as i64))]
    pub seed: i64,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub sampler: SamplerArgs,

    /// DRY: a text that no repetition goes across, any number of times; the first one replaces the usual ones, which
    /// are a line break and : " *, and 'none' stands for no text
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub dry_sequence_breaker: Vec<String>,

    /// Add to the logit of a token, any number of times: 15043+1 makes it likelier, 15043-1 less likely, 15043-inf
    /// impossible
    #[arg(short = 'l', long, value_name = "TOKEN+BIAS", value_parser = bias)]
    pub logit_bias: Vec<(u32, f32)>,

    /// Never choose a token that ends the text
    #[arg(long)]
    pub ignore_eos: bool,
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
    /// Returns the seed asked for, or a new one.
    fn seed(&self) -> Result<u32> {
        match u32::try_from(self.seed) {
            Ok(seed) if seed != u32::MAX => Ok(seed),
            _ => sampling::seed(),
        }
    }

    /// Returns the options as the library takes them; the seed may be a new one every time. `escapes`: texts may have
    /// escapes.
    ///
    /// # Errors
    /// There is no seed, and none may be drawn.
    pub(super) fn options(&self, model: &Model, n_ctx: usize, escapes: bool) -> Result<SamplerOptions> {
        let seeded =
            SamplerOptions { seed: self.seed()?, logit_bias: self.logit_bias.clone(), ..SamplerOptions::default() };
        let mut options = self.sampler.over(&Recommended::of(model.metadata()), seeded, n_ctx);
        if options.dry.is_on() {
            options.dry.breakers = self.breakers(model, escapes);
        }
        Ok(options)
    }

    fn breakers(&self, model: &Model, escapes: bool) -> DryBreakers {
        match &self.dry_sequence_breaker[..] {
            [] => model.dry_breakers(&DryOptions::BREAKERS),
            texts => {
                let texts = texts.iter().filter(|t| *t != "none");
                let plain = |t: &String| match escapes {
                    true => text::unescape(t.as_bytes()),
                    false => t.clone().into_bytes(),
                };
                model.dry_breakers(&texts.map(plain).collect::<Vec<_>>())
            }
        }
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
}
