//! A loaded model with what options of texts need of it.

use std::ops::Deref;
use std::sync::OnceLock;

use pyo3::PyResult;
use trine::grammar::Vocabulary;

use crate::error::failed;

/// The library's model, and its vocabulary.
pub struct Loaded {
    library: trine::Model,
    /// The vocabulary as grammars need it, made for the first of them.
    vocabulary: OnceLock<Vocabulary>,
}

impl Loaded {
    /// Wraps a model.
    pub fn new(library: trine::Model) -> Loaded {
        Loaded { library, vocabulary: OnceLock::new() }
    }

    /// The vocabulary for grammars.
    ///
    /// # Errors
    /// A vocabulary that grammars cannot be followed in.
    pub fn vocabulary(&self) -> PyResult<&Vocabulary> {
        if let Some(made) = self.vocabulary.get() {
            return Ok(made);
        }
        let made = Vocabulary::new(self.library.tokenizer()).map_err(failed)?;
        Ok(self.vocabulary.get_or_init(|| made))
    }
}

impl Deref for Loaded {
    type Target = trine::Model;

    fn deref(&self) -> &trine::Model {
        &self.library
    }
}
