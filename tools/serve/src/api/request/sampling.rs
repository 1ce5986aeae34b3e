//! The sampler of a request: the fields of [`trine::sample::OPTIONS`], with llama-server's defaults and limits.

use serde_json::Value;
use trine::sample::{OPTIONS, Outside, Range};
use trine::{DryBreakers, DryOptions, SamplerKind, SamplerOption, SamplerOptions};

use super::fields::{Fields, wrong};
use crate::error::ApiError;

/// Most steps of a chain.
const MOST_STEPS: usize = 32;

/// Most texts that DRY breaks repetitions at, and the longest of them in bytes. The whole vocabulary is searched for
/// each.
const MOST_BREAKERS: usize = 64;
const LONGEST_BREAKER: usize = 256;

/// The sampler that is asked for; what is not said is as in `d`. Windows over the last tokens may be as long as the
/// context of `n_ctx` tokens; `breakers` finds texts in the model's vocabulary.
///
/// # Errors
/// Names the field.
pub fn sampler(
    f: &Fields<'_>,
    d: SamplerOptions,
    n_ctx: usize,
    breakers: impl Fn(&[String]) -> DryBreakers,
) -> Result<SamplerOptions, ApiError> {
    let base = d.dry.base;
    let mut options = SamplerOptions { samplers: chain(f)?.unwrap_or(d.samplers), ..d };
    for option in OPTIONS {
        if let Some(value) = number(f, option)? {
            option.set(&mut options, value, n_ctx);
        }
    }
    // A base below 1 stands for the usual one.
    if options.dry.base < 1.0 {
        options.dry.base = base;
    }
    let texts = breaking_texts(f)?;
    if options.dry.is_on() {
        options.dry.breakers = breakers(&texts);
    }
    Ok(options)
}

/// The value of an option, where the request has one.
fn number(f: &Fields<'_>, option: &SamplerOption) -> Result<Option<f64>, ApiError> {
    let Range { whole, low, high, outside, .. } = option.range;
    if whole {
        let refused = outside == Outside::Refused;
        let range = if refused { low as i64..=high as i64 } else { i64::MIN..=i64::MAX };
        return Ok(f.integer(option.field, range)?.map(|n| (n as f64).clamp(low, high)));
    }
    match f.number(option.field)?.map(f64::from) {
        Some(value) if outside == Outside::Refused && !(low..=high).contains(&value) => {
            let (low, high) = (option.range.show(low), option.range.show(high));
            Err(ApiError::field(option.field, format!("must be from {low} to {high}")))
        }
        value => Ok(value.map(|value| value.clamp(low, high))),
    }
}

/// The texts that DRY breaks repetitions at.
fn breaking_texts(f: &Fields<'_>) -> Result<Vec<String>, ApiError> {
    const TEXTS: &str = "dry_sequence_breakers";
    match f.texts(TEXTS, LONGEST_BREAKER)? {
        None => Ok(DryOptions::BREAKERS.map(str::to_owned).to_vec()),
        Some(texts) if (1..=MOST_BREAKERS).contains(&texts.len()) => Ok(texts),
        Some(_) => Err(ApiError::field(TEXTS, format!("must be from 1 to {MOST_BREAKERS} strings"))),
    }
}

