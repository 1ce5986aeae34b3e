//! The messages of a chat: JSON to a prompt, by the template of the model.

use serde_json::{Map, Value};
use trine::chat::{ChatError, RenderOptions, ToolCall, is_plain};
use trine::{ChatTemplate, Message, Role};

use super::fields::{Fields, wrong};
use super::prompt::Prompt;
use super::tools::{ids, told};
use crate::error::ApiError;
use crate::service::Service;

/// Most messages of a chat.
const MOST: usize = 4096;
/// Longest id of a call, in bytes.
const ID: usize = 256;

/// A chat as it is to be rendered.
pub struct Conversation {
    messages: Vec<Message>,
    /// Further inputs of the template: the functions that the model may call, variables, whether the answer follows.
    options: RenderOptions,
    /// The beginning of the answer, which the model continues.
    begun: Option<String>,
}

impl Conversation {
    /// Reads the messages of a request whose functions are `tools`, for the template of the model.
    ///
    /// # Errors
    /// Names the field; the model has no template.
    pub fn read(f: &Fields<'_>, tools: &[Value], service: &Service) -> Result<Conversation, ApiError> {
        let list = f.list("messages")?.ok_or_else(|| ApiError::field("messages", "is required"))?;
        if list.is_empty() || list.len() > MOST {
            return Err(ApiError::field("messages", format!("must have from 1 to {MOST} messages")));
        }
        let messages: Result<Vec<_>, _> = list.iter().map(message).collect();
        let mut messages = messages?;
        let assistant = |m: Option<&Message>| m.is_some_and(|m| m.role == Role::Assistant);
        let before_last = messages.len().checked_sub(2).and_then(|i| messages.get(i));
        if assistant(messages.last()) && assistant(before_last) {
            return Err(ApiError::field("messages", "two messages of the assistant at the end"));
        }
        let answer = f.flag("add_generation_prompt")?;
        let go_on = f.flag("continue_final_message")?;
        if answer == Some(true) && go_on == Some(true) {
            return Err(ApiError::field("continue_final_message", "contradicts 'add_generation_prompt': true"));
        }
        let calls = messages.last().is_some_and(|m| !m.calls.is_empty());
        let goes_on = assistant(messages.last()) && !calls && answer != Some(true) && go_on != Some(false);
        let begun = if goes_on { messages.pop() } else { None };
        if go_on == Some(true) && begun.is_none() {
            return Err(ApiError::field("continue_final_message", "the last message is not the assistant's"));
        }
        let mut tools = tools.to_vec();
        let template = service.template()?;
        if template.knows_tools() {
            ids::rename(&mut messages, template.source());
        } else {
            told::tell(&mut messages, &std::mem::take(&mut tools));
        }
        Ok(Conversation {
            options: RenderOptions {
                tools,
                variables: variables(f, &service.limits.variables)?,
                answer: begun.is_some() || answer.unwrap_or(true),
                time: None,
            },
            begun: begun.map(|m| m.content),
            messages,
        })
    }

    /// Its text, the beginning of the answer included.
    ///
    /// # Errors
    /// The template fails, or refuses the messages.
    pub fn render(&self, template: &ChatTemplate) -> Result<String, ApiError> {
        let text = template.render_with(&self.messages, &self.options).map_err(failed)?;
        Ok(text + self.begun.as_deref().unwrap_or_default())
    }

    /// Its tokens.
    ///
    /// # Errors
    /// As [`Conversation::render`].
    fn encode(&self, template: &ChatTemplate, service: &Service) -> Result<Vec<u32>, ApiError> {
        let tokenizer = service.engine.model().tokenizer();
        let Some(begun) = &self.begun else {
            return template.encode_with(tokenizer, &self.messages, &self.options).map_err(failed);
        };
        // The beginning of the answer is encoded together with what stands before it, as one text; so nothing in it
        // and in the messages may look like a control token.
        let calls = self.messages.iter().flat_map(|m| &m.calls);
        let calls = calls.map(|c| format!("{} {} {}", c.id, c.name, c.arguments));
        let given = self.options.tools.iter();
        let given = given.chain(self.options.variables.values());
        let thoughts = self.messages.iter().filter_map(|m| m.thoughts.clone());
        let others: Vec<String> = calls.chain(given.map(Value::to_string)).chain(thoughts).collect();
        let texts = self.messages.iter().map(|m| m.content.as_str());
        let texts = texts.chain([begun.as_str()]);
        for text in texts.chain(others.iter().map(String::as_str)) {
            if !is_plain(tokenizer, text).map_err(failed)? {
                return Err(failed(ChatError::Unprotected));
            }
        }
        let text = self.render(template)?;
        let bos = tokenizer.text_bos().map(|id| service.text_of(&[id]));
        let bos = bos.filter(|b| !b.is_empty());
        let text = bos.and_then(|b| text.strip_prefix(b.as_str())).unwrap_or(&text);
        service.encoder().encode(text, true)
    }
}

