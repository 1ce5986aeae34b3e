//! Options of the caller.

use super::GenerateError;
use super::speculate::DraftSource;
use crate::cancel::CancelToken;
use crate::grammar::Grammar;
use crate::sample::{Sampler, SamplerOptions};

/// The beginning of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// A text. The texts of control tokens in it become these tokens, and BOS is put in front where the model wants it.
    Text(String),
    /// Token ids, taken as they are.
    Tokens(Vec<u32>),
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Prompt {
        Prompt::Text(text.to_owned())
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Prompt {
        Prompt::Text(text)
    }
}

impl From<Vec<u32>> for Prompt {
    fn from(tokens: Vec<u32>) -> Prompt {
        Prompt::Tokens(tokens)
    }
}

impl From<&[u32]> for Prompt {
    fn from(tokens: &[u32]) -> Prompt {
        Prompt::Tokens(tokens.to_vec())
    }
}

/// Size of a context, and of the chunks in which it takes a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextOptions {
    /// Tokens the context may hold; `None`: as many as the model was trained with.
    pub n_ctx: Option<usize>,
    /// Tokens of a prompt that are evaluated between two looks at the cancel token.
    pub n_batch: usize,
    /// Tokens that go through the model together: more are faster and take more memory.
    pub n_ubatch: usize,
}

impl Default for ContextOptions {
    fn default() -> ContextOptions {
        ContextOptions { n_ctx: None, n_batch: 2048, n_ubatch: 512 }
    }
}

/// How a text is continued. The default samples as llama.cpp does, from a fixed seed, until the model ends the text or
/// the context is full.
///
/// ```
/// use trine::{GenerateOptions, SamplerOptions};
///
/// let options = GenerateOptions {
///     max_tokens: Some(100),
///     sampler: SamplerOptions { seed: 7, temp: 0.6, ..SamplerOptions::default() },
///     stop: vec!["\n\n".to_owned()],
///     ..GenerateOptions::default()
/// };
/// let last = options.cancel.clone();   // last.cancel() ends the text, from any thread
/// # drop(last);
/// ```
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions {
    /// Most tokens to generate.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen, and the seed.
    pub sampler: SamplerOptions,
    /// The form that the text must have; `None`: any.
    pub grammar: Option<Grammar>,
    /// Texts that end the generation; neither they nor what follows is part of the text.
    pub stop: Vec<String>,
    /// Control tokens whose names belong to the text, where others have none: marks that a caller looks for.
    pub shown: Vec<u32>,
    /// Never choose a token that ends the text.
    pub ignore_eos: bool,
    /// Go on when the model ended the text.
    pub past_eos: bool,
    /// Go on when the context is full: the first of so many tokens stay, half of the others are forgotten, those at the
    /// front, and what is left is evaluated again in its new place. `None`: the text ends.
    pub shift: Option<usize>,
    /// Tokens at the beginning of the prompt that the sampler is not told of: it penalizes nothing for them.
    pub unheard: usize,
    /// Number of the most likely tokens that are told with every token, besides the token's own probability; `None`: no
    /// probabilities are told.
    pub logprobs: Option<usize>,
    /// Tell the probabilities that tokens are sampled with, behind the sampler's chain, instead of the model's.
    pub odds: bool,
    /// Bits per weight at which an any-precision model runs from now on; `None` leaves it as it is, the widest in a new
    /// context. What was evaluated at another width stays in the context: keys and values are of one form.
    pub bits: Option<u8>,
    /// Draft tokens and verify them together. Changes no text.
    pub draft: Option<DraftOptions>,
    /// Ends the text where another thread wants it to.
    pub cancel: CancelToken,
}

impl GenerateOptions {
    /// Finds options that no generation can follow.
    pub(super) fn check(&self) -> Result<(), GenerateError> {
        if let Some(index) = self.stop.iter().position(String::is_empty) {
            return Err(GenerateError::EmptyStop { index });
        }
        Sampler::new(self.sampler.clone()).map_err(GenerateError::Sampler)?;
        Ok(())
    }

    /// Always the most likely token, at most `max_tokens` of them.
    pub fn greedy(max_tokens: usize) -> GenerateOptions {
        GenerateOptions {
            max_tokens: Some(max_tokens),
            sampler: SamplerOptions::greedy(),
            ..GenerateOptions::default()
        }
    }
}

/// How tokens are drafted.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftOptions {
    /// Where drafts come from.
    pub source: DraftSource,
    /// Most tokens of a draft; how many within that depends on how many were right.
    pub most: usize,
    /// Draft even where it was measured not to make the text faster.
    pub always: bool,
}

impl DraftOptions {
    /// Drafts of up to 16 tokens, where they pay.
    pub fn of(source: DraftSource) -> DraftOptions {
        DraftOptions { source, most: 16, always: false }
    }
}
