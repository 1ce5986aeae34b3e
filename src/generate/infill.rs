//! Texts with a gap for the model to fill, as editors ask for them: the prompt of llama-server's `/infill`.

use crate::Tokenizer;
use crate::tokenizer::{FillIn, TokenizerError};

/// A text with a gap, and others that help to fill it.
#[derive(Clone, Debug, Default)]
pub struct Infill<'a> {
    /// The text in front of the gap.
    pub prefix: &'a str,
    /// The text behind it.
    pub suffix: &'a str,
    /// The beginning of the gap's text, which is given.
    pub begun: &'a str,
    /// Names and texts of other files, or of other parts of this one.
    pub extra: Vec<(&'a str, &'a str)>,
}

/// Between the texts of other files, for models without a token for it; so in llama.cpp.
const SNIPPET: &str = "\n\n--- snippet ---\n\n";

impl Infill<'_> {
    /// The tokens of the prompt: the last `room` of those of the other files, at most `batch / 4 * 3` of the text in front
    /// of the gap and about `batch / 4` of that behind it; both are cut where they are farthest from the gap.
    ///
    /// # Errors
    /// A text that cannot be encoded.
    pub fn tokens(
        &self,
        tokenizer: &Tokenizer,
        marks: FillIn,
        batch: usize,
        room: usize,
    ) -> Result<Vec<u32>, TokenizerError> {
        let encode = |text: &str| tokenizer.encode(text, false, false);
        let begun = tokenizer.encode(self.begun, false, true)?;
        let prefix = encode(self.prefix)?;
        let prefix = &prefix[prefix.len().saturating_sub(batch / 4 * 3)..];
        let mut suffix = encode(self.suffix)?;
        suffix.truncate((batch / 4).saturating_sub(2 + begun.len()));
        let extra = self.extra_tokens(tokenizer, marks)?;
        let mut tokens = extra[extra.len().saturating_sub(room)..].to_vec();
        tokens.extend(tokenizer.text_bos());
        tokens.push(marks.prefix);
        tokens.extend_from_slice(prefix);
        tokens.extend(begun);
        tokens.push(marks.suffix);
        tokens.extend(suffix);
        tokens.push(marks.middle);
        Ok(tokens)
    }

    /// The other files, each behind its mark, and the mark of the file with the gap.
    fn extra_tokens(&self, tokenizer: &Tokenizer, marks: FillIn) -> Result<Vec<u32>, TokenizerError> {
        let mut out = Vec::new();
        let add = |out: &mut Vec<u32>, mark: Option<u32>, text: &str| -> Result<(), TokenizerError> {
            out.extend(mark);
            out.extend(tokenizer.encode(text, false, false)?);
            Ok(())
        };
        if marks.repository.is_some() {
            add(&mut out, marks.repository, "myproject\n")?;
        }
        for (name, text) in &self.extra {
            match marks.file {
                Some(_) => add(&mut out, marks.file, &format!("{name}\n"))?,
                None => add(&mut out, None, SNIPPET)?,
            }
            add(&mut out, None, text)?;
        }
        if marks.file.is_some() {
            add(&mut out, marks.file, "filename\n")?;
        }
        Ok(out)
    }
}
