//! Conversations as OpenAI writes them, for the model's chat template.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::{Map, Value};
use trine::chat::{RenderOptions, ToolCall};
use trine::{ChatTemplate, Message, Role};

use crate::error::failed;
use crate::values::json;

/// A conversation that waits for an answer.
pub struct Conversation {
    messages: Vec<Message>,
    template: ChatTemplate,
    beside: RenderOptions,
}

impl Conversation {
    /// Reads messages, descriptions of functions and variables of the template. `template` is the text of one, or a
    /// name that llama.cpp has for one; `None` takes the model's own.
    ///
    /// # Errors
    /// A `TypeError` or a `ValueError` that names the message; no template.
    pub fn read(
        library: &trine::Model,
        messages: &Bound<'_, PyAny>,
        tools: Option<&Bound<'_, PyList>>,
        template: Option<&str>,
        variables: Option<&Bound<'_, PyDict>>,
        answer: bool,
    ) -> PyResult<Conversation> {
        let template = match template {
            Some(text) => {
                let named = ChatTemplate::named(text);
                ChatTemplate::new(named.as_deref().unwrap_or(text), library.tokenizer()).map(Some)
            }
            None => library.chat_template(),
        };
        let template = template.map_err(failed)?;
        let template = template.ok_or_else(|| failed("the model has no chat template; give one as chat_template"))?;
        let list = messages.cast::<PyList>().map_err(|_| PyTypeError::new_err("messages must be a list of dicts"))?;
        let messages = list.iter().enumerate().map(|(i, message)| {
            let dict = message.cast::<PyDict>();
            let dict = dict.map_err(|_| PyTypeError::new_err(format!("messages[{i}] must be a dict")))?;
            self::message(&json(dict)?).map_err(|what| PyValueError::new_err(format!("messages[{i}]: {what}")))
        });
        let messages: Vec<Message> = messages.collect::<PyResult<_>>()?;
        if messages.is_empty() {
            return Err(PyValueError::new_err("messages is empty"));
        }
        let tools = tools.map(|tools| json(tools.as_any())).transpose()?;
        let variables = variables.map(|v| json(v.as_any())).transpose()?;
        let variables = variables.and_then(|v| v.as_object().cloned()).unwrap_or_default();
        if let Some(own) = RenderOptions::OWN.iter().find(|own| variables.contains_key(**own)) {
            return Err(PyValueError::new_err(format!("template_variables: every template gets '{own}' already")));
        }
        let tools = tools.and_then(|t| t.as_array().cloned()).unwrap_or_default();
        Ok(Conversation {
            messages,
            template,
            beside: RenderOptions { tools, variables, answer, ..RenderOptions::default() },
        })
    }

    /// Its tokens, where the user's text is never taken for a control token.
    ///
    /// # Errors
    /// The template refuses the conversation.
    pub fn tokens(&self, library: &trine::Model) -> PyResult<Vec<u32>> {
        let tokens = self.template.encode_with(library.tokenizer(), &self.messages, &self.beside);
        tokens.map_err(failed)
    }

    /// Its text.
    ///
    /// # Errors
    /// The template refuses the conversation.
    pub fn text(&self) -> PyResult<String> {
        self.template.render_with(&self.messages, &self.beside).map_err(failed)
    }
}

fn message(value: &Value) -> Result<Message, String> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let role = match text("role").as_deref() {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        Some(other) => return Err(format!("role '{other}' is none of system, user, assistant and tool")),
        None => return Err("it has no role".to_owned()),
    };
    let calls = match value.get("tool_calls") {
        Some(Value::Array(calls)) => calls.iter().map(call).collect::<Result<Vec<_>, _>>()?,
        None | Some(Value::Null) => Vec::new(),
        Some(_) => return Err("tool_calls must be a list".to_owned()),
    };
    let content = match value.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().map(part).collect::<Result<String, _>>()?,
        None | Some(Value::Null) if !calls.is_empty() => String::new(),
        None | Some(Value::Null) => return Err("it has no content".to_owned()),
        Some(_) => return Err("content must be a str or a list of parts".to_owned()),
    };
    Ok(Message {
        calls,
        answers: text("tool_call_id"),
        thoughts: text("reasoning_content"),
        ..Message::new(role, content)
    })
}

/// A part of a content, which is a text.
fn part(part: &Value) -> Result<&str, String> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or("nothing");
    let text = part.get("text").and_then(Value::as_str).filter(|_| kind == "text");
    text.ok_or_else(|| format!("a part of content has the type '{kind}'; this model reads text alone"))
}

/// A call of a function; its arguments are an object or the text of one.
fn call(value: &Value) -> Result<ToolCall, String> {
    let function = value.get("function").and_then(Value::as_object);
    let function: &Map<String, Value> = function.ok_or("a call of tool_calls has no function")?;
    let name = function.get("name").and_then(Value::as_str).ok_or("a call of tool_calls has no name")?;
    let arguments = match function.get("arguments") {
        Some(Value::String(text)) => {
            serde_json::from_str(text).map_err(|_| format!("the arguments of '{name}' are not JSON"))?
        }
        Some(other) => other.clone(),
        None => Value::Object(Map::new()),
    };
    let id = value.get("id").and_then(Value::as_str).unwrap_or_default();
    Ok(ToolCall { id: id.to_owned(), name: name.to_owned(), arguments })
}
