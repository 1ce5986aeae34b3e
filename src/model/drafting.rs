//! Models that draft for another as parts of it.

use super::config::{DraftBlock, DrafterKind};
use super::drafter::{Found, Fusion, LoadedDrafter};
use super::error::ModelError;
use super::load::SharedEnds;
use super::options::LoadOptions;
use super::{Inner, Weights};

impl Inner {
    /// The drafter that was found, loaded with `options` as a part of this model, whose ends are `shared`.
    ///
    /// # Errors
    /// Everything that is wrong with its tensors; a model of which there are no such inputs.
    pub(super) fn drafter(
        &self,
        found: Found,
        options: &LoadOptions,
        shared: SharedEnds,
    ) -> Result<Weights, ModelError> {
        if self.program.kept().iter().any(|&input| self.program.shape(input).columns != self.config.n_embd) {
            let why = "the model it drafts for has several residual streams side by side";
            return Err(ModelError::Drafter(why.to_owned()));
        }
        let LoadedDrafter { kind, config, block, reader, markov } = found.load(options, shared)?;
        let part = |(program, processor)| self.beside(config.clone(), program, processor);
        let part_of_blocks = Inner { markov, ..part(block) };
        Ok(Weights::of(match (kind, reader) {
            (DrafterKind::Block(block), Some(reader)) => {
                Inner { key_reader: Some((Weights::of(part(reader)), block)), ..part_of_blocks }
            }
            (_, Some((program, processor))) => Inner { fusion: Some(Fusion { program, processor }), ..part_of_blocks },
            (_, None) => Inner { borrowed: Some(self.page_layout()), ..part_of_blocks },
        }))
    }
}

impl Weights {
    /// Its head for multi-token prediction ([`LoadOptions::mtp`]), the first of several, or the drafter
    /// ([`LoadOptions::drafter`]) that was loaded with it: a model that reads hidden states beside tokens.
    pub fn mtp_head(&self) -> Option<&Weights> {
        self.inner.mtp.first()
    }

    /// [`Weights::mtp_head`], and heads that draft further tokens.
    pub fn mtp_heads(&self) -> &[Weights] {
        &self.inner.mtp
    }

    /// True if a drafter reads the inputs of blocks of the model that it drafts for, and not its hidden states.
    pub fn reads_inputs(&self) -> bool {
        self.inner.fusion.is_some() || self.inner.key_reader.is_some()
    }

    /// Elements of what a drafter hears of every token: hidden states, or inputs of blocks side by side.
    pub fn hears(&self) -> usize {
        match (&self.inner.fusion, &self.inner.key_reader) {
            (Some(fusion), _) => fusion.inputs(),
            (None, Some((reader, _))) => reader.reads_hidden(),
            (None, None) => self.reads_hidden(),
        }
    }

    /// The numbers that a drafter reads beside tokens, made of rows of what it hears. Runs on the current pool.
    pub(crate) fn fused(&self, heard: &[f32]) -> Vec<f32> {
        self.inner.fusion.as_ref().map_or_else(|| heard.to_vec(), |fusion| fusion.run(heard))
    }

    /// Biases on the logits of a token that is drafted behind `token`, one for every token; `None` of a drafter without
    /// any. Runs on the current pool.
    pub(crate) fn biases_behind(&self, token: u32) -> Option<Vec<f32>> {
        self.inner.markov.as_ref().map(|markov| markov.run(token))
    }

    /// The model that stores keys and values of what was heard, in sequences that a drafter of several tokens at once runs
    /// over too, and these tokens; `None` of another model.
    pub fn key_reader(&self) -> Option<(&Weights, DraftBlock)> {
        self.inner.key_reader.as_ref().map(|(model, block)| (model, *block))
    }

    /// True if the model has no keys of its own: it attends to those in sequences of the model that it drafts for, to which
    /// its tokens add nothing.
    pub fn borrows_keys(&self) -> bool {
        self.inner.borrowed.is_some()
    }
}
