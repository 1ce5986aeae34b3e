//! How tokens are to be chosen: llama-server's fields, with its defaults and limits.

use serde_json::Value;
use trine::{DryBreakers, DryOptions, Mirostat, MirostatVersion, SamplerKind, SamplerOptions};

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
    let int32 = i64::from(i32::MIN)..=i64::from(i32::MAX);
    let whole = 0..=i64::from(i32::MAX);
    let number = |name: &str, default: f32| Ok::<_, ApiError>(f.number(name)?.unwrap_or(default));
    let share = |name: &str, default: f32| Ok::<_, ApiError>(f.clamped(name, 0.0..=1.0)?.unwrap_or(default));
    let min_keep = f.integer("min_keep", whole)?;
    Ok(SamplerOptions {
        seed: d.seed,
        samplers: chain(f)?.unwrap_or(d.samplers),
        mirostat: mirostat(f)?,
        min_keep: min_keep.map_or(d.min_keep, |n| n as usize),
        temp: f.clamped("temperature", 0.0..=f32::MAX)?.unwrap_or(d.temp),
        dynatemp_range: number("dynatemp_range", d.dynatemp_range)?,
        dynatemp_exponent: number("dynatemp_exponent", d.dynatemp_exponent)?,
        top_k: f.integer("top_k", int32)?.map_or(d.top_k, |k| k as i32),
        top_p: share("top_p", d.top_p)?,
        min_p: share("min_p", d.min_p)?,
        typical_p: number("typical_p", d.typical_p)?,
        top_n_sigma: number("top_n_sigma", d.top_n_sigma)?,
        xtc_probability: share("xtc_probability", d.xtc_probability)?,
        xtc_threshold: share("xtc_threshold", d.xtc_threshold)?,
        repeat_penalty: number("repeat_penalty", d.repeat_penalty)?,
        repeat_last_n: last(f, "repeat_last_n", n_ctx)?.unwrap_or(d.repeat_last_n),
        frequency_penalty: number("frequency_penalty", d.frequency_penalty)?,
        presence_penalty: number("presence_penalty", d.presence_penalty)?,
        dry: dry(f, n_ctx, breakers)?,
        adaptive_target: f.clamped("adaptive_target", f32::MIN..=1.0)?.unwrap_or(d.adaptive_target),
        adaptive_decay: adaptive_decay(f)?.unwrap_or(d.adaptive_decay),
        logit_bias: Vec::new(),
        banned: Vec::new(),
    })
}

/// How many of the last tokens are looked at; -1 stands for all of the context.
fn last(f: &Fields<'_>, name: &str, n_ctx: usize) -> Result<Option<usize>, ApiError> {
    let n = f.integer(name, -1..=i64::from(i32::MAX))?;
    Ok(n.map(|n| usize::try_from(n).unwrap_or(n_ctx)))
}

fn adaptive_decay(f: &Fields<'_>) -> Result<Option<f32>, ApiError> {
    const NAME: &str = "adaptive_decay";
    match f.number(NAME)? {
        Some(decay) if !(0.0..=0.99).contains(&decay) => Err(ApiError::field(NAME, "must be from 0 to 0.99")),
        decay => Ok(decay),
    }
}

fn mirostat(f: &Fields<'_>) -> Result<Option<Mirostat>, ApiError> {
    let version = f.integer("mirostat", i64::from(i32::MIN)..=i64::from(i32::MAX))?;
    let tau = f.number("mirostat_tau")?.unwrap_or(5.0);
    let eta = f.number("mirostat_eta")?.unwrap_or(0.1);
    let version = match version {
        None | Some(..=0) => return Ok(None),
        Some(1) => MirostatVersion::V1,
        Some(_) => MirostatVersion::V2,
    };
    Ok(Some(Mirostat { version, tau, eta }))
}

fn dry(f: &Fields<'_>, n_ctx: usize, breakers: impl Fn(&[String]) -> DryBreakers) -> Result<DryOptions, ApiError> {
    const TEXTS: &str = "dry_sequence_breakers";
    let d = DryOptions::default();
    let texts = match f.texts(TEXTS, LONGEST_BREAKER)? {
        None => DryOptions::BREAKERS.map(str::to_owned).to_vec(),
        Some(texts) if (1..=MOST_BREAKERS).contains(&texts.len()) => texts,
        Some(_) => {
            return Err(ApiError::field(TEXTS, format!("must be from 1 to {MOST_BREAKERS} strings")));
        }
    };
    let allowed = f.integer("dry_allowed_length", 0..=i64::from(i32::MAX))?;
    let options = DryOptions {
        multiplier: f.number("dry_multiplier")?.unwrap_or(d.multiplier),
        // A base below 1 stands for the usual one.
        base: f.number("dry_base")?.filter(|base| *base >= 1.0).unwrap_or(d.base),
        allowed_length: allowed.map_or(d.allowed_length, |n| n as usize),
        last_n: last(f, "dry_penalty_last_n", n_ctx)?.unwrap_or(d.last_n),
        breakers: d.breakers,
    };
    Ok(match options.is_on() {
        true => DryOptions { breakers: breakers(&texts), ..options },
        false => options,
    })
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
            mirostat: Some(Mirostat { version: MirostatVersion::V1, tau: 3.0, eta: 0.25 }),
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
            logit_bias: vec![],
            banned: vec![],
        };
        assert_eq!(read(body), Ok(expected));
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
        assert_eq!(o.mirostat.map(|m| m.version), Some(MirostatVersion::V2));
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
