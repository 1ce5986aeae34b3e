//! Configurations of heads for multi-token prediction.

use super::keys::Keys;
use super::mixing::Parts;
use super::{Config, Header};
use crate::arch::rules::HeadRule;
use crate::model::ModelError;

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
        if !keys.problems.is_empty() {
            return Err(ModelError::Invalid(keys.problems));
        }
        for (i, parts) in config.mixing.blocks.iter_mut().enumerate() {
            let runs = i == block;
            *parts = Parts { attends: runs, recurs: false, feeds: runs };
        }
        config.mixing.others.clear();
        if self.arch.heads != HeadRule::Chained {
            // the head attends to all positions, with position embeddings, whatever the pattern of the blocks says
            config.windowed.iter_mut().for_each(|windowed| *windowed = false);
            config.turned.iter_mut().for_each(|turned| *turned = true);
        }
        config.indexed = None;
        config.shared_keys.clear();
        Ok(config)
    }
}
