//! A request of `/v1/responses`, OpenAI's newer form of a chat, in the form of its older one.

use serde_json::{Map, Value, json};

use super::fields::{Fields, wrong};
use crate::error::ApiError;

/// Fields that ask for what the server would have to remember or to do by itself.
const ELSEWHERE: &[&str] = &["previous_response_id", "conversation", "prompt", "background"];

/// The same request in the form of OpenAI's chats. Fields that are not of this form stay as they are.
///
/// # Errors
/// Names the field.
pub fn to_chat(body: &Value) -> Result<Value, ApiError> {
    let f = Fields::of(body)?;
    for name in ELSEWHERE {
        if f.get(name).is_some_and(|v| *v != false) {
            return Err(ApiError::unsupported(name));
        }
    }
    let mut out = body.as_object().cloned().unwrap_or_default();
    let mut messages = Vec::new();
    if let Some(instructions) = f.text("instructions")? {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    match f.get("input") {
        Some(text @ Value::String(_)) => messages.push(json!({"role": "user", "content": text})),
        Some(Value::Array(items)) => {
            for item in items {
                add(&mut messages, item)?;
            }
        }
        Some(other) => return Err(wrong("input", "a string or an array of items", other)),
        None => return Err(ApiError::field("input", "is required")),
    }
    for name in ["input", "instructions", "text", "max_output_tokens"] {
        out.remove(name);
    }
    out.insert("messages".into(), messages.into());
    if let Some(most) = f.integer("max_output_tokens", 0..=i64::from(i32::MAX))? {
        out.insert("max_tokens".into(), most.into());
    }
    if let Some(text) = f.object("text")? {
        format(&mut out, &text)?;
    }
    if let Some(tools) = f.list("tools")? {
        let function = |t: &Value| {
            let function = json!({"name": t["name"], "description": t["description"], "parameters": t["parameters"]});
            json!({"type": t["type"], "function": function})
        };
        out.insert("tools".into(), tools.iter().map(function).collect());
    }
    if let Some(Value::Object(choice)) = f.get("tool_choice").filter(|choice| choice["type"] != "allowed_tools") {
        let name = choice.get("name");
        out.insert("tool_choice".into(), json!({"type": "function", "function": {"name": name}}));
    }
    Ok(out.into())
}

/// The form of the text: here the schema is not one object deeper.
fn format(out: &mut Map<String, Value>, text: &Fields<'_>) -> Result<(), ApiError> {
    let Some(format) = text.object("format")? else {
        return Ok(());
    };
    let form = match format.text("type")? {
        Some("json_schema") => {
            json!({"type": "json_schema", "json_schema": {"schema": format.get("schema")}})
        }
        Some(other) => json!({ "type": other }),
        None => return Ok(()),
    };
    out.insert("response_format".into(), form);
    Ok(())
}

/// Adds an item of the input to the messages of a chat.
fn add(messages: &mut Vec<Value>, item: &Value) -> Result<(), ApiError> {
    match item["type"].as_str() {
        Some("function_call") => {
            let function = json!({"name": item["name"], "arguments": item["arguments"]});
            let call = json!({"id": item["call_id"], "type": "function", "function": function});
            // Calls of one answer are one message, with the thoughts before them.
            let last = messages.last_mut().filter(|m| m["role"] == "assistant");
            match last {
                Some(m) if m["tool_calls"].is_array() => {
                    m["tool_calls"].as_array_mut().into_iter().for_each(|calls| calls.push(call.clone()));
                }
                Some(m) if is_thought(m) => m["tool_calls"] = json!([call]),
                _ => messages.push(json!({"role": "assistant", "content": "", "tool_calls": [call]})),
            }
        }
        Some("function_call_output") => messages.push(json!({
            "role": "tool",
            "tool_call_id": item["call_id"],
            "content": item["output"],
        })),
        Some("reasoning") => {
            let parts = item["content"].as_array().into_iter().flatten();
            let thoughts: String = parts.filter_map(|part| part["text"].as_str()).collect();
            messages.push(json!({"role": "assistant", "content": "", "reasoning_content": thoughts}));
        }
        None | Some("message") => {
            let content = match &item["content"] {
                Value::Array(parts) => parts.iter().map(part).collect::<Result<Vec<_>, _>>()?.into(),
                content => content.clone(),
            };
            match messages.last_mut().filter(|m| is_thought(m) && item["role"] == "assistant") {
                Some(m) => m["content"] = content,
                None => messages.push(json!({"role": item["role"], "content": content})),
            }
        }
        Some(_) => {
            return Err(ApiError::field("input", "only messages, function_call and function_call_output"));
        }
    }
    Ok(())
}

/// Returns true if a message has thoughts and nothing else yet.
fn is_thought(message: &Value) -> bool {
    message["reasoning_content"].is_string() && message["content"] == "" && message["tool_calls"].is_null()
}

fn part(value: &Value) -> Result<Value, ApiError> {
    match (value["type"].as_str(), value["text"].as_str()) {
        (Some("input_text" | "output_text" | "text"), Some(text)) => Ok(json!({"type": "text", "text": text})),
        _ => Err(ApiError::field("input", "only parts of text: the model reads text only")),
    }
}
