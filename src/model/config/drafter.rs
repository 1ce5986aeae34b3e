//! Configurations of models that draft for another from inputs of its blocks, its hidden states or its keys.

use super::keys::Keys;
use super::layers::MAX_LAYERS;
use super::{Config, Header};
use crate::arch::rules::DraftState;
use crate::arch::{Arch, DFLASH, EAGLE3, GEMMA4_ASSISTANT};
use crate::model::ModelError;

/// Blocks of the other model whose inputs EAGLE-3 reads.
const STATES: usize = 3;
/// The table of tokens' vectors of which biases on the logits behind them are made (DSpark's Markov head).
pub(in crate::model) const MARKOV_TABLE: &str = "markov_w1.weight";
/// The blocks of the other model whose inputs are read.
const BLOCKS: &str = "target_layers";

/// A model that drafts for another.
#[derive(Clone, Debug)]
pub struct Drafter {
    /// Its own configuration.
    pub config: Config,
    /// The states that it reads of the other model's blocks, in the order in which they stand side by side.
    pub heard: Vec<Heard>,
    /// Elements of such an input, or of a hidden state.
    pub width: usize,
    /// How it drafts with them.
    pub kind: DrafterKind,
}

/// A state of a token in the residual stream of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The input of a block.
    Input(usize),
    /// The output of the last block.
    Output,
    /// The same behind the last norm.
    Normed,
}

/// How a drafter drafts.
#[derive(Clone, Copy, Debug)]
pub enum DrafterKind {
    /// EAGLE-3: token by token, from states that it makes of the inputs and then of what it drafted.
    States {
        /// True if the block adds to the norm of the states instead of to the states.
        adds_to_norm: bool,
        /// True if the inputs have a norm of their own.
        normed: bool,
    },
    /// DFlash: several tokens at once, which attend to keys and values that it makes of the inputs.
    Block(DraftBlock),
    /// Gemma 4's assistants: token by token, from hidden states and the keys and values of two of the model's blocks.
    Assistant,
}

/// The tokens that are drafted at once.
#[derive(Clone, Copy, Debug)]
pub struct DraftBlock {
    /// Most of them, with the token that they follow.
    pub size: usize,
    /// The token that stands for each of them before it is known.
    pub mask: u32,
    /// True if the first of them is drafted in the place of the token that they follow, and not behind it.
    pub anchored: bool,
}

/// A drafter that is none for the model.
fn refused<T>(why: String) -> Result<T, ModelError> {
    Err(ModelError::Drafter(why))
}

impl Config {
    /// The configuration of a model, or of a drafter whatever it drafts for.
    ///
    /// # Errors
    /// Everything that is wrong with its keys.
    #[cfg(feature = "convert")]
    pub(crate) fn read_or_drafter(file: &dyn Header) -> Result<Config, ModelError> {
        match file.meta().get_str("general.architecture")? {
            Some(name) if name == EAGLE3.name => Ok(eagle3(file)?.0.config),
            Some(name) if name == DFLASH.name => Ok(dflash(file)?.0.config),
            Some(name) if name == GEMMA4_ASSISTANT.name => Ok(assistant_alone(file)?.0),
            _ => Config::read(file),
        }
    }

    /// The drafter for this model in `file`.
    ///
    /// # Errors
    /// No such drafter; one that was made for a model of another shape.
    pub(in crate::model) fn drafter(&self, file: &dyn Header) -> Result<Drafter, ModelError> {
        let found = file.meta().get_str("general.architecture")?.unwrap_or_default();
        let (mut drafter, blocks) = match found {
            name if name == EAGLE3.name => eagle3(file)?,
            name if name == DFLASH.name => dflash(file)?,
            name if name == GEMMA4_ASSISTANT.name => (assistant(file, self)?, Vec::new()),
            other => {
                let [a, b, c] = [EAGLE3.name, DFLASH.name, GEMMA4_ASSISTANT.name];
                return refused(format!("it is of architecture '{other}', and drafters are of '{a}', '{b}' or '{c}'"));
            }
        };
        let others = |what: &str, own: usize, of_model: usize| {
            refused(format!("it was made for a model of {own} {what}, and this one has {of_model}"))
        };
        if drafter.width != self.n_embd {
            return others("hidden numbers", drafter.width, self.n_embd);
        }
        if drafter.config.n_vocab != self.n_vocab {
            return others("tokens", drafter.config.n_vocab, self.n_vocab);
        }
        let by_block = matches!(drafter.kind, DrafterKind::Block(_));
        let heard = blocks.into_iter().map(|block| match (block, self.arch.draft_state) {
            (block, _) if block < self.n_layer => Ok(Heard::Input(block)),
            (block, _) if block > self.n_layer => {
                refused(format!("it reads the input of block {block}, and this model has {}", self.n_layer))
            }
            (_, DraftState::Stream) => Ok(Heard::Output),
            _ if by_block => Ok(Heard::Output),
            (_, DraftState::Normed) => Ok(Heard::Normed),
            (_, DraftState::None) => refused(format!(
                "it reads the output of the last block, which llama.cpp gives of no model of architecture '{}'",
                self.arch.name
            )),
        });
        drafter.heard = heard.collect::<Result<_, _>>()?;
        Ok(drafter)
    }
}

/// The keys of a drafter of an architecture, and the blocks of the other model that it names.
fn keys<'a>(file: &'a dyn Header, arch: &'static Arch) -> (Keys<'a>, Vec<usize>) {
    let mut keys = Keys::new(file.meta(), arch.name);
    keys.layers = keys.count("block_count", MAX_LAYERS);
    let blocks = keys.u32s(BLOCKS).unwrap_or_default();
    (keys, blocks.into_iter().map(|block| block as usize).collect())
}

