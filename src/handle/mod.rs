//! A model that is ready for use: its weights, its tokenizer and the file they came from.

mod embed;
mod perplexity;
mod rank;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use trine_formats::gguf::{GgufError, Metadata, ModelFile};

#[cfg(feature = "chat")]
use crate::chat::{ChatError, ChatTemplate};
use crate::model::Weights;
use crate::pool::Pool;
use crate::sample::{DryBreakers, Vocabulary};
use crate::step::{Engine, Session, SessionOptions};
use crate::tokenizer::Tokenizer;

pub use embed::{EmbedError, EmbedOptions};
pub use rank::{RankError, RankOptions};

/// A language model, opened and loaded by [`open`](crate::open()). Cloning shares it, between threads too.
///
/// Its methods: [`generate`](Model::generate) continues a text and [`generate_many`](Model::generate_many) several at
/// once, `chat`, which the feature of that name adds, holds a conversation,
/// [`context`](Model::context) keeps evaluated tokens for the next prompt, [`session`](Model::session) returns the
/// logits themselves, [`embed`](Model::embed) turns a text into a vector, [`perplexity`](Model::perplexity) measures
/// how well a text is predicted.
#[derive(Clone)]
pub struct Model {
    inner: Arc<Inner>,
}

struct Inner {
    file: ModelFile,
    weights: Weights,
    tokenizer: Arc<Tokenizer>,
    pool: Pool,
    eog: Vec<u32>,
    suppressed: Vec<u32>,
}

impl Model {
    /// The model of `file`, whose parts were loaded and found to belong together.
    ///
    /// # Errors
    /// The list of tokens that are never to be generated is of the wrong type.
    pub(crate) fn new(file: ModelFile, weights: Weights, tokenizer: Tokenizer, pool: Pool) -> Result<Model, GgufError> {
        let suppressed = file.meta().get_u32s("tokenizer.ggml.suppress_tokens")?;
        let suppressed = suppressed.unwrap_or_default().into_owned();
        let ids = 0..tokenizer.n_vocab() as u32;
        let eog = ids.filter(|&id| tokenizer.is_eog(id)).collect();
        let inner = Inner { file, weights, tokenizer: Arc::new(tokenizer), pool, eog, suppressed };
        Ok(Model { inner: Arc::new(inner) })
    }

    /// True if `other` shares this model.
    pub(crate) fn is_same(&self, other: &Model) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Where the model was opened; of a split model the first file.
    pub fn path(&self) -> &Path {
        &self.inner.file.shards()[0].path
    }

    /// The file, or all files of a split model: metadata, tensors, their bytes.
    pub fn file(&self) -> &ModelFile {
        &self.inner.file
    }

    /// The metadata of the file.
    pub fn metadata(&self) -> &Metadata {
        self.inner.file.meta()
    }

    /// The loaded weights: configuration, layouts, the widths of an any-precision model.
    pub fn weights(&self) -> &Weights {
        &self.inner.weights
    }

    /// Text to tokens and back. It may outlive the model.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.inner.tokenizer
    }

    /// The chat template that the file carries; `None` where it has none, because the model was not made to chat.
    ///
    /// # Errors
    /// The template is not valid.
    #[cfg(feature = "chat")]
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, ChatError> {
        ChatTemplate::from_metadata(self.metadata(), self.tokenizer())
    }

    /// Threads of a forward pass.
    pub fn threads(&self) -> usize {
        self.inner.pool.threads()
    }

    /// True if the model ranks texts by a question: it has a head for that, or answers yes or no.
    pub fn ranks(&self) -> bool {
        self.inner.weights.ranks()
    }

    /// The length of context that the model was trained with, in tokens.
    pub fn n_ctx_train(&self) -> usize {
        self.inner.weights.config().n_ctx_train
    }

    /// The tokens that end a text, ascending: end of text, of turn, of message, and their like.
    pub fn end_tokens(&self) -> &[u32] {
        &self.inner.eog
    }

    /// The tokens that the file says are never to be generated.
    pub fn suppressed_tokens(&self) -> &[u32] {
        &self.inner.suppressed
    }

    /// The breakers at which [DRY](crate::DryOptions) ends repetitions, in tokens of this model;
    /// [`DryOptions::BREAKERS`](crate::DryOptions::BREAKERS) are the usual texts.
    pub fn dry_breakers(&self, texts: &[impl AsRef<[u8]>]) -> DryBreakers {
        DryBreakers::new(&Words(self.tokenizer()), texts)
    }

    /// An empty session: tokens in, logits out. This is the level below [`Model::context`], and the only place where
    /// the library makes a session of an opened model.
    pub fn session(&self, options: SessionOptions) -> Session {
        Session::new(&self.inner.weights, &self.inner.pool, options)
    }

    /// An engine for any number of sequences, which together hold at most `budget` bytes of keys and values: one pass
    /// over the weights for the next tokens of all of them.
    pub fn engine(&self, budget: usize) -> Engine {
        Engine::new(&self.inner.weights, &self.inner.pool, budget)
    }

    /// The threads of its forward passes.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }
}

/// A tokenizer as samplers see it.
struct Words<'a>(&'a Tokenizer);

impl Vocabulary for Words<'_> {
    fn n_tokens(&self) -> u32 {
        self.0.n_vocab() as u32
    }

    fn bytes(&self, id: u32) -> Vec<u8> {
        self.0.piece(id, true)
    }

    fn tokens(&self, text: &[u8]) -> Vec<u32> {
        let text = String::from_utf8_lossy(text);
        // A text of a few bytes cannot be too long for a tokenizer.
        self.0.encode(&text, false, false).unwrap_or_default()
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("path", &self.path())
            .field("tensors", &self.inner.file.n_tensors())
            .finish_non_exhaustive()
    }
}
