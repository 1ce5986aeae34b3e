//! `/v1/chat/completions`: messages in, OpenAI's shape out.

use serde_json::{Value, json};
use trine::chat::ChatError;
use trine::{ChatTemplate, Message, Role};

use super::error::ApiError;
use super::fields::{Fields, wrong};
use super::probabilities::entry;
use super::prompt::Prompt;
use super::reply::{Choice, Part, Reply};
use super::{native, shapes};
use crate::engine::TokenLogprobs;
use crate::service::Service;

const WHOLE: &str = "chat.completion";
const CHUNK: &str = "chat.completion.chunk";

/// Most messages of a chat.
const MOST: usize = 4096;

/// A chat as it is to be rendered.
pub struct Conversation {
    messages: Vec<Message>,
    /// The beginning of the answer, which the model goes on with.
    begun: Option<String>,
    /// Whether the answer follows.
    answer: bool,
}

impl Conversation {
    /// Reads the messages of a request.
    ///
    /// # Errors
    /// Names the field.
    pub fn read(f: &Fields<'_>) -> Result<Conversation, ApiError> {
        let list = f
            .list("messages")?
            .ok_or_else(|| ApiError::field("messages", "is required"))?;
        if list.is_empty() || list.len() > MOST {
            return Err(ApiError::field(
                "messages",
                format!("must have from 1 to {MOST} messages"),
            ));
        }
        let messages: Result<Vec<_>, _> = list.iter().map(message).collect();
        let mut messages = messages?;
        let assistant = |m: Option<&Message>| m.is_some_and(|m| m.role == Role::Assistant);
        let before_last = messages.len().checked_sub(2).and_then(|i| messages.get(i));
        if assistant(messages.last()) && assistant(before_last) {
            return Err(ApiError::field(
                "messages",
                "two messages of the assistant at the end",
            ));
        }
        let answer = f.flag("add_generation_prompt")?;
        let go_on = f.flag("continue_final_message")?;
        if answer == Some(true) && go_on == Some(true) {
            return Err(ApiError::field(
                "continue_final_message",
                "contradicts 'add_generation_prompt': true",
            ));
        }
        let goes_on = assistant(messages.last()) && answer != Some(true) && go_on != Some(false);
        let begun = if goes_on { messages.pop() } else { None };
        if go_on == Some(true) && begun.is_none() {
            return Err(ApiError::field(
                "continue_final_message",
                "the last message is not the assistant's",
            ));
        }
        Ok(Conversation {
            answer: begun.is_some() || answer.unwrap_or(true),
            begun: begun.map(|m| m.content),
            messages,
        })
    }

    /// Its text, the beginning of the answer included.
    ///
    /// # Errors
    /// The template fails, or refuses the messages.
    pub fn render(&self, template: &ChatTemplate) -> Result<String, ApiError> {
        let text = template
            .render(&self.messages, self.answer)
            .map_err(failed)?;
        Ok(text + self.begun.as_deref().unwrap_or_default())
    }

    /// Its tokens.
    ///
    /// # Errors
    /// As [`Conversation::render`].
    fn encode(&self, template: &ChatTemplate, service: &Service) -> Result<Vec<u32>, ApiError> {
        let tokenizer = service.engine.model().tokenizer();
        let Some(begun) = &self.begun else {
            return template
                .encode(tokenizer, &self.messages, self.answer)
                .map_err(failed);
        };
        // The beginning of the answer is encoded together with what stands before it, as one text; so nothing in it
        // and in the messages may look like a control token.
        let texts = self
            .messages
            .iter()
            .map(|m| m.content.as_str())
            .chain([begun.as_str()]);
        for text in texts {
            let plain = tokenizer.encode(text, false, false);
            if plain.ok() != tokenizer.encode(text, false, true).ok() {
                return Err(failed(ChatError::Unprotected));
            }
        }
        let text = self.render(template)?;
        let bos = tokenizer.text_bos().map(|id| service.text_of(&[id]));
        let bos = bos.filter(|b| !b.is_empty());
        let text = bos
            .and_then(|b| text.strip_prefix(b.as_str()))
            .unwrap_or(&text);
        service.encoder().encode(text, true)
    }
}

/// The prompt of a chat.
///
/// # Errors
/// Names the field; the model has no template, or one that fails.
pub fn prompt(f: &Fields<'_>, service: &Service) -> Result<Prompt, ApiError> {
    let conversation = Conversation::read(f)?;
    let template = service.template()?;
    let bytes = conversation
        .messages
        .iter()
        .map(|m| m.content.len())
        .sum::<usize>();
    let encoder = service.encoder();
    let fewest = encoder.longest.map_or(0, |most| bytes / most.max(1));
    if fewest > encoder.n_ctx {
        return Err(ApiError::too_long(fewest, encoder.n_ctx).with("param", "messages"));
    }
    Ok(Prompt {
        tokens: conversation.encode(template, service)?,
        text: None,
    })
}

