//! Chat templates: a conversation to the tokens that the model was trained on.
//!
//! Models carry a Jinja template (`tokenizer.chat_template`). It comes with the file, so it is as hostile as the file:
//! it runs without any access to the system, with a budget of instructions, a limit on recursion and on output, and
//! watched for time and memory (see [`run`]). That leaves what no thread survives, such as a value that holds itself
//! and is printed; [`ChatTemplate::isolated`] renders in another process.
//!
//! What the user types never becomes a control token: `<|im_end|>` in a message is text, not the end of
//! the turn. A message without such a text is encoded with the rest of the conversation, exactly as
//! llama.cpp does it; see [`protect`] for the others.

mod elsewhere;
mod json;
mod named;
mod protect;
mod run;
mod strftime;

use std::sync::Arc;

use minijinja::{Value, context};
use trine_formats::gguf::{GgufError, Metadata};

use crate::isolate::{Failure, Isolate};
use crate::tokenizer::{Tokenizer, TokenizerError};

pub use elsewhere::answer;

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// What the model is told before the conversation.
    System,
    /// The one who asks.
    User,
    /// The model.
    Assistant,
    /// A function that the model called, with what it returned.
    Tool,
}

impl Role {
    /// The name that templates know: "system", "user", "assistant" or "tool".
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }

    fn from_name(name: &str) -> Option<Role> {
        let all = [Role::System, Role::User, Role::Assistant, Role::Tool];
        all.into_iter().find(|role| role.name() == name)
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who said it.
    pub role: Role,
    /// What was said.
    pub content: String,
    /// The functions that the model called with it.
    pub calls: Vec<ToolCall>,
    /// Of a function's answer: the call that it answers.
    pub answers: Option<String>,
}

/// A call of a function by the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// What the answer names it by.
    pub id: String,
    /// The function.
    pub name: String,
    /// What it is called with, an object as a rule.
    pub arguments: serde_json::Value,
}

impl Message {
    /// What `role` says.
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        Message { role, content: content.into(), calls: Vec::new(), answers: None }
    }

    /// What the model is told before the conversation.
    pub fn system(content: impl Into<String>) -> Message {
        Message::new(Role::System, content)
    }

    /// What the user says.
    pub fn user(content: impl Into<String>) -> Message {
        Message::new(Role::User, content)
    }

    /// What the model answers.
    pub fn assistant(content: impl Into<String>) -> Message {
        Message::new(Role::Assistant, content)
    }
}

/// Why a conversation cannot be rendered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The template is not valid.
    #[error("the chat template is not valid: {0}")]
    Syntax(String),
    /// The template failed, or refused the conversation.
    #[error("the chat template failed: {0}")]
    Failed(String),
    /// The template wrote too much.
    #[error("the chat template wrote more than {0} bytes")]
    TooLong(usize),
    /// The template took too much time or memory, or broke off. In this process its thread may still be running: a
    /// program that gets this should end.
    #[error("the chat template was stopped: {0}")]
    Stopped(#[from] Failure),
    /// A message has the text of a control token and the template takes the message apart; or a call or the description
    /// of a function has one.
    #[error(
        "a message, a function or a variable contains the text of a control token that cannot be kept apart from the control tokens of the chat template; leave that text out"
    )]
    Unprotected,
    /// The rendered conversation cannot be encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The metadata value is not a text.
    #[error(transparent)]
    Gguf(#[from] GgufError),
}

/// What a template gets beside the messages.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// Functions that the model may call, each described as OpenAI does it.
    pub tools: Vec<serde_json::Value>,
    /// Variables that this template knows, such as `enable_thinking`. None of [`RenderOptions::OWN`] may be among them.
    pub variables: serde_json::Map<String, serde_json::Value>,
    /// Whether the text ends where the assistant's next message begins.
    pub answer: bool,
}

