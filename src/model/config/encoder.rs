//! Configurations of encoders beside the blocks of a model.

use super::keys::Keys;
use super::layers::MAX_LAYERS;
use super::{Config, Header};
use crate::model::ModelError;

impl Config {
    /// The configuration of the encoder beside the blocks of this model, which is in the same `file`; `None` where the
    /// architecture has none. Its keys are the model's but for the number of blocks.
    ///
    /// # Errors
    /// Metadata of the encoder that makes no sense.
    pub(in crate::model) fn of_encoder(&self, file: &dyn Header) -> Result<Option<Config>, ModelError> {
        let Some(arch) = self.arch.encoder else {
            return Ok(None);
        };
        let mut keys = Keys::new(file.meta(), self.arch.name);
        keys.layers = keys.count("block_count", MAX_LAYERS);
        let n_layer = keys.layers;
        let config = Config::from_keys(&mut keys, arch, file, n_layer);
        if keys.problems.is_empty() { Ok(Some(config)) } else { Err(ModelError::Invalid(keys.problems)) }
    }
}
