//! Chat templates: a conversation to the tokens that the model was trained on.
//!
//! Models carry a Jinja template (`tokenizer.chat_template`). It comes with the file, so it is as
//! hostile as the file: it runs without any access to the system, with a budget of instructions, a
//! limit on recursion and on output, and watched for time and memory (see [`run`]). That leaves what no thread survives,
//! such as a value that holds itself and is printed; [`ChatTemplate::isolated`] renders in another process.
//!
//! What the user types never becomes a control token: `<|im_end|>` in a message is text, not the end of
//! the turn. A message without such a text is encoded with the rest of the conversation, exactly as
//! llama.cpp does it; see [`protect`] for the others.

mod elsewhere;
mod json;
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
}

impl Role {
    /// The name that templates know: "system", "user" or "assistant".
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }

    fn from_name(name: &str) -> Option<Role> {
        let all = [Role::System, Role::User, Role::Assistant];
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
}

impl Message {
    /// What `role` says.
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        Message {
            role,
            content: content.into(),
        }
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
    /// A message has the text of a control token and the template takes the message apart.
    #[error(
        "a message contains the text of a control token, and the chat template changes messages in a way that does not allow to keep it apart; leave that text out"
    )]
    Unprotected,
    /// The rendered conversation cannot be encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The metadata value is not a text.
    #[error(transparent)]
    Gguf(#[from] GgufError),
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
    pub fn from_metadata(
        meta: &Metadata,
        tokenizer: &Tokenizer,
    ) -> Result<Option<ChatTemplate>, ChatError> {
        meta.get_str("tokenizer.chat_template")?
            .map(|source| ChatTemplate::new(source, tokenizer))
            .transpose()
    }

    /// A template from its text.
    ///
    /// # Errors
    /// The text is not a template.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<ChatTemplate, ChatError> {
        ChatTemplate::of(source, tokenizer, None)
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

    fn of(
        source: &str,
        tokenizer: &Tokenizer,
        elsewhere: Option<Arc<dyn Isolate>>,
    ) -> Result<ChatTemplate, ChatError> {
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
        let template = ChatTemplate {
            source: run::without_generation_tags(source),
            bos,
            eos,
            elsewhere,
        };
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
        if let Some(other) = &self.elsewhere {
            return elsewhere::render(&**other, self, messages, answer);
        }
        let size = messages.iter().map(|m| m.content.len()).sum();
        let messages: Vec<Value> = messages
            .iter()
            .map(|m| context! { role => m.role.name(), content => m.content.as_str() })
            .collect();
        run::render(
            &self.source,
            size,
            context! {
                messages,
                bos_token => self.bos.as_str(),
                eos_token => self.eos.as_str(),
                add_generation_prompt => answer,
            },
        )
    }

    /// The tokens of a conversation, with BOS in front if the model wants it.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`]; a message with the text of a control token that cannot be kept apart.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        answer: bool,
    ) -> Result<Vec<u32>, ChatError> {
        let plain = |m: &Message| -> Result<bool, ChatError> {
            let as_text = tokenizer.encode(&m.content, false, false)?;
            Ok(as_text == tokenizer.encode(&m.content, false, true)?)
        };
        let mut suspect = Vec::new();
        for (i, m) in messages.iter().enumerate() {
            if !plain(m)? {
                suspect.push(i);
            }
        }
        if !suspect.is_empty() {
            return protect::encode(self, tokenizer, messages, &suspect, answer);
        }
        let text = self.render(messages, answer)?;
        Ok(tokenizer.encode(self.without_bos(tokenizer, &text), true, true)?)
    }

    /// The rendered text without the BOS that encoding will add.
    fn without_bos<'a>(&self, tokenizer: &Tokenizer, text: &'a str) -> &'a str {
        if tokenizer.add_bos() && !self.bos.is_empty() {
            text.strip_prefix(&self.bos).unwrap_or(text)
        } else {
            text
        }
    }
}

#[cfg(test)]
mod tests;