fn eagle3(file: &dyn Header) -> Result<(Drafter, Vec<usize>), ModelError> {
    const WIDTH: &str = "target_hidden_size";
    let (mut keys, blocks) = keys(file, &EAGLE3);
    if keys.layers != 1 {
        let what = format!("is {}; drafters of this architecture have one block", keys.layers);
        keys.wrong("block_count", what);
        keys.layers = 1;
    }
    if blocks.len() != STATES {
        keys.wrong(BLOCKS, format!("has {} entries, it must have {STATES}", blocks.len()));
    }
    let width = keys.count(WIDTH, 1 << 20);
    let flag = |keys: &mut Keys<'_>, key: &str| keys.bool(key) == Some(true);
    let (adds_to_norm, normed) = (flag(&mut keys, "norm_before_residual"), flag(&mut keys, "norm_before_fc"));
    let config = Config::from_keys(&mut keys, &EAGLE3, file, 1);
    match keys.problems.is_empty() {
        true => {
            let kind = DrafterKind::States { adds_to_norm, normed };
            Ok((Drafter { config, heard: Vec::new(), width, kind }, blocks))
        }
        false => Err(ModelError::Invalid(keys.problems)),
    }
}

fn dflash(file: &dyn Header) -> Result<(Drafter, Vec<usize>), ModelError> {
    const SIZE: &str = "block_size";
    const MASK: &str = "tokenizer.ggml.mask_token_id";
    const SELECTOR: &str = "selector_hidden.weight";
    if file.rows(SELECTOR).is_some() {
        return refused(format!("it has a selector (DFlash 2), which trine does not run ({SELECTOR})"));
    }
    let (mut keys, blocks) = keys(file, &DFLASH);
    if keys.u32("hyper_connection.count").is_some_and(|n| n > 0) {
        return refused("its blocks are those of DeepSeek 4, which trine does not run in drafters".to_owned());
    }
    if blocks.is_empty() {
        keys.wrong(BLOCKS, "is missing or empty, it must name blocks of the other model");
    }
    let size = keys.u32(SIZE).unwrap_or(16);
    if !(2..=1024).contains(&size) {
        keys.wrong(SIZE, format!("is {size}, it must be 2 to 1024"));
    }
    let n_layer = keys.layers;
    let anchored = file.rows(MARKOV_TABLE).is_some() && keys.bool("sample_from_anchor").unwrap_or(true);
    let config = Config::from_keys(&mut keys, &DFLASH, file, n_layer);
    let read = keys.meta.get_u32(MASK);
    let mask = keys.note(read).filter(|&mask| (mask as usize) < config.n_vocab);
    if let (Some(mask), true) = (mask, keys.problems.is_empty()) {
        let kind = DrafterKind::Block(DraftBlock { size: size as usize, mask, anchored });
        return Ok((Drafter { width: config.n_embd, config, heard: Vec::new(), kind }, blocks));
    }
    match keys.problems.is_empty() {
        true => refused(format!("the key {MASK} names no token of its vocabulary")),
        false => Err(ModelError::Invalid(keys.problems)),
    }
}

/// The configuration of the assistant in `file`, whatever it drafts for, and the width of that model's states.
fn assistant_alone(file: &dyn Header) -> Result<(Config, usize), ModelError> {
    const ALL: &str = "nextn_predict_layers";
    const WIDTH: &str = "embedding_length_out";
    let mut keys = Keys::new(file.meta(), GEMMA4_ASSISTANT.name);
    keys.layers = keys.count("block_count", MAX_LAYERS);
    let n_layer = keys.layers;
    let drafting = keys.count(ALL, MAX_LAYERS);
    if drafting != n_layer {
        keys.wrong(ALL, format!("is {drafting}, and all {n_layer} blocks of a drafter draft"));
    }
    let width = keys.count(WIDTH, 1 << 20);
    let config = Config::from_keys(&mut keys, &GEMMA4_ASSISTANT, file, n_layer);
    if !keys.problems.is_empty() {
        return Err(ModelError::Invalid(keys.problems));
    }
    Ok((config, width))
}

/// The assistant in `file` for a model of configuration `of`: its blocks with a window attend to the keys of the model's
/// last block but one, the others to those of the last one.
fn assistant(file: &dyn Header, of: &Config) -> Result<Drafter, ModelError> {
    let (mut config, width) = assistant_alone(file)?;
    for layer in 0..config.n_layer {
        let windowed = config.windowed[layer];
        let Some(source) = of.n_layer.checked_sub(1 + usize::from(windowed)) else {
            return refused("it attends to keys of two blocks, and this model has one".to_owned());
        };
        let (own, others) = (config.layer(layer), of.layer(source));
        let alike =
            [own.n_head_kv, own.head_dim, own.value_dim] == [others.n_head_kv, others.head_dim, others.value_dim];
        let attends = of.mixing.blocks[source].attends && of.latent.is_none() && of.compressed.is_none();
        if !attends || of.windowed[source] != windowed || !alike {
            return refused(format!(
                "its block {layer} attends to {} heads of {} {} a window, and block {source} of this model has no such keys",
                own.n_head_kv,
                own.head_dim,
                if windowed { "in" } else { "without" }
            ));
        }
        config.borrowed.push(of.cached_before(of.keys_of(source).unwrap_or(source)));
    }
    Ok(Drafter { config, heard: Vec::new(), width, kind: DrafterKind::Assistant })
}
