//! How tokens are to be chosen.

use serde_json::Value;
use trine::{SamplerOptions, Tokenizer};

use super::error::ApiError;
use super::fields::{Fields, id, wrong};

/// The steps of the chain by their names, in the only order that the engine has.
const CHAIN: &[&str] = &[
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
];

/// The sampler that is asked for, with the seed `seed`.
///
/// # Errors
/// Names the field.
pub fn sampler(f: &Fields<'_>, seed: u32, n_ctx: usize) -> Result<SamplerOptions, ApiError> {
    let d = SamplerOptions::default();
    let int32 = i64::from(i32::MIN)..=i64::from(i32::MAX);
    let last_n = f.integer("repeat_last_n", -1..=i64::from(i32::MAX))?;
    let options = SamplerOptions {
        seed,
        temp: f.number("temperature")?.unwrap_or(d.temp),
        top_k: f.integer("top_k", int32)?.map_or(d.top_k, |k| k as i32),
        top_p: f.share("top_p")?.unwrap_or(d.top_p),
        min_p: f.share("min_p")?.unwrap_or(d.min_p),
        typical_p: f.share("typical_p")?.unwrap_or(d.typical_p),
        repeat_penalty: f.number("repeat_penalty")?.unwrap_or(d.repeat_penalty),
        repeat_last_n: last_n.map_or(d.repeat_last_n, |n| usize::try_from(n).unwrap_or(n_ctx)),
        frequency_penalty: f.number("frequency_penalty")?.unwrap_or(0.0),
        presence_penalty: f.number("presence_penalty")?.unwrap_or(0.0),
        ..d
    };
    match f.list("samplers")? {
        Some(names) => chain(options, names),
        None => Ok(options),
    }
}

/// The same with only the named steps.
fn chain(mut o: SamplerOptions, names: &[Value]) -> Result<SamplerOptions, ApiError> {
    let order = |name: &Value| CHAIN.iter().position(|c| name == c);
    let places: Option<Vec<usize>> = names.iter().map(order).collect();
    let Some(places) = places.filter(|p| p.is_sorted_by(|a, b| a < b)) else {
        return Err(ApiError::field(
            "samplers",
            format!("must be names out of {CHAIN:?}, in this order"),
        ));
    };
    let has = |name: &str| places.iter().any(|p| CHAIN[*p] == name);
    let d = SamplerOptions::default();
    if !has("penalties") {
        (o.repeat_penalty, o.frequency_penalty, o.presence_penalty) = (1.0, 0.0, 0.0);
    }
    o.top_k = if has("top_k") { o.top_k } else { 0 };
    o.typical_p = if has("typ_p") {
        o.typical_p
    } else {
        d.typical_p
    };
    o.top_p = if has("top_p") { o.top_p } else { 1.0 };
    o.min_p = if has("min_p") { o.min_p } else { 0.0 };
    o.temp = if has("temperature") { o.temp } else { 1.0 };
    Ok(o)
}

/// What is added to the logits of tokens, and the tokens that are never chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Biases {
    /// Token and what is added.
    pub added: Vec<(u32, f32)>,
    /// Tokens that are never chosen.
    pub banned: Vec<u32>,
}

/// The biases of a request: `[[token, bias]]` or `{token: bias}`, where a token is an id or a text, which stands for
/// all of its tokens, and `false` for a bias bans the token.
///
/// # Errors
/// Anything else.
pub fn biases(f: &Fields<'_>, tokenizer: &Tokenizer) -> Result<Biases, ApiError> {
    const NAME: &str = "logit_bias";
    const WANTED: &str = "an object {token: bias} or an array of [token, bias]";
    let mut out = Biases::default();
    let mut add = |token: &Value, bias: &Value| -> Result<(), ApiError> {
        let ids = match token {
            Value::String(text) => match text.parse() {
                Ok(id) => vec![id],
                Err(_) => tokenizer
                    .encode(text, false, true)
                    .map_err(|e| ApiError::field(NAME, e))?,
            },
            token => vec![
                id(token).ok_or_else(|| wrong(NAME, "a token id or a text in each pair", token))?,
            ],
        };
        match bias {
            Value::Bool(false) => out.banned.extend(ids),
            bias => {
                let number = bias.as_f64().map(|b| b as f32).filter(|b| b.is_finite());
                let bias =
                    number.ok_or_else(|| wrong(NAME, "a number or false in each pair", bias))?;
                out.added.extend(ids.into_iter().map(|id| (id, bias)));
            }
        }
        Ok(())
    };
    match f.get(NAME) {
        None => {}
        Some(Value::Object(map)) => {
            for (token, bias) in map {
                add(&Value::from(token.as_str()), bias)?;
            }
        }
        Some(Value::Array(pairs)) => {
            for pair in pairs {
                match pair.as_array().map(Vec::as_slice) {
                    Some([token, bias]) => add(token, bias)?,
                    _ => return Err(wrong(NAME, WANTED, pair)),
                }
            }
        }
        Some(other) => return Err(wrong(NAME, WANTED, other)),
    }
    if let Some(id) = out
        .banned
        .iter()
        .find(|id| **id as usize >= tokenizer.n_vocab())
    {
        return Err(ApiError::field(
            NAME,
            format!("token {id} is outside the vocabulary"),
        ));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value) -> Result<SamplerOptions, ApiError> {
        sampler(&Fields::of(&body).unwrap(), 7, 512)
    }

    #[test]
    fn without_fields_it_is_the_default() {
        let expected = SamplerOptions {
            seed: 7,
            ..SamplerOptions::default()
        };
        assert_eq!(read(json!({"temperature": null})), Ok(expected));
    }

    #[test]
    fn a_chain_has_one_order() {
        let o =
            read(json!({"samplers": ["top_k", "temperature"], "top_k": 5, "top_p": 0.5})).unwrap();
        assert_eq!((o.top_k, o.top_p, o.min_p, o.temp), (5, 1.0, 0.0, 0.8));
        let all: Vec<&str> = CHAIN.to_vec();
        assert_eq!(read(json!({ "samplers": all })), read(json!({})));
        for names in [
            json!(["temperature", "top_k"]),
            json!(["top_k", "top_k"]),
            json!(["x"]),
            json!([1]),
        ] {
            assert!(read(json!({ "samplers": names })).is_err());
        }
    }

    #[test]
    fn the_whole_context_may_be_penalized() {
        assert_eq!(
            read(json!({"repeat_last_n": -1})).unwrap().repeat_last_n,
            512
        );
        assert!(read(json!({"repeat_last_n": -2})).is_err());
    }
}
