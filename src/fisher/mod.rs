//! Squared gradients of the language-model loss: which weights matter, by how the loss answers to them.
//!
//! For every matrix of the blocks, `s = sum over sequences of (d loss / d w)^2`, the diagonal of the
//! empirical Fisher information of whole sequences (SqueezeLLM, Any-Precision LLM). The loss of a
//! sequence is the mean cross-entropy of its tokens from the second on. It is the gradient of the
//! sequence that is squared, not that of each token.
//!
//! The pass is plain `f32` on the decoded weights: no quantized activations, no half-float cache. Its
//! order of summation is fixed: products as [`product`] says, reductions over a row in `f64` in order,
//! sequences in the order given. Neither threads nor the instruction set change a bit.

mod attention;
mod block;
mod load;
mod loss;
mod ops;
mod product;
mod real;
pub mod sample;

use trine_formats::gguf::{ModelFile, PackingOptions};

use crate::arch::rules::EmbeddingScale;
use crate::kernels::Isa;
use crate::model::{Config, ModelError};
use crate::ops::rope::Rope;
use block::{Gradients, Positions};
use load::Weights;
use loss::Head;
use real::Real;

pub use load::Target;

/// Why a sequence gives no gradient.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SequenceError {
    /// Nothing to predict.
    #[error("a sequence of {0} tokens predicts nothing; it needs at least 2")]
    Short(usize),
    /// A token that the model does not have.
    #[error("token {id} at index {index} is outside the vocabulary of {n_vocab}")]
    UnknownToken {
        /// The token.
        id: u32,
        /// Where in the sequence.
        index: usize,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// The loss is infinite or no number.
    #[error("the loss is {0}: the model's weights are damaged or overflow")]
    NonFinite(f64),
}

/// Bytes that the gradients of sequences of `seq_len` tokens take: weights, sums, and what is kept of one
/// sequence.
pub fn memory(c: &Config, seq_len: usize) -> u64 {
    let (d, heads, kv) = (c.n_embd, c.n_head * c.head_dim, c.n_head_kv * c.head_dim);
    let block = d * (heads + 2 * kv) + heads * d + 3 * d * c.n_ff;
    let weights = 2 * c.n_layer * block + 2 * c.n_vocab * d;
    let kept = c.n_layer * seq_len * (3 * d + 3 * heads + 3 * kv + 2 * c.n_ff);
    let working = seq_len * (4 * c.n_ff + 4 * d) + seq_len.min(64) * c.n_vocab;
    4 * (weights + kept + working) as u64
}

/// A model and the squared gradients of its matrices.
pub struct Fisher {
    pass: Pass<f32>,
    gradients: Gradients<f32>,
}

impl Fisher {
    /// Decodes the model of `file`; all sums are 0.
    ///
    /// # Errors
    /// Everything that is missing or cannot be used, at once.
    pub fn load(file: &ModelFile, packing: &PackingOptions, isa: Isa) -> Result<Fisher, ModelError> {
        let pass = Pass::load(file, packing, isa)?;
        let gradients = pass.gradients(|sum, g| sum + g * g);
        Ok(Fisher { pass, gradients })
    }

    /// Hyper-parameters of the model.
    pub fn config(&self) -> &Config {
        &self.pass.weights.config
    }

    /// The matrices, in the order of [`Fisher::sums`].
    pub fn targets(&self) -> &[Target] {
        &self.pass.weights.targets
    }

    /// Sums of squared gradients, `[rows][columns]` per matrix.
    pub fn sums(&self) -> &[Vec<f32>] {
        &self.gradients.sums
    }

    /// The same, to be set when an earlier run is continued.
    pub fn sums_mut(&mut self) -> &mut [Vec<f32>] {
        &mut self.gradients.sums
    }

    /// Adds the squared gradients of one sequence; its loss in nats per token.
    ///
    /// Runs in the current rayon pool.
    ///
    /// # Errors
    /// Tokens the model does not have; a loss that is not finite. Nothing was added then.
    pub fn add(&mut self, tokens: &[u32]) -> Result<f64, SequenceError> {
        self.pass.add(tokens, &mut self.gradients)
    }

    /// A matrix whose sums are not all finite.
    pub fn overflow(&self) -> Option<&Target> {
        let finite = |sums: &Vec<f32>| sums.iter().all(|s| s.is_finite());
        let at = self.gradients.sums.iter().position(|s| !finite(s))?;
        self.targets().get(at)
    }
}

/// The forward and backward pass in some precision.
struct Pass<T> {
    weights: Weights<T>,
    isa: Isa,
}

impl<T: Real> Pass<T> {
    fn load(file: &ModelFile, packing: &PackingOptions, isa: Isa) -> Result<Pass<T>, ModelError> {
        let weights = Weights::load(file, packing, isa)?;
        Ok(Pass { weights, isa })
    }

    /// Zeros to fold gradients into.
    fn gradients(&self, fold: fn(T, T) -> T) -> Gradients<T> {
        let targets = self.weights.targets.iter();
        Gradients { sums: targets.map(|t| vec![T::default(); t.rows * t.columns]).collect(), fold }
    }

    fn add(&self, tokens: &[u32], gradients: &mut Gradients<T>) -> Result<f64, SequenceError> {
        let w = &self.weights;
        let (n, n_vocab) = (w.config.n_embd, w.config.n_vocab);
        if tokens.len() < 2 {
            return Err(SequenceError::Short(tokens.len()));
        }
        let mut ids = tokens.iter().enumerate();
        if let Some((index, &id)) = ids.find(|(_, id)| **id as usize >= n_vocab) {
            return Err(SequenceError::UnknownToken { id, index, n_vocab });
        }
        let angles = |r: &Rope| (0..tokens.len()).map(|i| r.pairs(i)).collect();
        let angles: [Vec<_>; 2] = w.ropes.each_ref().map(angles);
        let at = Positions { ropes: &w.ropes, angles: &angles };
        let scale = T::of(match w.config.arch.embedding_scale {
            EmbeddingScale::RootOfWidth => (n as f64).sqrt(),
            _ => w.config.embedding_scale.unwrap_or(1.0).into(),
        });
        let mut x = Vec::with_capacity(tokens.len() * n);
        for &id in tokens {
            let row = &w.embedding[id as usize * n..][..n];
            x.extend(row.iter().map(|&v| v * scale));
        }
        let blocks = w.blocks.iter();
        let saved: Vec<_> = blocks.map(|block| block.forward(&mut x, &at)).collect();
        let head = Head {
            norm: &w.output_norm,
            weight: w.output.as_ref().unwrap_or(&w.embedding),
            bias: &w.output_bias,
            softcap: w.config.final_softcap.map(f64::from),
            isa: self.isa,
        };
        let (loss, mut dx) = head.loss(&x, tokens);
        if !loss.is_finite() {
            return Err(SequenceError::NonFinite(loss));
        }
        for (block, saved) in w.blocks.iter().zip(saved).rev() {
            block.backward(saved, &mut dx, &at, gradients);
        }
        Ok(loss)
    }
}

#[cfg(test)]
mod tests;
