//! Requests of `/api/chat` and `/api/generate`, Ollama's form, in the form of OpenAI's chats and completions.

use serde_json::{Map, Value, json};
use trine::sample::OPTIONS;

use super::fields::{Fields, wrong};
use super::prompt::Prompt;
use super::thoughts;
use crate::error::ApiError;
use crate::service::Service;

/// Fields that this form has and the other has not, or means in another way.
const OWN: &[&str] =
    &["options", "format", "think", "keep_alive", "images", "template", "suffix", "context", "raw", "system", "prompt"];

/// The same request in the form of OpenAI's chats. Fields that are not Ollama's stay as they are.
///
/// # Errors
/// Names the field.
pub fn to_chat(body: &Value, service: &Service) -> Result<Value, ApiError> {
    let f = Fields::of(body)?;
    let mut out = common(&f, body, service)?;
    let messages = f.list("messages")?.unwrap_or_default();
    let messages: Vec<Value> = messages.iter().map(message).collect::<Result<_, _>>()?;
    out.insert("messages".into(), messages.into());
    Ok(out.into())
}

/// The same request in the form of a chat of one message, with a system message before it where there is one; in that of
/// a completion where it is raw, or where the model has no chat template.
///
/// # Errors
/// Names the field.
pub fn to_chat_or_text(body: &Value, service: &Service) -> Result<Value, ApiError> {
    let f = Fields::of(body)?;
    let mut out = common(&f, body, service)?;
    for name in ["messages", "tools", "tool_choice"] {
        out.remove(name);
    }
    let prompt = f.text("prompt")?.unwrap_or_default();
    let system = f.text("system")?.filter(|text| !text.is_empty());
    let suffix = f.text("suffix")?.filter(|text| !text.is_empty());
    if f.is_set("raw")? || suffix.is_some() || service.template().is_err() {
        if system.is_some() {
            return Err(ApiError::field("system", "needs the model's chat template, and neither 'raw' nor 'suffix'"));
        }
        out.insert("prompt".into(), prompt.into());
        out.extend(suffix.map(|text| ("suffix".to_owned(), text.into())));
        return Ok(out.into());
    }
    let system = system.map(|text| json!({"role": "system", "content": text}));
    let messages = system.into_iter().chain([json!({"role": "user", "content": prompt})]);
    out.insert("messages".into(), messages.collect());
    Ok(out.into())
}

/// True if the request asks for no text: it has no messages, or no prompt. Such a request loads the model, or with
/// `"keep_alive": 0` unloads it.
///
/// # Errors
/// Fields of a wrong type.
pub fn asks_for_nothing(body: &Value, chat: bool) -> Result<bool, ApiError> {
    let f = Fields::of(body)?;
    Ok(match chat {
        true => f.list("messages")?.unwrap_or_default().is_empty(),
        false => f.text("prompt")?.unwrap_or_default().is_empty(),
    })
}

/// Most tokens that may be generated behind `prompts` in a context of `num_ctx` tokens, of at most `most`. The server's
/// own context counts besides.
///
/// # Errors
/// A prompt does not fit.
pub fn within_context(f: &Fields<'_>, prompts: &[Prompt], most: Option<usize>) -> Result<Option<usize>, ApiError> {
    let Some(context) = f.integer("num_ctx", 1..=i64::from(i32::MAX))? else {
        return Ok(most);
    };
    let (context, tokens) = (context as usize, prompts.iter().map(|p| p.tokens.len()).max().unwrap_or(0));
    match context.checked_sub(tokens) {
        None | Some(0) => Err(ApiError::too_long(tokens, context).with("param", "num_ctx")),
        Some(room) => Ok(Some(most.map_or(room, |most| most.min(room)))),
    }
}

