//! Heads for multi-token prediction (NextN), as models of their own: `nextn_predict_layers` blocks behind those that are
//! run. A head reads a token and the hidden state before it, and makes the logits of the token behind, and a hidden state
//! for the head that goes on from there. The embeddings, the output matrix and the last norm are the model's where a head
//! has none of its own.

use trine_formats::gguf::ModelFile;

use super::config::Config;
use super::error::ModelError;
use super::load::{Loader, SharedEnds};
use super::lower::{Lowered, Lowering};
use crate::exec::{Processor, Ropes};
use crate::kernels::Isa;
use crate::program::Program;

/// The heads of a model, lowered, before it is known where they run.
#[derive(Default)]
pub(super) struct LoweredMtp(Vec<(Config, Option<Lowered>)>);

impl LoweredMtp {
    /// Takes the heads of the model of configuration `c` in `file`, whose tensors `loader` has.
    ///
    /// # Errors
    /// There are none; there are more than one, or trine does not run those of the architecture.
    pub fn load(
        loader: &mut Loader<'_>,
        file: &ModelFile,
        c: &Config,
        ends: &SharedEnds,
    ) -> Result<LoweredMtp, ModelError> {
        let name = c.arch.name;
        let first = format!("blk.{}.nextn.eh_proj.weight", c.n_layer);
        let refused = |why: String| Err(ModelError::NoHeads(why));
        if c.mtp_heads() == 0 {
            return refused("the model has no heads for multi-token prediction (nextn_predict_layers)".to_owned());
        }
        if c.arch.mtp.is_empty() {
            return refused(format!("heads for multi-token prediction are not run for architecture '{name}'"));
        }
        if c.mtp_heads() > 1 {
            let n = c.mtp_heads();
            return refused(format!("the model has {n} heads for multi-token prediction, and trine runs one"));
        }
        if !loader.has(&first) {
            return refused(format!(
                "the file has no tensors of the model's head for multi-token prediction ({first})"
            ));
        }
        let head = |block: usize| {
            let config = c.of_head(file, block)?;
            loader.enter_head(block, &config);
            let lowered = Lowering::mtp_head(loader, &config, ends.clone(), block);
            Ok((config, lowered))
        };
        (c.n_layer..c.n_block).map(head).collect::<Result<_, _>>().map(LoweredMtp)
    }

    /// Ready to run on the processor, with the position embeddings of the model.
    pub fn ready(self, isa: Isa, ropes: &Ropes) -> impl Iterator<Item = (Config, Program, Processor)> {
        self.0.into_iter().filter_map(move |(config, lowered)| {
            let Lowered { program, matrices } = lowered?;
            Some((config, program, Processor { isa, matrices, ropes: ropes.clone() }))
        })
    }
}
