//! Heads for multi-token prediction (NextN), as models of their own: `nextn_predict_layers` blocks behind those that are
//! run. A head reads a token and the hidden state before it, and makes the logits of the token behind, and a hidden state
//! for the head that goes on from there. The embeddings, the output matrix and the last norm are the model's where a head
//! has none of its own.

use trine_formats::gguf::ModelFile;

use super::config::Config;
use super::heads::Heads;
use super::load::{Ends, Linear, Loader};
use super::lower::{Lowered, Lowering};
use super::{Inner, Model, ModelError};
use crate::exec::Processor;
use crate::ops::matmul::Matrix;
use crate::ops::norm::Norm;

/// The ends of a model, which its heads share.
#[derive(Clone)]
pub struct SharedEnds {
    pub embedding: Matrix,
    pub output: Option<Linear>,
    pub output_norm: Option<Norm>,
}

impl SharedEnds {
    /// Those of `ends`.
    pub fn of(ends: &Ends) -> SharedEnds {
        let Ends { embedding, output, output_norm, .. } = ends;
        SharedEnds { embedding: embedding.clone(), output: output.clone(), output_norm: output_norm.clone() }
    }
}

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

    /// Models that run on the processor, for the model `of`.
    pub fn ready(self, of: &Inner) -> Vec<Model> {
        let ready = |(config, lowered): (Config, Option<Lowered>)| {
            let Lowered { program, matrices } = lowered?;
            let handover = (program.body().end, program.stream());
            let processor = Processor { isa: of.processor.isa, matrices, ropes: of.processor.ropes.clone() };
            Some(Model::of(Inner {
                config,
                layouts: of.layouts.clone(),
                anyprec: of.anyprec.clone(),
                widely: of.widely,
                sections: Vec::new(),
                program,
                handover,
                processor,
                heads: Heads::default(),
                mtp: Vec::new(),
                cache: of.cache,
                added: Vec::new(),
                offload: None,
                #[cfg(feature = "cuda")]
                halves: None,
            }))
        };
        self.0.into_iter().filter_map(ready).collect()
    }
}

impl Model {
    /// Its heads for multi-token prediction, where they were loaded ([`LoadOptions::mtp`](super::LoadOptions::mtp)): each
    /// is a model that reads hidden states beside tokens.
    pub fn mtp_heads(&self) -> &[Model] {
        &self.inner.mtp
    }

    /// Elements of the hidden state that is read beside every token; 0 of a model that reads tokens alone.
    pub fn reads_hidden(&self) -> usize {
        self.inner.program.given_beside()
    }
}
