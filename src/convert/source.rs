//! The model of a checkpoint: its architecture and sizes as `config.json` states them, and what its tensors are.

use super::error::ConvertError;
use super::hparams::HParams;
use crate::arch::{ARCHITECTURES, Arch, Checkpoint, HeadDim, Role, Sizes, Tensor};

/// An architecture and the sizes of one model of it.
pub(super) struct Source {
    pub arch: &'static Arch,
    /// How checkpoints of the architecture are read.
    pub checkpoint: &'static Checkpoint,
    pub layers: u32,
    /// Every one fits in 32 bits.
    pub sizes: Sizes,
    /// Whether the embedding is the output matrix too.
    pub tied: bool,
}

/// Most blocks of a model; those of today have up to some hundred.
const MAX_LAYERS: u32 = 4096;
/// Most tokens of a vocabulary; the largest known have less than a million.
const MAX_VOCAB: u32 = 1 << 20;
/// Largest width of anything else: the hidden state, the feed-forward block, the heads and what they have together.
const MAX_WIDTH: u32 = 1 << 20;

/// Refuses a number that no model has, before anything is made that size.
fn at_most(key: &str, n: u32, max: u32) -> Result<u32, ConvertError> {
    if n <= max {
        return Ok(n);
    }
    Err(ConvertError::Config(format!(
        "'{key}' is {n}, more than the {max} that a model can have here"
    )))
}

/// Where a tensor's name leads.
pub(super) enum Place {
    /// Outside the blocks.
    End(&'static Tensor),
    Block(u32, &'static Tensor),
    /// An output matrix, and the architecture always takes the embedding for it.
    TiedOutput,
    /// Is no weight of the text model, or is computed anew.
    Ignored,
    Unknown,
}

/// All architectures with checkpoints.
fn readable() -> impl Iterator<Item = (&'static Arch, &'static Checkpoint)> {
    ARCHITECTURES
        .iter()
        .filter_map(|a| Some((*a, a.checkpoint?)))
}

/// Names of the model classes that can be converted, with the architecture of each. A class whose activation decides
/// between two stands with the first.
pub fn known_classes() -> Vec<(&'static str, &'static str)> {
    let mut known: Vec<(&str, &str)> = Vec::new();
    for (arch, checkpoint) in readable() {
        for class in checkpoint.classes {
            if !known.iter().any(|(k, _)| k == class) {
                known.push((class, arch.name));
            }
        }
    }
    known
}

impl Source {
    pub fn new(h: &HParams) -> Result<Source, ConvertError> {
        let (arch, checkpoint) = architecture(h)?;
        let embd = at_most("hidden_size", h.need("hidden_size")?, MAX_WIDTH)?;
        let or = |key, default: Option<u32>| match (h.u32(key)?, default) {
            (Some(n), _) if n > 0 => Ok(n),
            (None, Some(n)) => Ok(n),
            _ => h.need(key),
        };
        let heads = or("num_attention_heads", checkpoint.heads)?;
        let heads = at_most("num_attention_heads", heads, MAX_WIDTH)?;
        let head_dim = match (h.u32("head_dim")?, checkpoint.head_dim) {
            (Some(n), _) if n > 0 => n,
            (_, HeadDim::Fixed(n)) => n,
            _ if !embd.is_multiple_of(heads) => {
                return Err(ConvertError::Config(format!(
                    "'hidden_size' {embd} is not a multiple of 'num_attention_heads' {heads}, and there is no 'head_dim'"
                )));
            }
            _ => embd / heads,
        };
        let together = head_dim.saturating_mul(heads);
        at_most("head_dim x num_attention_heads", together, MAX_WIDTH)?;
        if !head_dim.is_multiple_of(2) {
            return Err(ConvertError::Config(format!(
                "heads of {head_dim} elements cannot be turned in pairs by RoPE"
            )));
        }
        let layers = at_most(
            "num_hidden_layers",
            h.need("num_hidden_layers")?,
            MAX_LAYERS,
        )?;
        let vocab = at_most("vocab_size", or("vocab_size", checkpoint.vocab)?, MAX_VOCAB)?;
        let ff = at_most("intermediate_size", h.need("intermediate_size")?, MAX_WIDTH)?;
        let kv_heads = checkpoint.kv_heads.unwrap_or(heads);
        let kv_heads = or("num_key_value_heads", Some(kv_heads))?;
        if !heads.is_multiple_of(kv_heads) {
            return Err(ConvertError::Config(format!(
                "{heads} query heads cannot share {kv_heads} key-value heads"
            )));
        }
        Ok(Source {
            arch,
            checkpoint,
            layers,
            sizes: Sizes {
                vocab: vocab.into(),
                embd: embd.into(),
                ff: ff.into(),
                heads: heads.into(),
                kv_heads: kv_heads.into(),
                head_dim: head_dim.into(),
                rope_dim: head_dim.into(),
                ..Sizes::default()
            },
            tied: h.bool("tie_word_embeddings")?.unwrap_or(checkpoint.tied),
        })
    }

    /// Tensors outside the blocks that a checkpoint can have.
    pub fn ends(&self) -> impl Iterator<Item = &'static Tensor> + use<> {
        self.arch.end_tensors().filter(|t| !t.hf.is_empty())
    }

    /// Tensors of a block that a checkpoint can have.
    pub fn block(&self) -> impl Iterator<Item = &'static Tensor> + use<> {
        self.arch.block_tensors(false).filter(|t| !t.hf.is_empty())
    }

