//! Configurations of heads for multi-token prediction.

use super::keys::Keys;
use super::mixing::Parts;
use super::{Config, Header};
use crate::arch::rules::HeadRule;
use crate::model::ModelError;

/// The epsilon of a head's last norm that takes off the mean.
const EPSILON: &str = "attention.layer_norm_epsilon";

impl Config {
    /// Heads for multi-token prediction that the file says it has.
    pub fn mtp_heads(&self) -> usize {
        self.n_block - self.n_layer
    }

    /// The configuration of the head in block `block` of `file`, which is that of the model: this block alone is run. It
    /// attends and has a feed-forward network, in models with recurrent layers too.
    ///
    /// # Errors
    /// Metadata of the head that makes no sense.
    pub(in crate::model) fn of_head(&self, file: &dyn Header, block: usize) -> Result<Config, ModelError> {
        let mut keys = Keys { layers: self.n_block, ..Keys::new(file.meta(), self.arch.name) };
        let mut config = Config::from_keys(&mut keys, self.arch, file, self.n_block);
        if self.arch.heads == HeadRule::OneOfLayerNorm {
            config.head_eps = keys.f32(EPSILON);
            match config.head_eps {
                Some(eps) if eps.is_finite() && eps >= 0.0 => {}
                Some(eps) => keys.wrong(EPSILON, format!("is {eps}, it must be a number of at least 0")),
                None => keys.missing(EPSILON),
            }
        }
        config.check_compressed_head(&mut keys, block);
        if !keys.problems.is_empty() {
            return Err(ModelError::Invalid(keys.problems));
        }
        for (i, parts) in config.mixing.blocks.iter_mut().enumerate() {
            let runs = i == block;
            *parts = Parts { attends: runs, recurs: false, feeds: runs };
        }
        config.mixing.others.clear();
        if !matches!(self.arch.heads, HeadRule::Chained | HeadRule::OneInWindow) {
            // the head attends to all positions, with position embeddings, whatever the pattern of the blocks says
            config.windowed.iter_mut().for_each(|windowed| *windowed = false);
            config.turned.iter_mut().for_each(|turned| *turned = true);
        }
        config.indexed = None;
        config.shared_keys.clear();
        Ok(config)
    }

    /// Notes a head in block `block` that attends to compressed keys, or whose experts a table has: llama.cpp runs neither.
    fn check_compressed_head(&self, keys: &mut Keys<'_>, block: usize) {
        let ratio = self.compressed.as_ref().and_then(|compressed| compressed.ratios.get(block));
        if let Some(ratio) = ratio.filter(|&&ratio| ratio > 0) {
            let what = format!("is {ratio} for block {block}, which predicts a further token and must have 0");
            keys.wrong("attention.compress_ratios", what);
        }
        let listed = self.experts.as_ref().map_or(0, |experts| experts.listed);
        if block < listed {
            let what =
                format!("is {listed}, and block {block}, which predicts a further token, must not be among these");
            keys.wrong("hash_layer_count", what);
        }
    }
}