fn message(value: &Value) -> Result<Message, ApiError> {
    const NAME: &str = "messages";
    let Value::Object(map) = value else {
        return Err(wrong(NAME, "an array of objects", value));
    };
    let f = Fields::members(map);
    let role = match f.text("role")? {
        Some("system") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            return Err(ApiError::field(
                "role",
                format!("'{other}' is not supported; use system, user or assistant"),
            ));
        }
        None => return Err(ApiError::field("role", "every message needs one")),
    };
    if f.list("tool_calls")?.is_some_and(|calls| !calls.is_empty()) {
        return Err(ApiError::unsupported("tool_calls"));
    }
    let content = match f.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let parts: Result<Vec<&str>, _> = parts.iter().map(part).collect();
            parts?.join("\n\n")
        }
        None if role == Role::Assistant => String::new(),
        None => return Err(ApiError::field("content", "every message needs one")),
        Some(other) => return Err(wrong("content", "a string or an array of parts", other)),
    };
    Ok(Message { role, content })
}

fn part(value: &Value) -> Result<&str, ApiError> {
    match (value["type"].as_str(), value["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(text),
        _ => Err(ApiError::field(
            "content",
            "only parts {\"type\": \"text\", \"text\": ...}: the model reads text only",
        )),
    }
}

fn failed(e: ChatError) -> ApiError {
    ApiError::field("messages", e)
}

/// The whole answer.
pub fn whole(reply: &Reply) -> Value {
    let choice = |(i, c): (usize, &Choice)| {
        let mut out = json!({
            "finish_reason": c.done.as_ref().map(shapes::finish_reason),
            "index": i,
            "message": {"role": "assistant", "content": c.text},
        });
        if c.request.logprobs.is_some() {
            out["logprobs"] = logprobs(reply, &c.logprobs);
        }
        if reply.asked.return_tokens {
            out["tokens"] = json!(c.tokens);
        }
        out
    };
    let choices = reply.choices.iter().enumerate().map(choice).collect();
    let mut out = reply.object(WHOLE, choices);
    out["usage"] = shapes::usage(&reply.choices, reply.asked.choices);
    if let [first, ..] = &reply.choices[..] {
        out["timings"] = shapes::timings(first);
        out["trine"] = first.done.as_ref().map_or(Value::Null, shapes::effective);
    }
    if reply.asked.verbose {
        out["__verbose"] = native::whole(reply);
    }
    out
}

fn logprobs(reply: &Reply, list: &[TokenLogprobs]) -> Value {
    let tokenizer = reply.service.engine.model().tokenizer();
    let content: Vec<Value> = list.iter().map(|t| entry(tokenizer, t)).collect();
    json!({ "content": content })
}

/// What a stream sends for a part of the text `index`.
pub fn parts(reply: &mut Reply, index: usize, part: Part) -> Vec<Value> {
    let mut out = Vec::new();
    if !reply.choices[index].begun {
        reply.choices[index].begun = true;
        let delta = json!({"role": "assistant", "content": null});
        out.push(chunk(reply, index, delta, Value::Null));
    }
    match part {
        Part::Progress(p) if reply.asked.return_progress => {
            let mut object = reply.object(CHUNK, Vec::new());
            object["prompt_progress"] = shapes::progress(&p);
            out.push(object);
        }
        Part::Progress(_) => {}
        Part::Token { text, .. } => content(reply, index, &text, &mut out),
        Part::Done(rest) => {
            content(reply, index, &rest, &mut out);
            let done = reply.choices[index].done.clone();
            let reason = done.as_ref().map(shapes::finish_reason);
            let mut object = chunk(reply, index, json!({}), reason.into());
            // Tokens without a text of their own, such as the one that ended it.
            told(reply, index, &mut object);
            object["trine"] = done.as_ref().map_or(Value::Null, shapes::effective);
            if !reply.asked.include_usage {
                object["timings"] = shapes::timings(&reply.choices[index]);
            }
            out.push(object);
        }
    }
    out
}

fn content(reply: &mut Reply, index: usize, text: &str, out: &mut Vec<Value>) {
    // A delta is never empty: what is held back comes with a later one.
    if text.is_empty() {
        return;
    }
    let mut object = chunk(reply, index, json!({ "content": text }), Value::Null);
    told(reply, index, &mut object);
    if reply.asked.timings_per_token {
        object["timings"] = shapes::timings(&reply.choices[index]);
    }
    out.push(object);
}

/// Adds the probabilities that were not sent yet.
fn told(reply: &mut Reply, index: usize, object: &mut Value) {
    let list = std::mem::take(&mut reply.choices[index].logprobs);
    if !list.is_empty() {
        object["choices"][0]["logprobs"] = logprobs(reply, &list);
    }
}

fn chunk(reply: &Reply, index: usize, delta: Value, reason: Value) -> Value {
    let choice = json!({"finish_reason": reason, "index": index, "delta": delta});
    reply.object(CHUNK, vec![choice])
}

/// What a stream sends after all texts have ended.
pub fn tail(reply: &Reply) -> Vec<Value> {
    if !reply.asked.include_usage {
        return Vec::new();
    }
    let mut out = reply.object(CHUNK, Vec::new());
    out["usage"] = shapes::usage(&reply.choices, reply.asked.choices);
    out["timings"] = reply.choices.first().map_or(Value::Null, shapes::timings);
    vec![out]
}
