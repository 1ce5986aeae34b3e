//! Grammars in a build without the feature `grammar`: there are none, and no value has these types.

use super::error::GrammarError;

/// A form that texts may have.
#[derive(Clone, Debug)]
pub enum Grammar {}

/// Where a text is in its grammar.
#[derive(Clone, Debug)]
pub enum Matcher {}

/// The tokens that may come next in a text.
#[derive(Clone, Debug)]
pub enum Allowed {}

impl Grammar {
    /// The state before the first token of a text.
    pub fn matcher(&self) -> Matcher {
        match *self {}
    }
}

impl Matcher {
    /// The tokens that may come next.
    ///
    /// # Errors
    /// None.
    pub fn allowed(&mut self) -> Result<Allowed, GrammarError> {
        match *self {}
    }

    /// Remembers the next token of the text.
    ///
    /// # Errors
    /// None.
    pub fn accept(&mut self, _: u32) -> Result<(), GrammarError> {
        match *self {}
    }
}

impl Allowed {
    /// True if token `id` may come next.
    pub fn token(&self, _: u32) -> bool {
        match *self {}
    }

    /// True if the text may end.
    pub fn end(&self) -> bool {
        match *self {}
    }
}