/// The steps in their order: an array of names, or a string of letters.
fn chain(f: &Fields<'_>) -> Result<Option<Vec<SamplerKind>>, ApiError> {
    const NAME: &str = "samplers";
    let steps: Option<Vec<SamplerKind>> = match f.get(NAME) {
        None => return Ok(None),
        Some(Value::String(letters)) if letters.len() <= MOST_STEPS => {
            letters.chars().map(SamplerKind::by_letter).collect()
        }
        Some(Value::Array(names)) if names.len() <= MOST_STEPS => {
            let step = |name: &Value| name.as_str().and_then(SamplerKind::by_name);
            names.iter().map(step).collect()
        }
        Some(Value::String(_) | Value::Array(_)) => None,
        Some(other) => {
            return Err(wrong(NAME, "an array of names or a string of letters", other));
        }
    };
    let known: Vec<&str> = SamplerKind::names().collect();
    let unknown = || {
        let known = known.join(", ");
        ApiError::field(NAME, format!("must be at most {MOST_STEPS} of {known}, or their letters"))
    };
    steps.map(Some).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trine::{Mirostat, MirostatVersion};

    use super::*;

    fn read(body: Value) -> Result<SamplerOptions, ApiError> {
        let breakers = |texts: &[String]| {
            let token = |text: &String| text.bytes().map(u32::from).collect();
            DryBreakers::from_tokens(&texts.iter().map(token).collect::<Vec<_>>())
        };
        sampler(&Fields::of(&body).unwrap(), usual(), 512, breakers)
    }

    fn usual() -> SamplerOptions {
        SamplerOptions { seed: 7, ..SamplerOptions::default() }
    }

    #[test]
    fn without_fields_it_is_the_default() {
        assert_eq!(read(json!({"temperature": null})), Ok(usual()));
    }

    #[test]
    fn every_field_has_its_place() {
        let body = json!({
            "temperature": 0.5, "dynatemp_range": 0.25, "dynatemp_exponent": 2.0, "top_k": 5, "top_p": 0.5, "min_p": 0.25,
            "typical_p": 0.75, "top_n_sigma": 1.5, "xtc_probability": 0.5, "xtc_threshold": 0.125, "repeat_penalty": 1.5,
            "repeat_last_n": 9, "presence_penalty": 0.5, "frequency_penalty": 0.25, "dry_multiplier": 0.5, "dry_base": 2.0,
            "dry_allowed_length": 3, "dry_penalty_last_n": 11, "dry_sequence_breakers": ["ab"], "mirostat": 1,
            "mirostat_tau": 3.0, "mirostat_eta": 0.25, "adaptive_target": 0.5, "adaptive_decay": 0.5, "min_keep": 4,
            "samplers": ["top_k", "adaptive-p"],
        });
        let expected = SamplerOptions {
            seed: 7,
            samplers: vec![SamplerKind::TopK, SamplerKind::AdaptiveP],
            mirostat: Mirostat { version: MirostatVersion::V1, tau: 3.0, eta: 0.25 },
            min_keep: 4,
            temp: 0.5,
            dynatemp_range: 0.25,
            dynatemp_exponent: 2.0,
            top_k: 5,
            top_p: 0.5,
            min_p: 0.25,
            typical_p: 0.75,
            top_n_sigma: 1.5,
            xtc_probability: 0.5,
            xtc_threshold: 0.125,
            repeat_penalty: 1.5,
            repeat_last_n: 9,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            dry: DryOptions {
                multiplier: 0.5,
                base: 2.0,
                allowed_length: 3,
                last_n: 11,
                breakers: DryBreakers::from_tokens(&[vec![97, 98]]),
            },
            adaptive_target: 0.5,
            adaptive_decay: 0.5,
            ..SamplerOptions::default()
        };
        assert_eq!(read(body), Ok(expected));
    }

    #[test]
    fn every_option_of_the_table_is_read() {
        for option in OPTIONS {
            // a value that the option does not have by itself
            let value = match option.field {
                "dry_allowed_length" => json!(3),
                _ if option.range.whole => json!(2),
                _ => json!(0.5),
            };
            let mut expected = usual();
            option.set(&mut expected, value.as_f64().unwrap(), 512);
            assert_ne!(expected, usual(), "{}", option.field);
            // A base of 0.5 stands for the usual one.
            if option.field != "dry_base" {
                assert_eq!(read(json!({ option.field: value })).map(|o| option.get(&o)), Ok(option.get(&expected)));
            }
        }
    }

    #[test]
    fn beyond_soft_limits_the_limit_counts() {
        let o = read(json!({
            "temperature": -1.0, "top_p": 1.5, "min_p": -0.5, "xtc_probability": 2, "mirostat": 7, "adaptive_target": 3.0,
            "dry_base": 0.5, "dry_multiplier": 1.0,
        }));
        let o = o.unwrap();
        assert_eq!((o.temp, o.top_p, o.min_p, o.xtc_probability), (0.0, 1.0, 0.0, 1.0));
        assert_eq!((o.adaptive_target, o.dry.base), (1.0, 1.75));
        assert_eq!(o.mirostat.version, MirostatVersion::V2);
        assert_eq!(read(json!({"mirostat": -1})), Ok(usual()));
    }

    #[test]
    fn beyond_hard_limits_there_is_an_error() {
        for (name, value) in [
            ("repeat_last_n", json!(-2)),
            ("dry_penalty_last_n", json!(-2)),
            ("dry_allowed_length", json!(-1)),
            ("min_keep", json!(-1)),
            ("adaptive_decay", json!(1.0)),
            ("dry_sequence_breakers", json!([])),
            ("dry_sequence_breakers", json!([1])),
            ("samplers", json!(["x"])),
            ("samplers", json!([1])),
            ("samplers", json!("kq")),
            ("samplers", json!(["top_k"].repeat(33))),
            ("samplers", json!(7)),
        ] {
            let e = read(json!({ name: value })).unwrap_err();
            assert!(e.message.contains(&format!("'{name}'")), "{}", e.message);
        }
    }

    #[test]
    fn the_chain_is_the_one_that_is_asked_for() {
        let steps = |value: Value| read(json!({ "samplers": value })).map(|o| o.samplers);
        let two = vec![SamplerKind::Temperature, SamplerKind::TopK];
        assert_eq!(steps(json!(["temperature", "top_k"])), Ok(two.clone()));
        assert_eq!(steps(json!("tk")), Ok(two));
        assert_eq!(steps(json!([])), Ok(vec![]));
        let all: Vec<&str> = SamplerKind::DEFAULT_CHAIN.iter().map(|k| k.name()).collect();
        assert_eq!(read(json!({ "samplers": all })), Ok(usual()));
    }

    #[test]
    fn the_whole_context_may_be_penalized() {
        let o = read(json!({"repeat_last_n": -1, "dry_penalty_last_n": -1})).unwrap();
        assert_eq!((o.repeat_last_n, o.dry.last_n), (512, 512));
    }
}
