//! The prompts of a completion: texts, tokens, or both mixed.

use serde_json::Value;

use super::fields::{id, wrong};
use crate::error::ApiError;
use crate::service::Encoder;

/// A prompt with what the client gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// Its tokens, BOS included where the model wants it.
    pub tokens: Vec<u32>,
    /// The text, where it was given as one.
    pub text: Option<String>,
}

/// The prompts that `value` of the field `name` stands for, at most `most`, and whether it is a list of them.
///
/// # Errors
/// It is no prompt; it does not fit the context.
pub fn prompts(name: &str, most: usize, value: &Value, encoder: Encoder<'_>) -> Result<(Vec<Prompt>, bool), ApiError> {
    let list = match value {
        Value::Array(list) if !is_one(list) => list,
        one => return Ok((vec![prompt(name, one, encoder)?], false)),
    };
    if list.is_empty() {
        return Err(ApiError::field(name, "there is nothing in it"));
    }
    if list.len() > most {
        return Err(ApiError::field(name, format!("more than {most} of them")));
    }
    let prompts: Result<_, _> = list.iter().map(|one| prompt(name, one, encoder)).collect();
    Ok((prompts?, true))
}

/// True if an array is one prompt: it has ids, alone or mixed with texts. Texts alone are a prompt each.
fn is_one(list: &[Value]) -> bool {
    list.iter().any(Value::is_number)
}

fn prompt(name: &str, value: &Value, encoder: Encoder<'_>) -> Result<Prompt, ApiError> {
    const WANTED: &str = "a string, an array of token ids, or an array of these";
    match value {
        Value::String(text) => Ok(Prompt { tokens: encoder.encode(text, true)?, text: Some(text.clone()) }),
        Value::Object(map) if map.contains_key("multimodal_data") => {
            Err(ApiError::field(name, "the model reads text only"))
        }
        Value::Object(map) => match (map.get("prompt_string"), map.get("content")) {
            (Some(text @ Value::String(_)), _) => prompt(name, text, encoder),
            (None, Some(Value::Array(parts))) => {
                let text: Option<String> = parts.iter().map(text_of).collect();
                let text =
                    text.ok_or_else(|| ApiError::field(name, "only parts {\"type\": \"text\", \"text\": ...}"))?;
                prompt(name, &text.into(), encoder)
            }
            _ => Err(wrong(name, WANTED, value)),
        },
        Value::Array(parts) => {
            let mut tokens = Vec::new();
            for (i, part) in parts.iter().enumerate() {
                match part {
                    Value::String(text) => tokens.extend(encoder.encode(text, i == 0)?),
                    part => tokens.push(id(part).ok_or_else(|| wrong(name, WANTED, part))?),
                }
            }
            Ok(Prompt { tokens, text: None })
        }
        other => Err(wrong(name, WANTED, other)),
    }
}

/// The text of a part of a message; `None`: it is of another kind.
fn text_of(part: &Value) -> Option<&str> {
    part["text"].as_str().filter(|_| part["type"] == "text")
}
