//! Grammars by the crate `llguidance`.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{Matcher as Parser, ParserFactory};
use serde_json::{Value, json};

use super::error::GrammarError;
use super::gbnf;
use super::schema::{check_size, spaced};
use super::trial;
use crate::isolate::Isolate;
use crate::tokenizer::Tokenizer;

/// Most states of the lexer, each of some KiB.
const MAX_STATES: usize = 50_000;
/// Stack for compiling: a source nests as deeply as its length lets it.
const STACK: usize = 256 << 20;
/// Longest message of an error, in characters.
const MAX_MESSAGE: usize = 200;

/// The vocabulary of a model in the order that grammars look through it. Made once for a model; clones share it.
#[derive(Clone)]
pub struct Vocabulary {
    factory: Arc<ParserFactory>,
    /// Compiles grammars before this process does.
    elsewhere: Option<Arc<dyn Isolate>>,
    /// Tokens of the model. The id behind the last one stands for the end of a text, whatever tokens end it.
    n_vocab: usize,
}

/// The crate's view of a tokenizer.
struct Words(TokTrie);

impl TokenizerEnv for Words {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.0.greedy_tokenize(bytes)
    }

    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

impl Vocabulary {
    /// The vocabulary of `tokenizer`. Tokens without a text, such as control tokens, are in no grammar.
    ///
    /// # Errors
    /// A vocabulary that the crate cannot hold.
    pub fn new(tokenizer: &Tokenizer) -> Result<Vocabulary, GrammarError> {
        Vocabulary::with_shown(tokenizer, &[])
    }

    /// The same where the names of the control tokens `shown` are their texts.
    ///
    /// # Errors
    /// As [`Vocabulary::new`].
    pub fn with_shown(tokenizer: &Tokenizer, shown: &[u32]) -> Result<Vocabulary, GrammarError> {
        let ids = 0..tokenizer.n_vocab() as u32;
        Vocabulary::of(ids.map(|id| tokenizer.piece(id, shown.contains(&id))).collect())
    }

    /// Returns the vocabulary of `words`, by their ids.
    ///
    /// # Errors
    /// As [`Vocabulary::new`].
    fn of(mut words: Vec<Vec<u8>>) -> Result<Vocabulary, GrammarError> {
        let n_vocab = words.len();
        words.push(Vec::new());
        let info = TokRxInfo::new(words.len() as u32, n_vocab as u32);
        let words: TokEnv = Arc::new(Words(TokTrie::from(&info, &words)));
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let factory = ParserFactory::new(&words, InferenceCapabilities::default(), &slices);
        let mut factory = factory.map_err(|e| GrammarError::Refused(line(&e)))?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.max_lexer_states = MAX_STATES;
        limits.verbose_errors = false;
        Ok(Vocabulary { factory: Arc::new(factory), elsewhere: None, n_vocab })
    }

    /// Returns the same vocabulary, over which every grammar is compiled by `other` first: one that takes too much is
    /// refused, whoever wrote it.
    pub fn isolated(self, other: Arc<dyn Isolate>) -> Vocabulary {
        Vocabulary { elsewhere: Some(other), ..self }
    }

    /// Compiles a grammar whose source was `text`.
    fn compile(&self, source: TopLevelGrammar, text: Arc<str>) -> Result<Grammar, GrammarError> {
        if let Some(other) = &self.elsewhere {
            trial::check(&**other, &source)?;
        }
        let factory = self.factory.clone();
        let thread = thread::Builder::new()
            .name("grammar".to_owned())
            .stack_size(STACK)
            .spawn(move || factory.create_parser(source).map(|p| Parser::new(Ok(p))));
        let broken = |what: &str| GrammarError::Refused(what.to_owned());
        let compiled = thread.map_err(|_| broken("no thread can be started"))?;
        let compiled = compiled.join().map_err(|_| broken("it is too deep"))?;
        let first = compiled.map_err(|e| GrammarError::Refused(line(&e)))?;
        match first.get_error() {
            Some(why) => Err(GrammarError::Refused(short(&why))),
            None => Ok(Grammar { first: Arc::new(Mutex::new(first)), source: text, n_vocab: self.n_vocab }),
        }
    }
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vocabulary of {} tokens", self.n_vocab)
    }
}

/// A form that texts may have. Clones share it.
#[derive(Clone)]
pub struct Grammar {
    /// The state before the first token. It is only ever copied.
    first: Arc<Mutex<Parser>>,
    source: Arc<str>,
    n_vocab: usize,
}

