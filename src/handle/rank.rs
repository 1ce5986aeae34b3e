//! How well texts answer a question.

use super::Model;
use super::embed::{EmbedError, EmbedOptions};
use crate::step::{Pooling, Scale};
use crate::tokenizer::{Tokenizer, TokenizerError};

/// The key of the prompt that a ranking model was trained with.
const TEMPLATE: &str = "tokenizer.chat_template.rerank";
/// Places in it.
const QUERY: &str = "{query}";
const DOCUMENT: &str = "{document}";

/// The prompt of models that answer yes or no, where the file has none: that of Qwen 3's rerankers.
const YES_OR_NO: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

/// Options of ranking texts.
#[derive(Clone, Debug, Default)]
pub struct RankOptions {
    /// Bits per weight of an any-precision model; `None` for the widest.
    pub bits: Option<u8>,
    /// Most tokens of a question with a text; `None`: as many as the model was trained with.
    pub n_ctx: Option<usize>,
}

/// Why texts are not ranked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// The model was not made for it.
    #[error("the model does not rank texts: it has no head for that; use a reranker such as BGE's, Jina's or Qwen 3's")]
    NoHead,
    /// The tokens of a prompt cannot be had.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The prompt in the file lacks a place.
    #[error("key '{TEMPLATE}': has no place for {0}")]
    Template(&'static str),
    /// The prompt of the only document cannot be evaluated.
    #[error(transparent)]
    Embed(#[from] EmbedError),
    /// That of one of several cannot.
    #[error("document {index}: {error}")]
    Document {
        /// Which document, from 0.
        index: usize,
        /// Why.
        error: EmbedError,
    },
}

impl Model {
    /// The tokens by which the model judges how well `document` answers `query`: the prompt that its file has for it, or
    /// that of Qwen 3's rerankers for models that answer yes or no, or both texts between the tokens that the model's
    /// tokenizer has for that. Texts of control tokens in them stay texts.
    ///
    /// # Errors
    /// The model does not rank texts; its tokenizer lacks a token.
    pub fn rank_prompt(&self, query: &str, document: &str) -> Result<Vec<u32>, RankError> {
        if !self.weights().ranks() {
            return Err(RankError::NoHead);
        }
        let tokenizer = self.tokenizer();
        let stated = self.metadata().get_str(TEMPLATE).ok().flatten();
        match stated.or(self.weights().config().arch.yes_or_no.then_some(YES_OR_NO)) {
            Some(template) => from_template(tokenizer, template, query, document),
            None => Ok(tokenizer.encode_pair(query, document)?),
        }
    }

    /// How well each of `documents` answers `query`, the higher the better; the numbers are comparable among the
    /// documents of one query. Those of models that answer yes or no are the probability of yes. They have the bits of
    /// llama.cpp's.
    ///
    /// # Errors
    /// The model does not rank texts; a document does not fit with the query.
    pub fn rank(
        &self,
        query: &str,
        documents: &[impl AsRef<str>],
        options: &RankOptions,
    ) -> Result<Vec<f32>, RankError> {
        let of_rank =
            EmbedOptions { pooling: Some(Pooling::Rank), scale: Scale::None, bits: options.bits, n_ctx: options.n_ctx };
        let several = documents.len() > 1;
        let ranks = documents.iter().enumerate().map(|(index, document)| {
            let prompt = self.rank_prompt(query, document.as_ref())?;
            let outputs = self.embed(&prompt, &of_rank);
            let outputs = outputs.map_err(|error| match several {
                true => RankError::Document { index, error },
                false => RankError::Embed(error),
            })?;
            Ok(outputs.first().copied().unwrap_or_default())
        });
        ranks.collect()
    }
}

/// The tokens of a template with both texts in their places.
fn from_template(tokenizer: &Tokenizer, template: &str, query: &str, document: &str) -> Result<Vec<u32>, RankError> {
    for place in [QUERY, DOCUMENT] {
        if !template.contains(place) {
            return Err(RankError::Template(place));
        }
    }
    // Both are put into their places at once: a query may contain the name of a place.
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((at, place)) = [QUERY, DOCUMENT].iter().filter_map(|p| Some((rest.find(p)?, *p))).min() {
        parts.push((&rest[..at], true));
        parts.push((if place == QUERY { query } else { document }, false));
        rest = &rest[at + place.len()..];
    }
    parts.push((rest, true));
    Ok(tokenizer.encode_parts(&parts)?)
}
