//! The merges of byte pair encoding, by the crate `tokenizers`; a build without that feature has none.

use super::error::TokenizerError;

/// Tokens and the pairs of them that are merged, in the order of their ranks.
#[cfg(feature = "tokenizers")]
pub(super) struct Merges(tokenizers::models::bpe::BPE);

#[cfg(feature = "tokenizers")]
impl Merges {
    /// # Errors
    /// Merges of pieces that are no tokens.
    pub(super) fn new(
        tokens: impl Iterator<Item = (String, u32)>,
        pairs: Vec<(String, String)>,
    ) -> Result<Merges, TokenizerError> {
        let tokens: tokenizers::models::bpe::Vocab = tokens.collect();
        let model = tokenizers::models::bpe::BPE::builder().vocab_and_merges(tokens, pairs).build();
        Ok(Merges(model.map_err(|e| TokenizerError::Bpe(e.to_string()))?))
    }

    /// Appends the tokens of `run`, whose characters are all tokens.
    pub(super) fn encode(&self, run: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let tokens = tokenizers::Model::tokenize(&self.0, run).map_err(|e| TokenizerError::Bpe(e.to_string()))?;
        out.extend(tokens.iter().map(|t| t.id));
        Ok(())
    }
}

/// No value has this type.
#[cfg(not(feature = "tokenizers"))]
pub(super) enum Merges {}

#[cfg(not(feature = "tokenizers"))]
impl Merges {
    /// # Errors
    /// Always.
    pub(super) fn new(
        _: impl Iterator<Item = (String, u32)>,
        _: Vec<(String, String)>,
    ) -> Result<Merges, TokenizerError> {
        Err(TokenizerError::LeftOut)
    }

    pub(super) fn encode(&self, _: &str, _: &mut Vec<u32>) -> Result<(), TokenizerError> {
        match *self {}
    }
}