impl RenderOptions {
    /// The variables that every template gets.
    pub const OWN: [&'static str; 5] = ["messages", "tools", "bos_token", "eos_token", "add_generation_prompt"];

    /// No functions and no variables.
    fn plain(answer: bool) -> RenderOptions {
        RenderOptions { answer, ..RenderOptions::default() }
    }
}

/// The template of a model.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    source: String,
    bos: String,
    eos: String,
    /// Who renders it, if not this process.
    elsewhere: Option<Arc<dyn Isolate>>,
}

impl ChatTemplate {
    /// The template of a file, `None` when it has none.
    ///
    /// # Errors
    /// The value is not a text, or not a template.
    pub fn from_metadata(meta: &Metadata, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>, ChatError> {
        meta.get_str("tokenizer.chat_template")?.map(|source| ChatTemplate::new(source, tokenizer)).transpose()
    }

    /// A template from its text.
    ///
    /// # Errors
    /// The text is not a template.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<ChatTemplate, ChatError> {
        ChatTemplate::of(source, tokenizer, None)
    }

    /// The text of the template that llama.cpp knows by a name, such as `chatml`; `None` where there is none.
    pub fn named(name: &str) -> Option<String> {
        named::named(name)
    }

    /// The names that [`ChatTemplate::named`] knows, in the order of the alphabet.
    pub fn names() -> impl Iterator<Item = &'static str> {
        named::names()
    }

    /// A template that is never run in this process, whatever it holds.
    ///
    /// # Errors
    /// The text is not a template; it cannot be rendered elsewhere.
    pub fn isolated(
        source: &str,
        tokenizer: &Tokenizer,
        elsewhere: Arc<dyn Isolate>,
    ) -> Result<ChatTemplate, ChatError> {
        ChatTemplate::of(source, tokenizer, Some(elsewhere))
    }

    fn of(source: &str, tokenizer: &Tokenizer, elsewhere: Option<Arc<dyn Isolate>>) -> Result<ChatTemplate, ChatError> {
        let text = |id: Option<u32>| {
            let bytes = id.map(|id| tokenizer.piece(id, true)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (bos, eos) = (text(tokenizer.bos()), text(tokenizer.eos()));
        ChatTemplate::with_tokens(source, bos, eos, elsewhere)
    }

    fn with_tokens(
        source: &str,
        bos: String,
        eos: String,
        elsewhere: Option<Arc<dyn Isolate>>,
    ) -> Result<ChatTemplate, ChatError> {
        let template = ChatTemplate { source: run::without_generation_tags(source), bos, eos, elsewhere };
        match &template.elsewhere {
            None => run::check(&template.source)?,
            Some(other) => elsewhere::check(&**other, &template.source)?,
        }
        Ok(template)
    }

    /// The text of a conversation; with `answer` it ends where the assistant's next message begins.
    ///
    /// # Errors
    /// Whatever the template does wrong.
    pub fn render(&self, messages: &[Message], answer: bool) -> Result<String, ChatError> {
        self.render_with(messages, &RenderOptions::plain(answer))
    }

    /// [`ChatTemplate::render`], with functions that the model may call and variables of this template.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn render_with(&self, messages: &[Message], options: &RenderOptions) -> Result<String, ChatError> {
        if let Some(other) = &self.elsewhere {
            return elsewhere::render(&**other, self, messages, options);
        }
        let size = messages.iter().map(|m| m.content.len()).sum::<usize>();
        let size = size + structure(messages, options).len();
        let messages: Vec<Value> = messages.iter().map(as_value).collect();
        let own = context! {
            messages,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            add_generation_prompt => options.answer,
        };
        let own = match &options.tools[..] {
            [] => own,
            tools => context! { tools => tools.iter().map(of_json).collect::<Vec<Value>>(), ..own },
        };
        let variables = options.variables.iter();
        let variables = variables.map(|(name, value)| (name.clone(), of_json(value)));
        let variables = Value::from_pairs(variables);
        run::render(&self.source, size, context! { ..own, ..variables })
    }

    /// Whether the template does anything with functions.
    pub fn knows_tools(&self) -> bool {
        self.source.contains("tools")
    }

    /// The template, without what marks the assistant's text for training.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The tokens of a conversation, with BOS in front if the model wants it.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`]; a message with the text of a control token that cannot be kept apart.
    pub fn encode(&self, tokenizer: &Tokenizer, messages: &[Message], answer: bool) -> Result<Vec<u32>, ChatError> {
        self.encode_with(tokenizer, messages, &RenderOptions::plain(answer))
    }

    /// [`ChatTemplate::encode`], with functions that the model may call and variables of this template.
    ///
    /// # Errors
    /// As [`ChatTemplate::encode`]; a function, a call or a variable with the text of a control token.
    pub fn encode_with(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<Vec<u32>, ChatError> {
        let plain = |text: &str| -> Result<bool, ChatError> {
            let as_text = tokenizer.encode(text, false, false)?;
            Ok(as_text == tokenizer.encode(text, false, true)?)
        };
        if !plain(&structure(messages, options))? {
            return Err(ChatError::Unprotected);
        }
        let mut suspect = Vec::new();
        for (i, m) in messages.iter().enumerate() {
            if !plain(&m.content)? {
                suspect.push(i);
            }
        }
        if !suspect.is_empty() {
            return protect::encode(self, tokenizer, messages, options, &suspect);
        }
        let text = self.render_with(messages, options)?;
        Ok(tokenizer.encode(self.without_bos(tokenizer, &text), true, true)?)
    }

    /// The rendered text without the BOS that encoding will add.
    fn without_bos<'a>(&self, tokenizer: &Tokenizer, text: &'a str) -> &'a str {
        if tokenizer.add_bos() && !self.bos.is_empty() { text.strip_prefix(&self.bos).unwrap_or(text) } else { text }
    }
}

