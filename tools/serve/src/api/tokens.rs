//! `/tokenize`, `/detokenize`, `/apply-template`, `/tokenizer_info` and the number of tokens of a chat.

use serde_json::{Value, json};

use super::request::fields::{Fields, id, wrong};
use super::request::messages::{self, Conversation};
use super::request::tools::Tools;
use super::request::{anthropic, responses};
use crate::error::ApiError;
use crate::service::Service;

/// The tokens of `content`, a text or an array of texts and token ids, as llama.cpp's server tells them; or of `prompt`, as
/// vLLM's does.
///
/// # Errors
/// Names the field.
pub fn tokenize(service: &Service, body: &Value) -> Result<Value, ApiError> {
    let f = Fields::of(body)?;
    let all = f.flag("add_special_tokens")?.unwrap_or(true);
    let tokenizer = service.engine.model().tokenizer();
    let encode = |text: &str, special, parse| {
        let tokens = tokenizer.encode(text, special, parse);
        tokens.map_err(|e| ApiError::invalid(e.to_string()))
    };
    if let Some(prompt) = f.get("prompt") {
        let Value::String(text) = prompt else { return Err(wrong("prompt", "a string", prompt)) };
        if f.get("content").is_some() {
            return Err(ApiError::field("prompt", "is vLLM's name of content: one of the two is enough"));
        }
        let tokens = encode(text, all, true)?;
        let n_ctx = service.engine.options().n_ctx();
        return Ok(json!({"tokens": tokens, "count": tokens.len(), "max_model_len": n_ctx}));
    }
    let special = f.is_set("add_special")?;
    let parse = f.flag("parse_special")?.unwrap_or(true);
    let pieces = f.is_set("with_pieces")?;
    const WANTED: &str = "a string or an array of strings and token ids";
    let tokens = match f.get("content") {
        None => Vec::new(),
        Some(Value::String(text)) => encode(text, special, parse)?,
        Some(Value::Array(parts)) => {
            let mut tokens = Vec::new();
            for (i, part) in parts.iter().enumerate() {
                match part {
                    Value::String(text) => tokens.extend(encode(text, special && i == 0, parse)?),
                    part => tokens.push(id(part).ok_or_else(|| wrong("content", WANTED, part))?),
                }
            }
            tokens
        }
        Some(other) => return Err(wrong("content", WANTED, other)),
    };
    if !pieces {
        return Ok(json!({ "tokens": tokens }));
    }
    let piece = |id: &u32| {
        let piece = match String::from_utf8(tokenizer.piece(*id, true)) {
            Ok(text) => Value::from(text),
            Err(e) => Value::from(e.into_bytes()),
        };
        json!({"id": id, "piece": piece})
    };
    Ok(json!({ "tokens": tokens.iter().map(piece).collect::<Vec<_>>() }))
}

/// The text of `tokens`, under the name that it has in llama.cpp's server and under that of vLLM's.
///
/// # Errors
/// Names the field.
pub fn detokenize(service: &Service, body: &Value) -> Result<Value, ApiError> {
    let ids = Fields::of(body)?.ids("tokens")?.unwrap_or_default();
    let n_vocab = service.engine.model().tokenizer().n_vocab();
    if let Some(id) = ids.iter().find(|id| **id as usize >= n_vocab) {
        return Err(ApiError::field("tokens", format!("token {id} is outside the vocabulary of {n_vocab}")));
    }
    let text = service.text_of(&ids);
    Ok(json!({"content": text, "prompt": text}))
}

/// The tokenizer as vLLM's server tells it, for programs that count tokens by asking the server.
pub fn about(service: &Service) -> Value {
    let tokenizer = service.engine.model().tokenizer();
    let special = |id: Option<u32>| id.map(|id| service.text_of(&[id]));
    json!({
        "bos_token": special(tokenizer.bos()),
        "eos_token": special(tokenizer.eos()),
        "pad_token": special(tokenizer.eos()),
        "chat_template": service.template_source,
        "model_max_length": service.engine.options().n_ctx(),
    })
}

/// The prompt that the messages of a chat become.
///
/// # Errors
/// Names the field; the model has no template, or one that fails.
pub fn apply_template(service: &Service, body: &Value) -> Result<Value, ApiError> {
    let f = Fields::of(body)?;
    let tools = described(&f, service)?;
    let conversation = Conversation::read(&f, &tools, service)?;
    Ok(json!({ "prompt": conversation.render(service.template()?)? }))
}

/// How many tokens the messages of a chat become.
///
/// # Errors
/// As [`apply_template`].
pub fn count(service: &Service, body: &Value) -> Result<Value, ApiError> {
    let tokens = chat_tokens(service, body)?;
    Ok(json!({"object": "response.input_tokens", "input_tokens": tokens}))
}

/// The same in the form of `/v1/responses`.
///
/// # Errors
/// As [`apply_template`].
pub fn count_response(service: &Service, body: &Value) -> Result<Value, ApiError> {
    count(service, &responses::to_chat(body)?)
}

/// The same in the form of `/v1/messages`, where the number of tokens that an answer may have is left out.
///
/// # Errors
/// As [`apply_template`].
pub fn count_messages(service: &Service, body: &Value) -> Result<Value, ApiError> {
    let mut body = body.clone();
    if let Value::Object(map) = &mut body {
        map.insert("max_tokens".into(), 0.into());
    }
    let tokens = chat_tokens(service, &anthropic::to_chat(&body)?)?;
    Ok(json!({ "input_tokens": tokens }))
}

fn chat_tokens(service: &Service, body: &Value) -> Result<usize, ApiError> {
    let f = Fields::of(body)?;
    let prompt = messages::prompt(&f, &described(&f, service)?, service)?;
    Ok(prompt.tokens.len())
}

/// The functions of a chat, as its template gets them.
fn described(f: &Fields<'_>, service: &Service) -> Result<Vec<Value>, ApiError> {
    Ok(Tools::read(f, service)?.map_or(Vec::new(), |t| t.described))
}
