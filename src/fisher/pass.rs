//! The gradients of a model, and which sequences it takes.

use super::loss;
use crate::exec::gradient::{Gradient, Gradients, Real};
use crate::model::{ModelError, Weights};

/// Why a sequence gives no gradient.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SequenceError {
    /// A sequence without a token to predict.
    #[error("a sequence of {0} tokens predicts nothing; it needs at least 2")]
    Short(usize),
    /// More tokens than the model has positions, or than its indexer chooses from.
    #[error("a sequence of {tokens} tokens is too long: the model's end at {most}")]
    Long {
        /// Its tokens.
        tokens: usize,
        /// Tokens of the longest sequence.
        most: usize,
    },
    /// A token that the model does not have.
    #[error("token {id} at index {index} is outside the vocabulary of {n_vocab}")]
    UnknownToken {
        /// The token.
        id: u32,
        /// Index of the token in the sequence.
        index: usize,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// The loss is infinite or no number.
    #[error("the loss is {0}: the model's weights are damaged or overflow")]
    NonFinite(f64),
}

/// The gradients of a model in some precision, and the sequences that it takes.
pub(crate) struct Pass<T> {
    /// The model, forwards and backwards.
    pub gradient: Gradient<T>,
    n_vocab: usize,
    /// Tokens of the longest sequence.
    most: usize,
}

impl<T: Real> Pass<T> {
    /// The gradients of `model`, whose weights have to be where the file has them.
    ///
    /// # Errors
    /// As [`Weights::gradient`].
    pub fn of(model: &Weights) -> Result<Pass<T>, ModelError> {
        let most = model.most_positions().into_iter().chain(model.most_chosen()).min();
        Ok(Pass { gradient: model.gradient()?, n_vocab: model.n_vocab(), most: most.unwrap_or(usize::MAX) })
    }

    /// Checks that the model has these tokens and as many positions.
    ///
    /// # Errors
    /// The first thing that it does not have.
    pub fn check(&self, tokens: &[u32]) -> Result<(), SequenceError> {
        let (n_vocab, most) = (self.n_vocab, self.most);
        match tokens.len() {
            short @ (0 | 1) => return Err(SequenceError::Short(short)),
            tokens if tokens > most => return Err(SequenceError::Long { tokens, most }),
            _ => {}
        }
        let mut ids = tokens.iter().enumerate();
        match ids.find(|(_, id)| **id as usize >= n_vocab) {
            Some((index, &id)) => Err(SequenceError::UnknownToken { id, index, n_vocab }),
            None => Ok(()),
        }
    }

    /// Folds the gradients of the loss of a text into `gradients`; the loss in nats per token.
    ///
    /// # Errors
    /// Tokens that the model does not have; a loss that is not finite. Nothing was folded then.
    pub fn add(&self, tokens: &[u32], gradients: &mut Gradients<T>) -> Result<f64, SequenceError> {
        self.check(tokens)?;
        loss::add(&self.gradient, tokens, gradients).map_err(SequenceError::NonFinite)
    }

    /// Folds the gradients of the divergence from `reference` into `gradients`; the divergence in nats.
    ///
    /// # Errors
    /// As [`Pass::add`].
    pub fn diverge(
        &self,
        reference: &Pass<T>,
        tokens: &[u32],
        gradients: &mut Gradients<T>,
    ) -> Result<f64, SequenceError> {
        self.check(tokens)?;
        loss::diverge(&self.gradient, &reference.gradient, tokens, gradients).map_err(SequenceError::NonFinite)
    }

    /// The divergence from `reference` in nats, which may be no number.
    ///
    /// # Errors
    /// Tokens that the model does not have.
    pub fn divergence(&self, reference: &Pass<T>, tokens: &[u32]) -> Result<f64, SequenceError> {
        self.check(tokens)?;
        Ok(loss::divergence(&self.gradient, &reference.gradient, tokens))
    }
}
