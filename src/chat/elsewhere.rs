//! Templates that another process renders: what is asked and what is answered, as JSON.

use serde_json::{Value, json};

use super::{ChatError, ChatTemplate, Message, RenderOptions, Role, ToolCall, run};
use crate::isolate::{Failure, Isolate, Job, Limits};

/// Whether `source` is a template.
pub(super) fn check(other: &dyn Isolate, source: &str) -> Result<(), ChatError> {
    ask(other, &json!({ "source": source })).map(drop)
}

/// Renders a conversation.
pub(super) fn render(
    other: &dyn Isolate,
    template: &ChatTemplate,
    messages: &[Message],
    options: &RenderOptions,
) -> Result<String, ChatError> {
    let messages = messages.iter().map(|m| {
        let calls: Vec<Value> = m.calls.iter().map(ToolCall::to_json).collect();
        json!([m.role.name(), m.content, calls, m.answers])
    });
    let request = json!({
        "source": template.source,
        "bos": template.bos,
        "eos": template.eos,
        "messages": messages.collect::<Vec<Value>>(),
        "tools": options.tools,
        "variables": options.variables,
        "answer": options.answer,
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

/// The answer to a request of [`Job::Template`], in the process that may fail.
pub fn answer(request: &[u8]) -> Vec<u8> {
    let reply = match rendered(request) {
        Ok(text) => json!({ "text": text }),
        Err(ChatError::Syntax(why)) => json!({ "syntax": why }),
        Err(ChatError::Failed(why)) => json!({ "failed": why }),
        Err(ChatError::TooLong(most)) => json!({ "long": most }),
        Err(ChatError::Stopped(Failure::Time(time))) => json!({ "seconds": time.as_secs() }),
        Err(ChatError::Stopped(Failure::Memory(bytes))) => json!({ "memory": bytes }),
        Err(other) => json!({ "broken": other.to_string() }),
    };
    reply.to_string().into_bytes()
}

fn rendered(request: &[u8]) -> Result<String, ChatError> {
    let broken = || ChatError::Failed("the request is damaged".to_owned());
    let request: Value = serde_json::from_slice(request).map_err(|_| broken())?;
    let text = |key: &str| {
        let value = request.get(key).and_then(Value::as_str);
        value.map(str::to_owned).ok_or_else(broken)
    };
    let Some(messages) = request.get("messages").and_then(Value::as_array) else {
        run::check(&text("source")?)?;
        return Ok(String::new());
    };
    let template = ChatTemplate { source: text("source")?, bos: text("bos")?, eos: text("eos")?, elsewhere: None };
    let messages = messages.iter().map(|m| {
        let role = m.get(0).and_then(Value::as_str).and_then(Role::from_name);
        let content = m.get(1).and_then(Value::as_str);
        let calls = m.get(2).and_then(Value::as_array)?;
        Some(Message {
            calls: calls.iter().map(ToolCall::from_json).collect::<Option<_>>()?,
            answers: m.get(3).and_then(Value::as_str).map(str::to_owned),
            ..Message::new(role?, content?)
        })
    });
    let messages: Option<Vec<Message>> = messages.collect();
    let options = RenderOptions {
        tools: request.get("tools").and_then(Value::as_array).ok_or_else(broken)?.clone(),
        variables: request.get("variables").and_then(Value::as_object).ok_or_else(broken)?.clone(),
        answer: request.get("answer").and_then(Value::as_bool).ok_or_else(broken)?,
    };
    template.render_with(&messages.ok_or_else(broken)?, &options)
}
