//! Templates that this process renders for another one: the answers, as JSON.

use serde_json::{Value, json};

use super::error::ChatError;
use super::message::{Message, Role, ToolCall};
use super::options::RenderOptions;
use super::run;
use super::template::ChatTemplate;
use crate::isolate::Failure;

/// The answer to a request of [`Job::Template`](crate::isolate::Job::Template), in the process that may fail.
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
            thoughts: m.get(4).and_then(Value::as_str).map(str::to_owned),
            ..Message::new(role?, content?)
        })
    });
    let messages: Option<Vec<Message>> = messages.collect();
    let options = RenderOptions {
        tools: request.get("tools").and_then(Value::as_array).ok_or_else(broken)?.clone(),
        variables: request.get("variables").and_then(Value::as_object).ok_or_else(broken)?.clone(),
        answer: request.get("answer").and_then(Value::as_bool).ok_or_else(broken)?,
        time: request.get("time").and_then(Value::as_u64),
    };
    template.render_with(&messages.ok_or_else(broken)?, &options)
}
