//! A request of `/v1/messages`, Anthropic's form of a chat, in the form of OpenAI's chats.

use serde_json::{Map, Value, json};

use super::fields::{Fields, wrong};
use crate::error::ApiError;

/// The same request in the form of OpenAI's chats. Fields that are not Anthropic's stay as they are.
///
/// # Errors
/// Names the field.
pub fn to_chat(body: &Value) -> Result<Value, ApiError> {
    let f = Fields::of(body)?;
    let mut out = body.as_object().cloned().unwrap_or_default();
    let mut messages = Vec::new();
    if let Some(system) = f.get("system") {
        messages.push(json!({"role": "system", "content": texts("system", system)?}));
    }
    let list = f.list("messages")?;
    let list = list.ok_or_else(|| ApiError::field("messages", "is required"))?;
    for message in list {
        messages.extend(message_to_chat(message)?);
    }
    out.insert("messages".into(), messages.into());
    if f.integer("max_tokens", 0..=i64::from(i32::MAX))?.is_none() {
        return Err(ApiError::field("max_tokens", "is required"));
    }
    if let Some(form) = output(&f)? {
        out.insert("response_format".into(), form);
    }
    out.remove("system");
    rename(&mut out, "stop_sequences", "stop");
    if let Some(tools) = f.list("tools")? {
        let own = |t: &Value| t["type"].is_null() || t["type"] == "custom";
        if !tools.iter().all(own) {
            return Err(ApiError::field("tools", "only tools of your own, with 'input_schema'"));
        }
        let function = |t: &Value| {
            let (name, about) = (&t["name"], &t["description"]);
            let function = json!({"name": name, "description": about, "parameters": t["input_schema"]});
            json!({"type": "function", "function": function})
        };
        out.insert("tools".into(), tools.iter().map(function).collect());
    }
    if let Some(choice) = f.object("tool_choice")? {
        if choice.is_set("disable_parallel_tool_use")? {
            out.insert("parallel_tool_calls".into(), false.into());
        }
        let choice = match choice.text("type")? {
            Some("any") => "required".into(),
            Some("tool") => json!({"type": "function", "function": {"name": choice.get("name")}}),
            Some(same @ ("auto" | "none")) => same.into(),
            _ => {
                return Err(ApiError::field("tool_choice", "'type' must be auto, any, tool or none"));
            }
        };
        out.insert("tool_choice".into(), choice);
    }
    Ok(out.into())
}

/// Returns the form of the answer that a request asks for, as OpenAI writes it.
fn output(f: &Fields<'_>) -> Result<Option<Value>, ApiError> {
    let config = f.object("output_config")?;
    let format = match config {
        Some(config) => config.object("format")?,
        None => None,
    };
    let Some(format) = format.or(f.object("output_format")?) else {
        return Ok(None);
    };
    match (format.text("type")?, format.get("schema")) {
        (Some("json_schema"), Some(schema)) => {
            Ok(Some(json!({"type": "json_schema", "json_schema": {"schema": schema}})))
        }
        _ => Err(ApiError::field("output_config", "'format' must be {\"type\": \"json_schema\", \"schema\": ...}")),
    }
}

fn rename(map: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = map.remove(from) {
        map.insert(to.to_owned(), value);
    }
}

/// A text, or blocks of text, as parts of a message.
fn texts(name: &str, content: &Value) -> Result<Value, ApiError> {
    match content {
        Value::String(_) => Ok(content.clone()),
        Value::Array(blocks) => {
            let text = |b: &Value| match (b["type"].as_str(), b["text"].as_str()) {
                (Some("text"), Some(text)) => Ok(json!({"type": "text", "text": text})),
                _ => Err(ApiError::field(name, "only blocks of text: the model reads text only")),
            };
            blocks.iter().map(text).collect::<Result<Vec<_>, _>>().map(Value::from)
        }
        other => Err(wrong(name, "a string or an array of blocks", other)),
    }
}

/// A message as one or several of a chat: results of functions are messages of their own there.
fn message_to_chat(message: &Value) -> Result<Vec<Value>, ApiError> {
    let Value::Array(blocks) = &message["content"] else {
        return Ok(vec![message.clone()]);
    };
    let (mut out, mut calls, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    let mut thoughts = String::new();
    for block in blocks {
        match block["type"].as_str() {
            Some("tool_result") => {
                let content = match &block["content"] {
                    Value::Null => "".into(),
                    content => texts("content", content)?,
                };
                out.push(json!({"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}));
            }
            Some("tool_use") => calls.push(json!({
                "id": block["id"],
                "type": "function",
                "function": {"name": block["name"], "arguments": block["input"]},
            })),
            Some("thinking") => thoughts += block["thinking"].as_str().unwrap_or_default(),
            Some("redacted_thinking") => {}
            _ => rest.push(block.clone()),
        }
    }
    if !rest.is_empty() || !calls.is_empty() || out.is_empty() {
        let content = match rest.is_empty() {
            true => "".into(),
            false => texts("content", &rest.into())?,
        };
        let role = &message["role"];
        out.push(json!({"role": role, "content": content, "tool_calls": calls, "reasoning_content": thoughts}));
    }
    Ok(out)
}
