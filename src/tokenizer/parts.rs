//! Texts of several parts, in some of which the texts of control tokens are only text.

use super::{Tokenizer, TokenizerError};

impl Tokenizer {
    /// The tokens of parts one behind the other: those of [`Tokenizer::encode`] for all of them as one text where no
    /// part marked false has the text of a control token, and those of [`Tokenizer::encode_apart`] otherwise.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_parts(&self, parts: &[(&str, bool)]) -> Result<Vec<u32>, TokenizerError> {
        let plain = |text: &str| -> Result<bool, TokenizerError> {
            Ok(self.encode(text, false, false)? == self.encode(text, false, true)?)
        };
        let mut all_plain = true;
        for (text, _) in parts.iter().filter(|(_, special)| !special) {
            all_plain &= plain(text)?;
        }
        if all_plain {
            let all: String = parts.iter().map(|(text, _)| *text).collect();
            return self.encode(&all, false, true);
        }
        self.encode_apart(parts)
    }

    /// The tokens of parts one behind the other: the texts of control tokens become these tokens in parts marked true,
    /// and stay text in the others. What stands between two control tokens is encoded as one text. No BOS and no EOS is
    /// added.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_apart(&self, parts: &[(&str, bool)]) -> Result<Vec<u32>, TokenizerError> {
        let control = self.control_tokens();
        let (mut tokens, mut text) = (Vec::new(), String::new());
        for (part, special) in parts {
            let mut rest = *part;
            while let Some((at, id, length)) = first_control(&control, rest).filter(|_| *special) {
                text.push_str(&rest[..at]);
                tokens.append(&mut self.encode(&text, false, false)?);
                text.clear();
                tokens.push(id);
                rest = &rest[at + length..];
            }
            text.push_str(rest);
        }
        tokens.append(&mut self.encode(&text, false, false)?);
        Ok(tokens)
    }

    /// The tokens of two texts that a model compares: BOS, the first, EOS, the separator, the second and EOS, as far as
    /// the model expects each. Texts of control tokens stay text.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<Vec<u32>, TokenizerError> {
        let required = |id: Option<u32>, what: &str| super::required(id, what);
        let mut tokens = Vec::new();
        if self.add_bos {
            tokens.push(required(self.special.bos, "BOS")?);
        }
        tokens.append(&mut self.encode(first, false, false)?);
        let end = match self.add_eos {
            true => Some(required(self.special.eos.or(self.special.sep), "EOS")?),
            false => None,
        };
        tokens.extend(end);
        if self.add_sep {
            tokens.push(required(self.special.sep, "separator")?);
        }
        tokens.append(&mut self.encode(second, false, false)?);
        tokens.extend(end);
        Ok(tokens)
    }

    /// Texts of the tokens that a text becomes only when they are asked for, longest first.
    fn control_tokens(&self) -> Vec<(&str, u32)> {
        let mut texts: Vec<(&str, u32)> = self
            .controls()
            .filter_map(|id| Some((std::str::from_utf8(self.token_text(id)).ok()?, id)))
            .filter(|(text, _)| !text.is_empty())
            .collect();
        texts.sort_by_key(|(text, id)| (std::cmp::Reverse(text.len()), *id));
        texts
    }
}

/// The first control token in `text`, the longest there: where, which, how long.
fn first_control(control: &[(&str, u32)], text: &str) -> Option<(usize, u32, usize)> {
    let found = control.iter().filter_map(|(t, id)| Some((text.find(t)?, *id, t.len())));
    found.min_by_key(|&(at, _, length)| (at, std::cmp::Reverse(length)))
}
