//! The heads of a model for multi-token prediction (NextN), as models of their own: the blocks behind those that are run, which
//! `nextn_predict_layers` counts. Each reads a token and the hidden state before it, and makes the logits of the token behind
//! and a hidden state to go on with. The embeddings, the output matrix and the last norm are the model's where a head has none
//! of its own.

use trine_formats::gguf::ModelFile;

use super::config::Config;
use super::error::ModelError;
use super::load::{Loader, SharedEnds};
use super::lower::Lowering;
use super::part::LoweredPart;
use crate::arch::rules::HeadRule;

impl LoweredPart {
    /// Takes the heads of the model of configuration `c` in `file`, whose tensors `loader` has.
    ///
    /// # Errors
    /// There is none; there are several, or trine does not run those of the architecture.
    pub fn mtp_heads(
        loader: &mut Loader<'_>,
        file: &ModelFile,
        c: &Config,
        ends: &SharedEnds,
    ) -> Result<Vec<LoweredPart>, ModelError> {
        let name = c.arch.name;
        let refused = |why: String| Err(ModelError::NoHead(why));
        let blocks = c.n_layer..c.n_layer + c.mtp_heads();
        if blocks.is_empty() {
            return refused("the model has no heads for multi-token prediction (nextn_predict_layers)".to_owned());
        }
        if c.arch.mtp.is_empty() {
            return refused(format!("heads for multi-token prediction are not run for architecture '{name}'"));
        }
        if blocks.len() > 1 && c.arch.heads != HeadRule::Chained {
            let n = blocks.len();
            return refused(format!(
                "the model has {n} heads for multi-token prediction, and llama.cpp runs one of architecture '{name}'"
            ));
        }
        let mut heads = Vec::new();
        for block in blocks {
            let first = format!("blk.{block}.nextn.eh_proj.weight");
            if !loader.has(&first) {
                return refused(format!(
                    "the file has no tensors of the model's head for multi-token prediction ({first})"
                ));
            }
            let config = c.of_head(file, block)?;
            loader.enter_head(block, &config);
            let lowered = Lowering::mtp_head(loader, &config, ends.clone(), block);
            heads.push(LoweredPart { config, lowered });
        }
        Ok(heads)
    }
}