/// The prompt of a chat in which the model may call `tools`.
///
/// # Errors
/// Names the field; the model has no template, or one that fails.
pub fn prompt(f: &Fields<'_>, tools: &[Value], service: &Service) -> Result<Prompt, ApiError> {
    let conversation = Conversation::read(f, tools, service)?;
    let template = service.template()?;
    let bytes = conversation.messages.iter().map(|m| m.content.len()).sum::<usize>();
    let encoder = service.encoder();
    let fewest = encoder.longest.map_or(0, |most| bytes / most.max(1));
    if fewest > encoder.n_ctx {
        return Err(ApiError::too_long(fewest, encoder.n_ctx).with("param", "messages"));
    }
    Ok(Prompt { tokens: conversation.encode(template, service)?, text: None })
}

/// Variables for the template: those that are `usual`, the members of `chat_template_kwargs`, and `reasoning_effort`, of which "none" is what
/// templates know as no thinking.
fn variables(f: &Fields<'_>, usual: &Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    const NAME: &str = "chat_template_kwargs";
    let mut variables = match f.get(NAME) {
        None => usual.clone(),
        Some(Value::Object(map)) => {
            let said = map.iter().map(|(name, value)| (name.clone(), value.clone()));
            usual.clone().into_iter().chain(said).collect()
        }
        Some(other) => return Err(wrong(NAME, "an object", other)),
    };
    if let Some(own) = RenderOptions::OWN.iter().find(|n| variables.contains_key(**n)) {
        let what = format!("'{own}' is what every template gets from the request itself");
        return Err(ApiError::field(NAME, what));
    }
    match f.text("reasoning_effort")? {
        None | Some("") => {}
        Some("none") => {
            variables.remove("reasoning_effort");
            variables.insert("enable_thinking".into(), false.into());
        }
        Some(effort) => {
            variables.insert("reasoning_effort".into(), effort.into());
        }
    }
    Ok(variables)
}

fn message(value: &Value) -> Result<Message, ApiError> {
    const NAME: &str = "messages";
    let Value::Object(map) = value else {
        return Err(wrong(NAME, "an array of objects", value));
    };
    let f = Fields::members(map);
    let role = match f.text("role")? {
        // The newer name for it.
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            return Err(ApiError::field(
                "role",
                format!("'{other}' is not supported; use system, user, assistant or tool"),
            ));
        }
        None => return Err(ApiError::field("role", "every message needs one")),
    };
    let calls = f.list("tool_calls")?.unwrap_or_default();
    if !calls.is_empty() && role != Role::Assistant {
        return Err(ApiError::field("tool_calls", "only the assistant calls functions"));
    }
    let calls: Vec<ToolCall> = calls.iter().map(call).collect::<Result<_, _>>()?;
    let answers = f.short_text("tool_call_id", ID)?.filter(|_| role == Role::Tool);
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
    let thoughts = f.text("reasoning_content")?.filter(|text| role == Role::Assistant && !text.is_empty());
    Ok(Message {
        calls,
        answers: answers.map(str::to_owned),
        thoughts: thoughts.map(str::to_owned),
        ..Message::new(role, content)
    })
}

/// A call that the assistant made before.
fn call(value: &Value) -> Result<ToolCall, ApiError> {
    let (function, id) = (&value["function"], value["id"].as_str().unwrap_or_default());
    let Some(name) = function["name"].as_str().filter(|_| id.len() <= ID) else {
        return Err(ApiError::field(
            "tool_calls",
            "each is {\"id\": ..., \"type\": \"function\", \"function\": {\"name\": ..., \"arguments\": ...}}",
        ));
    };
    let arguments = match &function["arguments"] {
        // OpenAI's are a text that holds an object. Templates want the object.
        Value::String(text) => match serde_json::from_str(text) {
            Ok(object @ Value::Object(_)) => object,
            _ => text.as_str().into(),
        },
        other => other.clone(),
    };
    Ok(ToolCall { id: id.to_owned(), name: name.to_owned(), arguments })
}

fn part(value: &Value) -> Result<&str, ApiError> {
    match (value["type"].as_str(), value["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(text),
        _ => {
            Err(ApiError::field("content", "only parts {\"type\": \"text\", \"text\": ...}: the model reads text only"))
        }
    }
}

fn failed(e: ChatError) -> ApiError {
    ApiError::field("messages", e)
}
