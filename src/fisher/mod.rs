//! Squared gradients of the language-model loss: which weights matter, by how the loss answers to them.
//!
//! For every matrix of the blocks, `s = sum over sequences of (d loss / d w)^2`, the diagonal of the
//! empirical Fisher information of whole sequences (SqueezeLLM, Any-Precision LLM). The loss of a
//! sequence is the mean cross-entropy of its tokens from the second on. It is the gradient of the
//! sequence that is squared, not that of each token.
//!
//! The model's program is run forwards and backwards in `f32` ([`crate::exec::gradient`]); sequences are added in the
//! order given. Neither threads nor the instruction set change a bit.

mod loss;
mod pass;
pub mod sample;

use trine_formats::gguf::{ModelFile, PackingOptions};

use crate::exec::gradient::Gradients;
use crate::kernels::Isa;
use crate::model::{Config, LoadOptions, ModelError, Weights};

pub use crate::exec::gradient::Target;
pub(crate) use pass::Pass;
pub use pass::SequenceError;

/// About the bytes that the gradients of sequences of `seq_len` tokens take: weights, sums, and what is kept of one
/// sequence.
pub fn memory(file: &ModelFile, c: &Config, seq_len: usize) -> u64 {
    let used = c.experts.as_ref().map_or(1, |experts| experts.used as u64);
    let (mut weights, mut of_token) = (0, 0);
    for tensor in file.tensors() {
        let all: u64 = tensor.shape.iter().product();
        weights += all;
        if let ([columns, rows, experts @ ..], Some(_)) = (&tensor.shape[..], tensor.name.strip_prefix("blk.")) {
            weights += all;
            of_token += (columns + rows) * if experts.is_empty() { 1 } else { used };
        }
    }
    4 * (weights + seq_len as u64 * of_token + (seq_len.min(64) * c.n_vocab) as u64)
}

/// A model and the squared gradients of its matrices.
pub struct Fisher {
    config: Config,
    pass: Pass<f32>,
    gradients: Gradients<f32>,
}

impl Fisher {
    /// Decodes the model of `file`; all sums are 0.
    ///
    /// # Errors
    /// Everything that is missing or cannot be used, at once; operations that have no derivative.
    pub fn load(file: &ModelFile, packing: &PackingOptions, isa: Isa) -> Result<Fisher, ModelError> {
        let options = LoadOptions { isa, repack: false, packing: packing.clone(), ..LoadOptions::default() };
        let model = Weights::load(file, &options)?;
        let pass = Pass::of(&model)?;
        let gradients = pass.gradient.zeros(|sum, g| sum + g * g);
        Ok(Fisher { config: model.config().clone(), pass, gradients })
    }

    /// Hyper-parameters of the model.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The matrices, in the order of [`Fisher::sums`].
    pub fn targets(&self) -> &[Target] {
        self.pass.gradient.targets()
    }

    /// Sums of squared gradients, `[rows][columns]` per matrix.
    pub fn sums(&self) -> &[Vec<f32>] {
        &self.gradients.sums
    }

    /// The sums, to be set when an earlier run is continued.
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

#[cfg(test)]
mod tests;