/// The fields that both forms have.
fn common(f: &Fields<'_>, body: &Value, service: &Service) -> Result<Map<String, Value>, ApiError> {
    images(f)?;
    if f.text("template")?.is_some_and(|text| !text.is_empty()) {
        return Err(ApiError::field("template", "not supported; start the server with --chat-template"));
    }
    if f.list("context")?.is_some_and(|list| !list.is_empty()) {
        return Err(ApiError::field("context", "not supported; send the earlier messages to /api/chat"));
    }
    let mut out = body.as_object().cloned().unwrap_or_default();
    OWN.iter().for_each(|name| drop(out.remove(*name)));
    out.insert("stream".into(), f.flag("stream")?.unwrap_or(true).into());
    if let Some(options) = f.object("options")? {
        add_options(&mut out, &options)?;
    }
    match f.get("format") {
        None => {}
        Some(Value::String(text)) if text.is_empty() => {}
        Some(Value::String(text)) if text == "json" => {
            out.insert("response_format".into(), json!({"type": "json_object"}));
        }
        Some(schema @ Value::Object(_)) => {
            out.insert("response_format".into(), json!({"type": "json_schema", "json_schema": {"schema": schema}}));
        }
        Some(other) => return Err(wrong("format", "\"json\" or an object, a JSON schema", other)),
    }
    think(f, &mut out, service)?;
    Ok(out)
}

/// Adds the members of `options`, which have the sampler's names. Those that say how a model is loaded change no text and
/// are left out, as is what Ollama does not know either.
fn add_options(out: &mut Map<String, Value>, options: &Fields<'_>) -> Result<(), ApiError> {
    // These would change the text.
    if options.number("tfs_z")?.is_some_and(|z| z != 1.0) {
        return Err(ApiError::unsupported("tfs_z"));
    }
    if options.is_set("penalize_newline")? {
        return Err(ApiError::unsupported("penalize_newline"));
    }
    let samplers = OPTIONS.iter().map(|option| option.field);
    for name in samplers.chain(["seed", "stop", "num_ctx"]) {
        if let Some(value) = options.get(name) {
            out.insert(name.to_owned(), value.clone());
        }
    }
    // -2 fills the context, which a text without a limit does too.
    if let Some(most) = options.integer("num_predict", -2..=i64::from(i32::MAX))? {
        out.insert("n_predict".into(), most.max(-1).into());
    }
    Ok(())
}

/// The word of `think` to the template, and about the answer.
fn think(f: &Fields<'_>, out: &mut Map<String, Value>, service: &Service) -> Result<(), ApiError> {
    const NAME: &str = "think";
    const VARIABLES: &str = "chat_template_kwargs";
    let Some(asked) = f.get(NAME) else {
        return Ok(());
    };
    let on = match asked {
        Value::Bool(on) => *on,
        Value::String(effort) if !effort.is_empty() => {
            out.insert("reasoning_effort".into(), effort.as_str().into());
            true
        }
        other => return Err(wrong(NAME, "true, false or a word such as \"low\"", other)),
    };
    if on && thoughts::marks(service).is_none() {
        return Err(ApiError::field(NAME, "the chat template of the model knows no thoughts"));
    }
    if on {
        out.insert("reasoning_format".into(), "auto".into());
    }
    let variables = out.entry(VARIABLES).or_insert_with(|| json!({}));
    match variables {
        Value::Object(map) => map.insert("enable_thinking".into(), on.into()),
        other => return Err(wrong(VARIABLES, "an object", other)),
    };
    Ok(())
}

fn message(value: &Value) -> Result<Value, ApiError> {
    let Value::Object(map) = value else {
        return Err(wrong("messages", "an array of objects", value));
    };
    let f = Fields::members(map);
    images(&f)?;
    let mut out = map.clone();
    if let Some(thoughts) = out.remove("thinking") {
        out.insert("reasoning_content".into(), thoughts);
    }
    if f.get("content").is_none() {
        out.insert("content".into(), "".into());
    }
    Ok(out.into())
}

fn images(f: &Fields<'_>) -> Result<(), ApiError> {
    match f.list("images")?.is_some_and(|list| !list.is_empty()) {
        true => Err(ApiError::field("images", "the model reads text only")),
        false => Ok(()),
    }
}
