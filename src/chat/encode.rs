//! A conversation as tokens.

use super::error::ChatError;
use super::message::Message;
use super::options::RenderOptions;
use super::protect;
use super::template::{ChatTemplate, structure};
use crate::tokenizer::Tokenizer;

impl ChatTemplate {
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
        let plain = |text: &str| is_plain(tokenizer, text);
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
}

/// True if no part of a text is the text of a control token.
///
/// # Errors
/// The tokenizer refuses the text.
pub fn is_plain(tokenizer: &Tokenizer, text: &str) -> Result<bool, ChatError> {
    Ok(tokenizer.encode(text, false, false)? == tokenizer.encode(text, false, true)?)
}
