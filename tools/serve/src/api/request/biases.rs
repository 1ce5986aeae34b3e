//! Biases on the logits of some tokens.

use serde_json::Value;
use trine::Tokenizer;

use super::fields::{Fields, id, wrong};
use crate::engine::MOST_BIASES;
use crate::error::ApiError;

/// Longest text that stands for its tokens, in bytes.
const LONGEST: usize = 4096;

/// Biases on the logits of tokens, and the tokens that are never chosen.
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
    let too_many = || ApiError::field(NAME, format!("more than {MOST_BIASES} tokens"));
    let mut add = |token: &Value, bias: &Value| -> Result<(), ApiError> {
        let ids = match token {
            Value::String(text) => match text.parse() {
                Ok(id) => vec![id],
                // A text has at least a token for every few of its bytes.
                Err(_) if text.len() > LONGEST => return Err(ApiError::field(NAME, "a text of more than 4096 bytes")),
                Err(_) => tokenizer.encode(text, false, true).map_err(|e| ApiError::field(NAME, e))?,
            },
            token => vec![id(token).ok_or_else(|| wrong(NAME, "a token id or a text in each pair", token))?],
        };
        if out.added.len() + out.banned.len() + ids.len() > MOST_BIASES {
            return Err(too_many());
        }
        match bias {
            Value::Bool(false) => out.banned.extend(ids),
            bias => {
                let number = bias.as_f64().map(|b| b as f32).filter(|b| b.is_finite());
                let bias = number.ok_or_else(|| wrong(NAME, "a number or false in each pair", bias))?;
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
    if let Some(id) = out.banned.iter().find(|id| **id as usize >= tokenizer.n_vocab()) {
        return Err(ApiError::field(NAME, format!("token {id} is outside the vocabulary")));
    }
    Ok(out)
}
