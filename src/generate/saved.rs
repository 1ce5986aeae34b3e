//! The state of a context as a file from which another run continues.

use std::io::{self, Read, Write};

use super::Context;
use crate::kv::Mark;
use crate::step::{Room, SavedError, read_saved, write_saved};

impl Context {
    /// Writes what was evaluated for [`Context::load`]. `tokens` are those in the context, and after them those that
    /// are known and not evaluated yet. `kind`, lines of text, says what the result depends on beside the tokens: the
    /// hashes of files, the bits.
    ///
    /// # Errors
    /// Errors of `out`.
    ///
    /// # Panics
    /// When `tokens` do not begin with those in the context.
    pub fn save(&self, kind: &str, tokens: &[u32], out: &mut dyn Write) -> io::Result<()> {
        assert!(tokens.starts_with(&self.tokens), "tokens of this context");
        let before = self.drafts().and_then(|(_, speculator)| speculator.unsettled());
        let evaluated = before.map_or(self.tokens.len(), Mark::len);
        write_saved(&self.kind(kind), tokens, &self.session.part(evaluated, before), out)
    }

    /// Says whether this context can be written to a file.
    ///
    /// # Errors
    /// It cannot, and why.
    pub fn is_saved(&self) -> io::Result<()> {
        self.session.pages().are_saved()
    }

    /// Forgets everything and takes over what [`Context::save`] wrote; the tokens it was given.
    ///
    /// # Errors
    /// A file of another form or kind, too many tokens, damage. The context is empty then.
    pub fn load(&mut self, kind: &str, from: &mut dyn Read) -> Result<Vec<u32>, SavedError> {
        self.clear();
        // a GPU that takes some of it has to be there
        self.session.prepare().map_err(io::Error::other)?;
        let room = Room {
            kind: &self.kind(kind),
            n_ctx: self.n_ctx(),
            n_vocab: self.model().tokenizer().n_vocab(),
            pages: self.session.pages(),
        };
        let (tokens, sequence) = read_saved(&room, &mut |_| {}, from)?;
        self.tokens.extend_from_slice(&tokens[..sequence.len()]);
        self.session.replace(sequence);
        Ok(tokens)
    }

    /// The caller's kind, and what keys and values look like here.
    fn kind(&self, kind: &str) -> String {
        format!("{kind}\n{}", self.session.form())
    }
}
