//! The grammars of requests, of which the latest are kept: many requests ask for the same.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::Value;
use trine::grammar::{GrammarError, Vocabulary};
use trine::{Grammar, Tokenizer};

/// Grammars that are kept.
const KEPT: usize = 64;

/// Required form of a text.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// A JSON object.
    Object,
    /// JSON that a schema describes.
    Schema(Value),
    /// Text that a grammar in llama.cpp's GBNF describes.
    Gbnf(String),
    /// Text that a grammar in llguidance's Lark describes.
    Lark(String),
}

/// The vocabulary of the model, and the latest grammars over it.
#[derive(Debug, Default)]
pub(super) struct Forms {
    vocabulary: OnceLock<Result<Vocabulary, GrammarError>>,
    /// The latest first.
    kept: Mutex<VecDeque<(Arc<Form>, Grammar)>>,
}

impl Forms {
    /// The grammar of `form`.
    ///
    /// # Errors
    /// It cannot be followed.
    pub fn grammar(&self, tokenizer: &Tokenizer, form: &Form) -> Result<Grammar, GrammarError> {
        if let Some(known) = self.known(form) {
            return Ok(known);
        }
        // The first request that needs it waits for it: looking through all tokens takes some hundred milliseconds.
        let vocabulary = self.vocabulary.get_or_init(|| Vocabulary::new(tokenizer));
        let vocabulary = vocabulary.as_ref().map_err(Clone::clone)?;
        let grammar = match form {
            Form::Object => Grammar::json_object(vocabulary),
            Form::Schema(schema) => Grammar::json_schema(vocabulary, schema),
            Form::Gbnf(source) => Grammar::gbnf(vocabulary, source),
            Form::Lark(source) => Grammar::lark(vocabulary, source),
        }?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front((Arc::new(form.clone()), grammar.clone()));
        kept.truncate(KEPT);
        Ok(grammar)
    }

    /// The grammar of a form that was asked for lately; it becomes the latest.
    fn known(&self, form: &Form) -> Option<Grammar> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| **known == *form)?;
        let (form, grammar) = kept.remove(at)?;
        kept.push_front((form, grammar.clone()));
        Some(grammar)
    }
}
