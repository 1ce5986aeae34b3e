//! The encoder of a model whose blocks attend to a text beside their own, as a model of its own.

use trine_formats::gguf::ModelFile;

use super::config::Config;
use super::error::ModelError;
use super::load::Loader;
use super::lower::Lowering;
use super::part::LoweredPart;
use crate::ops::matmul::Matrix;

impl LoweredPart {
    /// Takes the encoder of the model of configuration `c` in `file`, whose tensors `loader` has, with the model's
    /// `embedding`; `None` where the architecture has none.
    ///
    /// # Errors
    /// Metadata that makes no sense.
    pub fn encoder(
        loader: &mut Loader<'_>,
        file: &ModelFile,
        c: &Config,
        embedding: Matrix,
    ) -> Result<Option<LoweredPart>, ModelError> {
        let Some(config) = c.of_encoder(file)? else {
            return Ok(None);
        };
        let lowered = Lowering::encoder(loader, [&config, c], embedding);
        Ok(Some(LoweredPart { config, lowered }))
    }
}