impl Grammar {
    /// JSON that a schema describes (a large part of draft 2020-12). Between its parts stands at most one space, where
    /// writers put one: a model that may put more puts them without end. As in llama.cpp, a schema with rules for
    /// objects, arrays or strings, and no `type`, is of that type.
    ///
    /// # Errors
    /// The schema has keywords that cannot be enforced, or takes too much.
    pub fn json_schema(vocabulary: &Vocabulary, schema: &Value) -> Result<Grammar, GrammarError> {
        let source = TopLevelGrammar::from_json_schema(spaced(schema)?);
        vocabulary.compile(source, schema.to_string().into())
    }

    /// Any JSON object.
    ///
    /// # Errors
    /// As [`Grammar::json_schema`].
    pub fn json_object(vocabulary: &Vocabulary) -> Result<Grammar, GrammarError> {
        Grammar::json_schema(vocabulary, &json!({"type": "object"}))
    }

    /// llama.cpp's GBNF.
    ///
    /// Rules that do not contain themselves are matched as regular expressions, the longest match first; what a grammar
    /// allows only where a shorter match of such a rule is followed by another rule is not found.
    ///
    /// # Errors
    /// The line that is not well formed; the grammar takes too much.
    pub fn gbnf(vocabulary: &Vocabulary, source: &str) -> Result<Grammar, GrammarError> {
        check_size(source.len())?;
        vocabulary.compile(TopLevelGrammar::from_lark(gbnf::to_lark(source)?), source.into())
    }

    /// The Lark dialect of `llguidance`, which may hold JSON schemas (see [`Grammar::inline`]).
    ///
    /// # Errors
    /// The grammar is not well formed, or takes too much.
    pub fn lark(vocabulary: &Vocabulary, source: &str) -> Result<Grammar, GrammarError> {
        vocabulary.compile(TopLevelGrammar::from_lark(source.to_owned()), source.into())
    }

    /// A JSON schema as a part of a Lark rule.
    ///
    /// # Errors
    /// The schema is too long.
    pub fn inline(schema: &Value) -> Result<String, GrammarError> {
        Ok(format!("%json {}", spaced(schema)?))
    }

    /// Its source, as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The state before the first token of a text.
    pub fn matcher(&self) -> Matcher {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        Matcher { parser: first.deep_clone(), n_vocab: self.n_vocab }
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grammar over {} tokens", self.n_vocab)
    }
}

/// Where a text is in its grammar.
pub struct Matcher {
    parser: Parser,
    n_vocab: usize,
}

impl Clone for Matcher {
    fn clone(&self) -> Matcher {
        Matcher {
            // Not what the crate's own `clone` does: its copies share the states that their lexers found.
            parser: self.parser.deep_clone(),
            n_vocab: self.n_vocab,
        }
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matcher over {} tokens", self.n_vocab)
    }
}

impl Matcher {
    /// The tokens that may come next.
    ///
    /// # Errors
    /// Finding out takes too much.
    pub fn allowed(&mut self) -> Result<Allowed, GrammarError> {
        let tokens = self.parser.compute_mask_or_eos();
        let tokens = tokens.map_err(|e| GrammarError::Stopped(line(&e)))?;
        Ok(Allowed { tokens, n_vocab: self.n_vocab })
    }

    /// The next token of the text is `id`.
    ///
    /// # Errors
    /// The grammar does not allow it.
    pub fn accept(&mut self, id: u32) -> Result<(), GrammarError> {
        let accepted = self.parser.consume_token(id);
        accepted.map_err(|e| GrammarError::Stopped(line(&e)))
    }
}

/// The tokens that may come next in a text.
#[derive(Clone, Debug)]
pub struct Allowed {
    tokens: SimpleVob,
    n_vocab: usize,
}

impl Allowed {
    /// True if token `id` may come next.
    pub fn token(&self, id: u32) -> bool {
        (id as usize) < self.n_vocab && self.tokens.is_allowed(id)
    }

    /// True if the text may end.
    pub fn end(&self) -> bool {
        self.tokens.is_allowed(self.n_vocab as u32)
    }
}

/// Answers a request of [`Job::Grammar`](crate::isolate::Job::Grammar), in the process that may fail: nothing, or why there is no such grammar.
pub fn answer(request: &[u8]) -> Vec<u8> {
    let tried = || -> Result<(), GrammarError> {
        let source = serde_json::from_slice(request).map_err(|e| GrammarError::Refused(line(&e)))?;
        // What a vocabulary adds is limited by numbers of steps.
        let words = (0..=u8::MAX).map(|byte| vec![byte]).collect();
        Vocabulary::of(words)?.compile(source, Arc::from("")).map(drop)
    };
    match tried() {
        Ok(()) => Vec::new(),
        Err(GrammarError::Refused(why)) => why.into_bytes(),
        Err(other) => other.to_string().into_bytes(),
    }
}

/// An error of the crate in one line.
fn line(error: &impl fmt::Display) -> String {
    short(&error.to_string())
}

fn short(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    line.chars().take(MAX_MESSAGE).collect()
}
