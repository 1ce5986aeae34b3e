//! The grammars of requests, of which the latest are kept: many requests ask for the same.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::Value;
use sha2::{Digest, Sha256};
use trine::grammar::{GrammarError, Vocabulary};
use trine::isolate::Isolate;
use trine::{Grammar, Tokenizer};

/// Most grammars that are cached, and errors of formats without one.
const KEPT: usize = 64;
const KEPT_ERRORS: usize = 1024;

/// Format that the text of a response must have.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseFormat {
    /// A JSON object.
    Object,
    /// JSON that a schema describes.
    Schema(Value),
    /// Text that a grammar in llama.cpp's GBNF describes.
    Gbnf(String),
    /// Text that a grammar in llguidance's Lark describes.
    Lark(String),
    /// The same with control tokens whose names are texts, the same ones for a model.
    Marked(String, Vec<u32>),
}

impl ResponseFormat {
    /// Returns a hash that no other format has.
    fn hash(&self) -> Hash {
        let (kind, source) = match self {
            ResponseFormat::Object => (0, String::new()),
            ResponseFormat::Schema(schema) => (1, schema.to_string()),
            ResponseFormat::Gbnf(source) => (2, source.clone()),
            ResponseFormat::Lark(source) => (3, source.clone()),
            ResponseFormat::Marked(source, _) => (4, source.clone()),
        };
        Sha256::new().chain_update([kind]).chain_update(source).finalize().into()
    }
}

type Hash = [u8; 32];

/// The vocabulary of the model, and the latest grammars over it.
#[derive(Debug)]
pub(super) struct Forms {
    isolate: Arc<dyn Isolate>,
    vocabulary: OnceLock<Result<Vocabulary, GrammarError>>,
    /// The vocabulary with marks.
    marked: OnceLock<Result<Vocabulary, GrammarError>>,
    kept: Mutex<Kept>,
}

/// Formats that were seen, by their hashes, the latest first.
#[derive(Debug, Default)]
struct Kept {
    grammars: VecDeque<(Hash, Grammar)>,
    errors: VecDeque<(Hash, GrammarError)>,
}

impl Forms {
    /// Nothing is known yet. `isolate` compiles every grammar first: it may take too much.
    pub fn new(isolate: Arc<dyn Isolate>) -> Forms {
        Forms { isolate, vocabulary: OnceLock::new(), marked: OnceLock::new(), kept: Mutex::default() }
    }

    /// Returns the grammar of a format that was asked for lately, or why there is none; it becomes the latest.
    pub fn known(&self, form: &ResponseFormat) -> Option<Result<Grammar, GrammarError>> {
        let hash = form.hash();
        let mut kept = self.lock();
        latest(&mut kept.grammars, &hash).map(Ok).or_else(|| latest(&mut kept.errors, &hash).map(Err))
    }

    /// Compiles the grammar of `format`, which is known then.
    pub fn compile(&self, tokenizer: &Tokenizer, form: &ResponseFormat) {
        let grammar = self.grammar(tokenizer, form);
        let mut kept = self.lock();
        match grammar {
            Ok(grammar) => {
                kept.grammars.push_front((form.hash(), grammar));
                kept.grammars.truncate(KEPT);
            }
            Err(error) => {
                kept.errors.push_front((form.hash(), error));
                kept.errors.truncate(KEPT_ERRORS);
            }
        }
    }

    fn grammar(&self, tokenizer: &Tokenizer, form: &ResponseFormat) -> Result<Grammar, GrammarError> {
        // The first request that needs it waits for it: looking through all tokens takes some hundred milliseconds.
        let (place, shown) = match form {
            ResponseFormat::Marked(_, shown) => (&self.marked, &shown[..]),
            _ => (&self.vocabulary, &[][..]),
        };
        let vocabulary = || Ok(Vocabulary::with_shown(tokenizer, shown)?.isolated(self.isolate.clone()));
        let vocabulary = place.get_or_init(vocabulary).as_ref().map_err(Clone::clone)?;
        match form {
            ResponseFormat::Object => Grammar::json_object(vocabulary),
            ResponseFormat::Schema(schema) => Grammar::json_schema(vocabulary, schema),
            ResponseFormat::Gbnf(source) => Grammar::gbnf(vocabulary, source),
            ResponseFormat::Lark(source) | ResponseFormat::Marked(source, _) => Grammar::lark(vocabulary, source),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what is kept under `hash`, which becomes the latest.
fn latest<T: Clone>(kept: &mut VecDeque<(Hash, T)>, hash: &Hash) -> Option<T> {
    let at = kept.iter().position(|(known, _)| known == hash)?;
    let (hash, value) = kept.remove(at)?;
    kept.push_front((hash, value.clone()));
    Some(value)
}