    /// Elements of the heads whose rows change places: halves in the checkpoint become neighbours where RoPE turns
    /// neighbours.
    pub fn paired_heads(&self, t: &Tensor) -> Option<u64> {
        let paired = t.rope_rows && self.arch.interleaves_heads();
        paired.then_some(self.sizes.head_dim)
    }

    /// What the tensor of this name is.
    pub fn place(&self, name: &str) -> Place {
        const IGNORED: &[&str] = &[
            ".rotary_emb.inv_freq",
            ".attention.masked_bias",
            ".attention.bias",
        ];
        const OTHER_MODALITIES: &[&str] =
            &["vision_", "vision.", "visual.", "audio_", "projector."];
        if IGNORED.iter().any(|s| name.ends_with(s)) {
            return Place::Ignored;
        }
        let name = name.replace("language_model.", "");
        if OTHER_MODALITIES.iter().any(|s| name.contains(s)) {
            return Place::Ignored;
        }
        let name = if name.starts_with("model.") || name.starts_with("lm_head.") {
            name
        } else {
            format!("model.{name}")
        };
        if let Some(t) = self.ends().find(|t| t.hf == name) {
            return Place::End(t);
        }
        if name == "lm_head.weight" && !self.ends().any(|t| t.role == Role::Output) {
            return Place::TiedOutput;
        }
        let block = name
            .strip_prefix("model.layers.")
            .and_then(|rest| rest.split_once('.'))
            .and_then(|(n, rest)| Some((n.parse().ok()?, rest)));
        let Some((n, rest)) = block else {
            return Place::Unknown;
        };
        let aliases = self.checkpoint.aliases.iter();
        let usual = aliases.copied().find(|(alias, _)| *alias == rest);
        let rest = usual.map_or(rest, |(_, usual)| usual);
        match self.block().find(|t| t.hf == rest) {
            Some(t) if n < self.layers => Place::Block(n, t),
            _ => Place::Unknown,
        }
    }
}

/// The architecture by class and activation: a graph computes one, and a file that names the wrong graph would run and
/// give nonsense.
fn architecture(h: &HParams) -> Result<(&'static Arch, &'static Checkpoint), ConvertError> {
    let class = h.class()?;
    let of_class: Vec<_> = readable()
        .filter(|(_, c)| c.classes.contains(&class))
        .collect();
    let Some(&first) = of_class.first() else {
        let known: Vec<&str> = known_classes().iter().map(|(class, _)| *class).collect();
        return Err(ConvertError::UnknownArchitecture {
            found: class.to_owned(),
            known: known.join(", "),
        });
    };
    let Some(act) = h.str("hidden_activation").or(h.str("hidden_act")) else {
        return Ok(first);
    };
    let found = of_class.iter().find(|(_, c)| c.activations.contains(&act));
    found.copied().ok_or_else(|| {
        let computed = of_class
            .iter()
            .map(|(a, c)| format!("'{}' compute '{}'", a.name, c.activations.join("' or '")));
        ConvertError::Config(format!(
            "the activation is '{act}', and models of architecture {}",
            computed.collect::<Vec<_>>().join(", of ")
        ))
    })
}
