//! Templates that another process renders: the requests, as JSON.

use serde_json::{Value, json};

use super::error::ChatError;
use super::message::{Message, ToolCall};
use super::options::RenderOptions;
use crate::isolate::{Failure, Isolate, Job, Limits};

/// Fails if `source` is not a template.
pub(super) fn check(other: &dyn Isolate, source: &str) -> Result<(), ChatError> {
    ask(other, &json!({ "source": source })).map(drop)
}

/// Renders a conversation by a template, with the texts of BOS and EOS.
pub(super) fn render(
    other: &dyn Isolate,
    [template, bos, eos]: [&str; 3],
    messages: &[Message],
    options: &RenderOptions,
) -> Result<String, ChatError> {
    let messages = messages.iter().map(|m| {
        let calls: Vec<Value> = m.calls.iter().map(ToolCall::to_json).collect();
        json!([m.role.name(), m.content, calls, m.answers, m.thoughts])
    });
    let request = json!({
        "source": template,
        "bos": bos,
        "eos": eos,
        "messages": messages.collect::<Vec<Value>>(),
        "tools": options.tools,
        "variables": options.variables,
        "answer": options.answer,
        "time": options.time,
    });
    ask(other, &request)
}

fn ask(other: &dyn Isolate, request: &Value) -> Result<String, ChatError> {
    let request = request.to_string();
    let limits = Limits::of(request.len());
    let reply = other.run(Job::Template, request.as_bytes(), limits)?;
    let broken = |what: &str| ChatError::Stopped(Failure::Broken(what.to_owned()));
    let reply: Value = serde_json::from_slice(&reply).map_err(|_| broken("there is no answer"))?;
    let text = |key: &str| reply.get(key).and_then(Value::as_str).map(str::to_owned);
    let number = |key: &str| reply.get(key).and_then(Value::as_u64);
    if let Some(text) = text("text") {
        return Ok(text);
    }
    Err(match (text("syntax"), text("failed"), number("long")) {
        (Some(why), ..) => ChatError::Syntax(why),
        (_, Some(why), _) => ChatError::Failed(why),
        (.., Some(most)) => ChatError::TooLong(most as usize),
        _ => match (number("seconds"), number("memory")) {
            (Some(_), _) => ChatError::Stopped(Failure::Time(limits.time)),
            (_, Some(bytes)) => ChatError::Stopped(Failure::Memory(bytes)),
            _ => broken(&text("broken").unwrap_or_default()),
        },
    })
}
