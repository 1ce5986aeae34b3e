//! A chat template: a conversation in, tokens out.

use std::sync::Arc;

use minijinja::{Value, context};
use trine_formats::gguf::Metadata;

use super::error::ChatError;
use super::message::Message;
use super::options::RenderOptions;
use super::{elsewhere, named, run, strftime};
use crate::isolate::Isolate;
use crate::tokenizer::Tokenizer;

/// The template of a model.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    pub(super) source: String,
    pub(super) bos: String,
    pub(super) eos: String,
    /// Process that renders the template; `None`: this one.
    pub(super) elsewhere: Option<Arc<dyn Isolate>>,
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
    /// The text is not a template; the other process cannot render it.
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

    pub(super) fn with_tokens(
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
        let time = options.time.map_or_else(strftime::now, Ok).map_err(ChatError::Failed)?;
        if let Some(other) = &self.elsewhere {
            let options = RenderOptions { time: Some(time), ..options.clone() };
            return elsewhere::render(&**other, [&self.source, &self.bos, &self.eos], messages, &options);
        }
        let size = messages.iter().map(|m| m.content.len()).sum::<usize>();
        let size = size + structure(messages, options).len();
        let channels = self.source.contains("message.thinking") && self.source.contains("<|channel|>");
        let messages: Vec<Value> = messages.iter().map(|m| as_value(m, channels)).collect();
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
        let date = |format| strftime::at(time, format).map_err(ChatError::Failed);
        // As llama.cpp writes them for Llama 3.1 and Firefunction, and thinks unless it is told not to; a variable of the
        // same name comes first.
        let usual = context! {
            date_string => date("%d %b %Y")?,
            datetime => date("%b %d %Y")?,
            functions => functions(&options.tools),
            enable_thinking => true,
        };
        run::render(&self.source, size, time, context! { ..own, ..variables, ..usual })
    }

    /// True if the template does anything with functions.
    pub fn knows_tools(&self) -> bool {
        self.source.contains("tools")
    }

    /// The template, without what marks the assistant's text for training.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The rendered text without the BOS that encoding will add.
    pub(super) fn without_bos<'a>(&self, tokenizer: &Tokenizer, text: &'a str) -> &'a str {
        if tokenizer.add_bos() && !self.bos.is_empty() { text.strip_prefix(&self.bos).unwrap_or(text) } else { text }
    }
}

/// The functions as one text, for templates that put them into a prompt without a word of Jinja; empty without any.
fn functions(tools: &[serde_json::Value]) -> String {
    if tools.is_empty() { String::new() } else { format!("{:#}", serde_json::Value::from(tools)) }
}

/// A message as templates see it; with `channels` as gpt-oss's does, which has another name for thoughts and refuses a
/// text beside them and a call.
fn as_value(m: &Message, channels: bool) -> Value {
    let beside = channels && m.thoughts.is_some() && !m.calls.is_empty();
    let content = if beside { "" } else { m.content.as_str() };
    let mut all: Vec<(&str, Value)> = vec![("role", m.role.name().into()), ("content", content.into())];
    if !m.calls.is_empty() {
        let calls: Vec<Value> = m.calls.iter().map(|c| of_json(&c.to_json())).collect();
        all.push(("tool_calls", calls.into()));
    }
    if let Some(call) = &m.answers {
        all.push(("tool_call_id", call.as_str().into()));
    }
    if let Some(thoughts) = &m.thoughts {
        all.push((if channels { "thinking" } else { "reasoning_content" }, thoughts.as_str().into()));
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

/// All that is neither a message's text nor the template's: calls, thoughts, the descriptions of functions, variables.
pub(super) fn structure(messages: &[Message], options: &RenderOptions) -> String {
    let calls = messages.iter().flat_map(|m| &m.calls);
    let calls = calls.map(|c| c.to_json().to_string());
    let others = messages.iter().flat_map(|m| [&m.answers, &m.thoughts]).flatten().cloned();
    calls
        .chain(others)
        .chain(options.tools.iter().map(|t| t.to_string()))
        .chain(options.variables.values().map(|v| v.to_string()))
        .collect()
}