/// A message as templates see it.
fn as_value(m: &Message) -> Value {
    let mut all: Vec<(&str, Value)> = vec![("role", m.role.name().into()), ("content", m.content.as_str().into())];
    if !m.calls.is_empty() {
        let calls: Vec<Value> = m.calls.iter().map(|c| of_json(&c.to_json())).collect();
        all.push(("tool_calls", calls.into()));
    }
    if let Some(call) = &m.answers {
        all.push(("tool_call_id", call.as_str().into()));
    }
    Value::from_pairs(all)
}

/// JSON as a template sees it. Written out because serde's way makes an object of a number where any crate of the
/// program has asked serde_json for numbers of any precision.
fn of_json(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(n), _) => Value::from(n),
            (None, Some(n)) => Value::from(n),
            (None, None) => Value::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(list) => list.iter().map(of_json).collect(),
        Json::Object(map) => {
            let pairs = map.iter().map(|(key, value)| (key.clone(), of_json(value)));
            Value::from_pairs(pairs)
        }
    }
}

/// All that is neither a message's text nor the template's: calls, the descriptions of functions, variables.
fn structure(messages: &[Message], options: &RenderOptions) -> String {
    let calls = messages.iter().flat_map(|m| &m.calls);
    let calls = calls.map(|c| c.to_json().to_string());
    let answers = messages.iter().filter_map(|m| m.answers.clone());
    calls
        .chain(answers)
        .chain(options.tools.iter().map(|t| t.to_string()))
        .chain(options.variables.values().map(|v| v.to_string()))
        .collect()
}

impl ToolCall {
    /// The call as OpenAI writes it, but for the arguments, which are no text here.
    fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        })
    }

    fn from_json(value: &serde_json::Value) -> Option<ToolCall> {
        let text = |v: &serde_json::Value| v.as_str().map(str::to_owned);
        Some(ToolCall {
            id: text(&value["id"])?,
            name: text(&value["function"]["name"])?,
            arguments: value["function"]["arguments"].clone(),
        })
    }
}

#[cfg(test)]
mod tests;
