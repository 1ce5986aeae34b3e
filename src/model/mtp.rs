//! The head of a model for multi-token prediction (NextN), as a model of its own: the block behind those that are run, which
//! `nextn_predict_layers` counts. It reads a token and the hidden state before it, and makes the logits of the token behind
//! and a hidden state with which it can go on. The embeddings, the output matrix and the last norm are the model's where it
//! has none of its own.

use trine_formats::gguf::ModelFile;

use super::config::Config;
use super::error::ModelError;
use super::load::{Loader, SharedEnds};
use super::lower::Lowering;
use super::part::LoweredPart;

impl LoweredPart {
    /// Takes the head of the model of configuration `c` in `file`, whose tensors `loader` has.
    ///
    /// # Errors
    /// There is none; there are several, or trine does not run those of the architecture.
    pub fn mtp_head(
        loader: &mut Loader<'_>,
        file: &ModelFile,
        c: &Config,
        ends: SharedEnds,
    ) -> Result<LoweredPart, ModelError> {
        let (name, block) = (c.arch.name, c.n_layer);
        let first = format!("blk.{block}.nextn.eh_proj.weight");
        let refused = |why: String| Err(ModelError::NoHead(why));
        match c.mtp_heads() {
            0 => refused("the model has no heads for multi-token prediction (nextn_predict_layers)".to_owned()),
            _ if c.arch.mtp.is_empty() => {
                refused(format!("heads for multi-token prediction are not run for architecture '{name}'"))
            }
            1 if !loader.has(&first) => {
                refused(format!("the file has no tensors of the model's head for multi-token prediction ({first})"))
            }
            1 => {
                let config = c.of_head(file, block)?;
                loader.enter_head(block, &config);
                let lowered = Lowering::mtp_head(loader, &config, ends, block);
                Ok(LoweredPart { config, lowered })
            }
            n => refused(format!("the model has {n} heads for multi-token prediction, and trine runs one")),
        }
    }
}
