//! Text to tokens, within the context of a request.

use trine::Tokenizer;

use crate::error::ApiError;

/// Text to tokens, within the context of a request.
#[derive(Clone, Copy)]
pub struct Encoder<'a> {
    /// The model's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Tokens of a context.
    pub n_ctx: usize,
    /// Most bytes that a token stands for; `None` where the tokenizer may leave something out.
    pub longest: Option<usize>,
    /// True if what is too long is cut instead of refused.
    pub cut: bool,
}

impl Encoder<'_> {
    /// The tokens of `text`; with `first` it is the beginning of a prompt.
    ///
    /// # Errors
    /// The text cannot have so few tokens that they fit the context, which is found without looking for them.
    pub fn encode(&self, text: &str, first: bool) -> Result<Vec<u32>, ApiError> {
        let fewest = self.fewest(text.len());
        let text = match self.longest.filter(|_| fewest > self.n_ctx) {
            None => text,
            Some(most) if self.cut => beginning(text, most.saturating_mul(self.n_ctx)),
            Some(_) => return Err(ApiError::too_long(fewest, self.n_ctx)),
        };
        let tokens = self.tokenizer.encode(text, first, true);
        let mut tokens = tokens.map_err(|e| ApiError::invalid(e.to_string()))?;
        if self.cut {
            tokens.truncate(self.n_ctx);
        }
        Ok(tokens)
    }

    /// Checks that a text of `bytes` bytes may fit the context, without looking for its tokens.
    ///
    /// # Errors
    /// The text cannot fit.
    pub fn check(&self, bytes: usize) -> Result<(), ApiError> {
        match self.fewest(bytes) {
            fewest if fewest > self.n_ctx => Err(ApiError::too_long(fewest, self.n_ctx)),
            _ => Ok(()),
        }
    }

    /// The fewest tokens that a text of `bytes` bytes may have.
    fn fewest(&self, bytes: usize) -> usize {
        self.longest.map_or(0, |most| bytes.div_ceil(most.max(1)))
    }
}

/// The beginning of a text that has at most `most` bytes and ends with a whole character.
fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Bytes of the longest token, where a text cannot have fewer tokens than its bytes divided by that.
pub fn longest_token(tokenizer: &Tokenizer, normalizes: bool) -> Option<usize> {
    let ids = 0..tokenizer.n_vocab() as u32;
    let longest = ids.map(|id| tokenizer.token_text(id).len()).max();
    longest.filter(|_| !normalizes)
}
