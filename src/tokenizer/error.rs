//! Errors in a tokenizer's metadata, or in a text for it.

use trine_formats::gguf::GgufError;

/// Why a tokenizer cannot be built or a text cannot be encoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A value of the wrong type.
    #[error(transparent)]
    Metadata(#[from] GgufError),
    /// A key that this kind of tokenizer needs.
    #[error("key '{key}' is missing: the file holds no usable tokenizer")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// `tokenizer.ggml.model` names an algorithm that is not built in.
    #[error(
        "key 'tokenizer.ggml.model': tokenizer '{model}' is not supported (supported: bert, gemma4, gpt2, llama, plamo2, rwkv, t5, test)"
    )]
    UnknownModel {
        /// The name in the file.
        model: String,
    },
    /// The algorithm is left out of this build.
    #[error("key 'tokenizer.ggml.model': byte pair encoding is left out of this build (feature 'tokenizers')")]
    LeftOut,
    /// `tokenizer.ggml.pre` is not in the table of pre-tokenizers.
    #[error(
        "key 'tokenizer.ggml.pre': unknown pre-tokenizer '{pre}'; encoding with another one would give wrong tokens"
    )]
    UnknownPre {
        /// The name in the file.
        pre: String,
    },
    /// An array too short for the vocabulary.
    #[error("key '{key}' has {found} entries for {expected} tokens")]
    Length {
        /// The key.
        key: &'static str,
        /// Entries in the file.
        found: usize,
        /// Tokens in the vocabulary.
        expected: usize,
    },
    /// An unusable array entry.
    #[error("key '{key}', entry {index}: {what}")]
    Entry {
        /// The key.
        key: &'static str,
        /// Position in the array.
        index: usize,
        /// The problem.
        what: String,
    },
    /// A token id that is no token.
    #[error("key '{key}': token id {id} is outside the vocabulary of {n_vocab} tokens")]
    Id {
        /// The key.
        key: &'static str,
        /// The id in the file.
        id: u32,
        /// Tokens in the vocabulary.
        n_vocab: usize,
    },
    /// A damaged normalization table.
    #[error("key 'tokenizer.ggml.precompiled_charsmap': {what}")]
    Charsmap {
        /// The problem.
        what: &'static str,
    },
    /// The BPE model refused vocabulary or merges.
    #[error("key 'tokenizer.ggml.merges': {0}")]
    Bpe(String),
    /// The model runs on token ids alone.
    #[error("{why}; the model runs on token ids, not on texts")]
    IdsOnly {
        /// The problem of its tokenizer.
        why: String,
    },
    /// A token that encoding needs is not in the vocabulary.
    #[error("the vocabulary has no {what}, which this text needs")]
    NoToken {
        /// The token.
        what: String,
    },
}

impl TokenizerError {
    /// True if there is no tokenizer, or none that is known, rather than a damaged one: the model can run on token ids.
    pub fn leaves_ids(&self) -> bool {
        matches!(
            self,
            TokenizerError::Missing { .. }
                | TokenizerError::UnknownModel { .. }
                | TokenizerError::UnknownPre { .. }
                | TokenizerError::LeftOut
        )
    }
}
