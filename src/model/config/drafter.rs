//! Configurations of models that draft for another from states of its blocks.

use super::keys::Keys;
use super::{Config, Header, MAX_LAYERS};
use crate::arch::EAGLE3;
use crate::model::ModelError;

/// Blocks of the other model whose inputs are read.
const STATES: usize = 3;

/// A model that drafts for another.
#[derive(Clone, Debug)]
pub struct Drafter {
    /// Its own configuration.
    pub config: Config,
    /// The blocks of the other model whose inputs it reads, in the order in which they stand side by side.
    pub blocks: Vec<usize>,
    /// Elements of such an input.
    pub width: usize,
    /// True if the block adds to the norm of the states instead of to the states.
    pub adds_to_norm: bool,
    /// True if the inputs have a norm of their own.
    pub normed: bool,
}

impl Config {
    /// The drafter for this model in `file`.
    ///
    /// # Errors
    /// No such drafter; one that was made for a model of another shape.
    pub(in crate::model) fn drafter(&self, file: &dyn Header) -> Result<Drafter, ModelError> {
        const BLOCKS: &str = "target_layers";
        const WIDTH: &str = "target_hidden_size";
        let found = file.meta().get_str("general.architecture")?.unwrap_or_default();
        let refused = |why: String| Err(ModelError::Drafter(why));
        if found != EAGLE3.name {
            return refused(format!(
                "it is of architecture '{found}', and --spec-type draft-eagle3 drafts with 'eagle3'"
            ));
        }
        let mut keys = Keys::new(file.meta(), EAGLE3.name);
        keys.layers = keys.count("block_count", MAX_LAYERS);
        if keys.layers != 1 {
            let what = format!("is {}; drafters of this architecture have one block", keys.layers);
            keys.wrong("block_count", what);
            keys.layers = 1;
        }
        let blocks = keys.u32s(BLOCKS).unwrap_or_default();
        let blocks: Vec<usize> = blocks.into_iter().map(|block| block as usize).collect();
        if blocks.len() != STATES {
            keys.wrong(BLOCKS, format!("has {} entries, it must have {STATES}", blocks.len()));
        }
        let width = keys.count(WIDTH, 1 << 20);
        let flag = |keys: &mut Keys<'_>, key: &str| keys.bool(key) == Some(true);
        let (adds_to_norm, normed) = (flag(&mut keys, "norm_before_residual"), flag(&mut keys, "norm_before_fc"));
        let config = Config::from_keys(&mut keys, &EAGLE3, file, 1);
        if !keys.problems.is_empty() {
            return Err(ModelError::Invalid(keys.problems));
        }
        let others = |what: &str, own: usize, of_model: usize| {
            refused(format!("it was made for a model of {own} {what}, and this one has {of_model}"))
        };
        if width != self.n_embd {
            return others("hidden numbers", width, self.n_embd);
        }
        if config.n_vocab != self.n_vocab {
            return others("tokens", config.n_vocab, self.n_vocab);
        }
        match blocks.iter().find(|block| **block >= self.n_layer) {
            Some(block) => refused(format!("it reads the input of block {block}, and this model has {}", self.n_layer)),
            None => Ok(Drafter { config, blocks, width, adds_to_norm, normed }),
        }
    }
}
