//! The model of a checkpoint: its architecture and sizes as `config.json` states them.

use serde_json::Value;

use super::error::ConvertError;
use super::hparams::{HParams, at_most};
use super::parts::Parts;
use crate::arch::rules::{ExpertWidth, Mixing, SharedWidth};
use crate::arch::{
    ARCHITECTURES, Arch, Checkpoint, DFLASH, EAGLE3, Extent, Fixed, GEMMA4_ASSISTANT, HeadDim, Key, KvHeads, Rotary,
    Sizes, Tensor, Width,
};
use crate::model::Config;

/// An architecture and the sizes of one model of it.
pub(super) struct Source {
    pub arch: &'static Arch,
    /// How checkpoints of the class are read.
    pub checkpoint: &'static Checkpoint,
    pub layers: u32,
    /// Blocks of the encoder, where there is one, and of the model beside it.
    pub halves: [u32; 2],
    /// Every one fits in 32 bits. Without experts `experts` is 0.
    pub sizes: Sizes,
    /// The sizes of every block, where blocks differ; empty where they are alike, or not known yet.
    pub own_sizes: Vec<Sizes>,
    /// Blocks behind those, which predict further tokens and are left out.
    pub further: u32,
    /// The parts of every block, as far as they are known.
    pub parts: Vec<Parts>,
    /// True if the embedding is the output matrix too.
    pub tied: bool,
    /// Tokens of the model that this one drafts for.
    pub target_tokens: Option<u32>,
    /// Differences from a usual file of the architecture, a sentence each.
    pub notes: Vec<String>,
}

/// Names of the width of the residual stream.
const EMBEDDING: &[&str] = &["hidden_size", "n_embd", "n_embed", "d_model", "model_dim", "dim"];
/// Names of the number of query heads.
const HEADS: &[&str] = &["num_attention_heads", "n_head", "n_heads", "num_heads"];
/// Names of the number of key and value heads.
pub(super) const KV_HEADS: &[&str] =
    &["num_key_value_heads", "n_kv_heads", "multi_query_group_num", "num_query_groups", "attn_config.kv_n_heads"];
/// Names of the number of blocks.
const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers"];
/// Names of the number of tokens.
const VOCABULARY: &[&str] = &["padded_vocab_size", "vocab_size"];
/// Most blocks of a model; those of today have up to some hundred.
const MAX_LAYERS: u32 = 4096;
/// Most tokens of a vocabulary; the largest known have less than a million.
const MAX_VOCAB: u32 = 1 << 20;
/// Largest width of anything else: the hidden state, the feed-forward block, the heads and what they have together.
pub(super) const MAX_WIDTH: u32 = 1 << 20;
/// Most experts of a block; the largest known have 512.
const MAX_EXPERTS: u32 = 1 << 14;

/// All architectures with checkpoints, a line for every family of classes.
fn readable() -> impl Iterator<Item = (&'static Arch, &'static Checkpoint)> {
    let drafters = [&EAGLE3, &DFLASH, &GEMMA4_ASSISTANT];
    let all = ARCHITECTURES.iter().copied().chain(drafters);
    all.flat_map(|a| a.checkpoints.iter().map(move |c| (a, *c)))
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
        let mut notes = fixed(h, arch, checkpoint)?;
        let further = h.find(&["num_nextn_predict_layers", "mtp_num_hidden_layers"])?.unwrap_or(0);
        if further > 0 {
            let what = if further == 1 { "the block that predicts" } else { "blocks that predict" };
            notes.push(format!("{what} further tokens left out"));
        }
        if h.get("lora_adaptations").is_some() {
            notes.push("adapters left out".to_owned());
        }
        let embd = h.size(EMBEDDING, None, MAX_WIDTH)?;
        let heads = match checkpoint.heads {
            Some(0) => 1,
            assumed => h.size(HEADS, assumed, MAX_WIDTH)?,
        };
        let head_dim = head_dim(h, checkpoint, embd, heads)?;
        let together = head_dim.saturating_mul(heads);
        at_most("head_dim x num_attention_heads", together, MAX_WIDTH)?;
        if !head_dim.is_multiple_of(2) {
            return Err(ConvertError::Config(format!(
                "heads of {head_dim} elements cannot be turned in pairs by RoPE"
            )));
        }
        let patterns = checkpoint.keys.iter().find_map(|k| if let Key::ByPattern(p, ..) = k { Some(*p) } else { None });
        let listed = ["block_configs", "layers_block_type"].iter().any(|key| h.get(key).is_some());
        let kinds = patterns.filter(|_| listed).and_then(|pattern| h.kinds(pattern));
        let layers = match kinds {
            Some(kinds) => at_most("block_configs", kinds.len().try_into().unwrap_or(u32::MAX), MAX_LAYERS)?,
            None => h.size(LAYERS, None, MAX_LAYERS)?.saturating_sub(checkpoint.blocks_less),
        };
        let (layers, own) = cycles(h, arch, layers)?;
        let vocab = h.size(VOCABULARY, checkpoint.vocab, MAX_VOCAB)?;
        let ff = match checkpoint.width {
            Width::Stated => h.size(checkpoint.width_names, None, MAX_WIDTH)?,
            Width::Fourfold => 4 * embd,
            Width::TwoThirds => (8 * embd / 3).next_multiple_of(256),
            Width::TwoThirdsStated => 2 * h.size(checkpoint.width_names, None, MAX_WIDTH)? / 3,
            Width::Alike => at_most(checkpoint.width_names[0], h.whole(checkpoint.width_names[0])?, MAX_WIDTH)?,
            Width::StatedIfAny => h.size(checkpoint.width_names, Some(0), MAX_WIDTH)?,
            Width::StatedOrTimes(times, unit) => {
                let or = (f64::from(embd) * times) as u32 / unit * unit;
                h.size(checkpoint.width_names, Some(or), MAX_WIDTH)?
            }
        };
        let kv_heads = kv_heads(h, checkpoint, heads)?;
        if !heads.is_multiple_of(kv_heads) {
            return Err(ConvertError::Config(format!("{heads} query heads cannot share {kv_heads} key-value heads")));
        }
        let context = h.find(checkpoint.context_names)?.map(|n| n.saturating_sub(checkpoint.positions_less));
        let assumed = match checkpoint.context {
            0 => embd,
            n => n,
        };
        let mut sizes = Sizes {
            vocab: vocab.into(),
            embd: embd.into(),
            ff: ff.into(),
            heads: heads.into(),
            kv_heads: kv_heads.into(),
            head_dim: head_dim.into(),
            value_dim: head_dim.into(),
            rope_dim: rope_dim(h, checkpoint, embd, heads, head_dim)?,
            context: context.unwrap_or(assumed).into(),
            ..Sizes::default()
        };
        experts(h, arch, checkpoint, &mut sizes)?;
        Ok(Source {
            arch,
            checkpoint,
            layers,
            halves: match arch.encoder {
                Some(_) => [layers, h.size(&["num_decoder_layers"], Some(layers), MAX_LAYERS)?],
                None => [0, own],
            },
            sizes,
            own_sizes: Vec::new(),
            further,
            parts: Vec::new(),
            tied: h.bool("tie_word_embeddings")?.unwrap_or(checkpoint.tied),
            target_tokens: None,
            notes,
        })
    }

    /// Takes over what the keys of the file say: all sizes, and the parts of every block.
    pub fn describe(&mut self, config: &Config) {
        let vocab = self.sizes.vocab;
        self.sizes = Sizes { vocab, ..config.sizes() };
        self.own_sizes = (0..config.own_layers()).map(|layer| Sizes { vocab, ..config.layer_sizes(layer) }).collect();
        let parts = config.mixing.blocks.iter().enumerate().map(|(n, b)| Parts {
            experts: Some(config.layer_experts(n).is_some()),
            attends: b.attends,
            shares: config.keys_of(n).is_some(),
            recurs: b.recurs,
            feeds: b.feeds,
        });
        self.parts = parts.collect();
    }

    /// Blocks of the checkpoint, each with its half of the encoder's where there is one.
    pub fn all_blocks(&self) -> u32 {
        self.halves[0].max(self.halves[1])
    }

    /// True if the model may lack the tensor, of a block if of one.
    pub fn may_lack(&self, block: Option<u32>, t: &Tensor) -> bool {
        let parts = block.and_then(|n| self.parts.get(n as usize));
        let of_input = |e: &Extent| matches!(e, Extent::LayerInput | Extent::LayerInputs);
        let of_inputs = t.gguf == "post_norm.weight" || t.shape.iter().any(of_input);
        // blocks that may lack a mixer have its norm with it
        let unmixed = matches!(self.arch.mixing, Mixing::ByHeadsOrNone(_)) && t.gguf == "attn_norm.weight";
        let unmixed = unmixed && parts.is_some_and(|parts| !parts.attends && !parts.recurs);
        parts.is_some_and(|parts| parts.may_lack(t)) || unmixed || of_inputs && self.sizes.layer_input[0] == 0
    }

    /// The sizes of the tensors of a block, or of those outside of blocks.
    pub fn sizes_of(&self, block: Option<u32>) -> &Sizes {
        let own = block.and_then(|n| self.own_sizes.get(n as usize));
        own.unwrap_or(&self.sizes)
    }

    /// Elements of the heads whose rows change places: the two halves of a head in the checkpoint become neighbours
    /// where RoPE turns neighbours.
    pub fn paired_heads(&self, t: &Tensor) -> Option<u64> {
        let paired = t.rope_rows && self.arch.interleaves_heads() && !self.checkpoint.neighbours;
        paired.then_some(self.sizes.head_dim)
    }
}

/// Blocks that run, and those that a checkpoint has: where two stacks of them run in cycles, each run counts.
fn cycles(h: &HParams, arch: &Arch, layers: u32) -> Result<(u32, u32), ConvertError> {
    if !arch.cycles {
        return Ok((layers, layers));
    }
    let per_stack = h.u32("num_layers_per_stack")?.filter(|n| *n > 0).unwrap_or(layers);
    let (high, low) = (h.need("H_cycles")?, h.need("L_cycles")?);
    let runs = u64::from(per_stack) * u64::from(high) * (u64::from(low) + 1);
    let runs = at_most("H_cycles", u32::try_from(runs).unwrap_or(u32::MAX), MAX_LAYERS)?;
    Ok((runs, at_most("num_layers_per_stack", per_stack, MAX_LAYERS)? * 2))
}

fn head_dim(h: &HParams, checkpoint: &Checkpoint, embd: u32, heads: u32) -> Result<u32, ConvertError> {
    match (h.u32("head_dim")?, checkpoint.head_dim) {
        (Some(n), _) if n > 0 => Ok(n),
        (_, HeadDim::Fixed(n)) => Ok(n),
        (_, HeadDim::Stated(key)) => h.need(key),
        _ if !embd.is_multiple_of(heads) => Err(ConvertError::Config(format!(
            "'hidden_size' {embd} is not a multiple of 'num_attention_heads' {heads}, and there is no 'head_dim'"
        ))),
        _ => Ok(embd / heads),
    }
}

fn kv_heads(h: &HParams, checkpoint: &Checkpoint, heads: u32) -> Result<u32, ConvertError> {
    let stated = |or| h.size(KV_HEADS, Some(or), MAX_WIDTH);
    match checkpoint.kv_heads {
        KvHeads::Stated | KvHeads::StatedAlone => stated(heads),
        KvHeads::StatedOr(n) => stated(n),
        KvHeads::Fixed(n) => Ok(n),
        KvHeads::Queries => Ok(heads),
        KvHeads::One | KvHeads::OneWhereStated => Ok(1),
        KvHeads::Falcon => {
            let grouped = h.bool("new_decoder_architecture")?.unwrap_or(false);
            // the first checkpoints have the number under an old name, and no word for their architecture
            let old = h.get("n_head_kv").is_some();
            let shared = h.bool("multi_query")?.unwrap_or(true);
            match (grouped || old, shared) {
                (true, _) => h.size(&["num_kv_heads", "n_head_kv"], Some(heads), MAX_WIDTH),
                (false, true) => Ok(1),
                (false, false) => Ok(heads),
            }
        }
    }
}

/// Elements of a head that RoPE turns, with the rounding of the reference.
fn rope_dim(h: &HParams, checkpoint: &Checkpoint, embd: u32, heads: u32, head_dim: u32) -> Result<u64, ConvertError> {
    let parameters = h.get("rope_parameters").or(h.get("rope_scaling"));
    let of_all = parameters.and_then(|p| p.get("full_attention")).or(parameters);
    let within = of_all.and_then(|p| p.get("partial_rotary_factor")?.as_f64());
    let mut part = within;
    for key in ["partial_rotary_factor", "rotary_pct", "rope_pct"] {
        part = part.or(h.f64(key)?);
    }
    let dim = match checkpoint.rotary {
        Rotary::Whole => match part {
            None | Some(1.0) => return Ok(head_dim.into()),
            Some(_) => {
                return Err(ConvertError::Config(
                    "'partial_rotary_factor' is not supported for this class of models".into(),
                ));
            }
        },
        Rotary::Stated(key) => return h.need(key).map(u64::from),
        Rotary::OfHead(or) => (part.unwrap_or(or) * f64::from(head_dim)) as u64,
        Rotary::OfWidth(or) => (part.unwrap_or(or) * f64::from(embd)) as u64 / u64::from(heads),
    };
    if dim == 0 || dim > head_dim.into() || !dim.is_multiple_of(2) {
        return Err(ConvertError::Config(format!(
            "'partial_rotary_factor' makes RoPE turn {dim} of the {head_dim} elements of a head"
        )));
    }
    Ok(dim)
}

/// Fills in the sizes of experts.
fn experts(h: &HParams, arch: &Arch, checkpoint: &Checkpoint, sizes: &mut Sizes) -> Result<(), ConvertError> {
    let names = checkpoint.names.iter().chain(checkpoint.more_names);
    let has_router = names.into_iter().any(|(_, to)| to.contains(&"ffn_gate_inp.weight"));
    if !has_router {
        return match h.find(&["num_local_experts", "num_experts"])? {
            // some dense models say that they are one expert
            None | Some(0 | 1) => Ok(()),
            Some(n) => Err(ConvertError::Config(format!(
                "there are {n} experts, and checkpoints of the class '{}' have none",
                h.class()?
            ))),
        };
    }
    if checkpoint.dense_too && h.find(EXPERTS)?.unwrap_or(0) == 0 {
        return Ok(());
    }
    let count = h.size(EXPERTS, None, MAX_EXPERTS)?;
    let used = match h.of_blocks(EXPERTS_USED[0]) {
        Some(all) => all.into_iter().max().unwrap_or(0),
        None => h.whole(h.first(EXPERTS_USED).unwrap_or(EXPERTS_USED[0]))?,
    };
    if used > count {
        return Err(ConvertError::Config(format!("'num_experts_per_tok' is {used}, and there are {count} experts")));
    }
    sizes.experts = count.into();
    sizes.expert_ff = match arch.experts.width {
        ExpertWidth::Full => sizes.ff,
        _ => h.size(EXPERT_WIDTH, Some(sizes.ff as u32), MAX_WIDTH)?.into(),
    };
    sizes.shared_ff = match arch.experts.shared {
        SharedWidth::None => 0,
        _ => {
            let width = h.find(SHARED_WIDTH)?.unwrap_or(0);
            at_most(SHARED_WIDTH[0], width, MAX_WIDTH)?.into()
        }
    };
    if arch.experts.shared == SharedWidth::KeyOrFull && sizes.shared_ff == 0 {
        sizes.shared_ff = sizes.ff;
    }
    Ok(())
}

/// Names of the number of experts.
pub(super) const EXPERTS: &[&str] = &[
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "moe_num_experts",
    "moe_num_primary_experts",
    "ffn_config.moe_num_experts",
];
/// Names of the number of experts that a token goes to.
pub(super) const EXPERTS_USED: &[&str] = &[
    "num_experts_per_tok",
    "num_experts_per_token",
    "top_k_experts",
    "moe_k",
    "moe_topk",
    "moe_top_k",
    "moe_num_active_primary_experts",
    "ffn_config.moe_top_k",
];
/// Names of the width of an expert.
const EXPERT_WIDTH: &[&str] = &["moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size"];
/// Names of the width of the expert that all tokens go to.
pub(super) const SHARED_WIDTH: &[&str] = &["shared_expert_intermediate_size", "shared_intermediate_size"];

/// Refuses what a file cannot say: it would run and give nonsense. What the reference lets pass as well is noted.
fn fixed(h: &HParams, arch: &Arch, checkpoint: &Checkpoint) -> Result<Vec<String>, ConvertError> {
    let mut notes = Vec::new();
    for (key, meant) in checkpoint.fixed {
        // newer checkpoints have the numbers of RoPE in an object
        let inner = h.get("rope_parameters").and_then(|p| p.get(key));
        let Some(value) = h.get(key).or(inner) else {
            continue;
        };
        let (fits, meant) = match meant {
            Fixed::Unset => (is_unset(value), "were not there".to_owned()),
            Fixed::True | Fixed::TrueNoted => (value.as_bool() == Some(true), "were true".to_owned()),
            Fixed::Text(text) => (value.as_str() == Some(*text), format!("were '{text}'")),
            Fixed::Number(n) => (value.as_f64() == Some(*n), format!("were {n}")),
        };
        if fits {
            continue;
        }
        let what = format!("'{key}' is {value}, and a file of architecture '{}' runs as if it {meant}", arch.name);
        let noted = checkpoint.fixed.contains(&(*key, Fixed::TrueNoted));
        if !noted {
            return Err(ConvertError::Config(what));
        }
        notes.push(what);
    }
    Ok(notes)
}

fn is_unset(value: &Value) -> bool {
    match value {
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Null => true,
        Value::Object(_) => false,
    }
}

/// The architecture by class and activation: a graph computes one, and a file that names the wrong graph would run and
/// give nonsense.
pub(super) fn architecture(h: &HParams) -> Result<(&'static Arch, &'static Checkpoint), ConvertError> {
    let class = h.class()?;
    let of_class: Vec<_> = readable().filter(|(_, c)| c.classes.contains(&class)).collect();
    let told = |key: Option<&str>| key.is_some_and(|key| h.get(key).is_some());
    let any_told = of_class.iter().any(|(_, c)| told(c.told_by));
    let of_class: Vec<_> = of_class.into_iter().filter(|(_, c)| told(c.told_by) == any_told).collect();
    let Some(&first) = of_class.first() else {
        let known: Vec<&str> = known_classes().iter().map(|(class, _)| *class).collect();
        return Err(ConvertError::UnknownArchitecture { found: class.to_owned(), known: known.join(", ") });
    };
    const NAMES: [&str; 5] =
        ["hidden_activation", "hidden_act", "activation_function", "activation", "feed_forward_proj"];
    let Some(act) = NAMES.iter().find_map(|key| h.str(key)) else {
        return Ok(first);
    };
    let found = of_class.iter().find(|(_, c)| c.activations.contains(&act));
    found.copied().ok_or_else(|| {
        let computed = of_class.iter().map(|(a, c)| format!("'{}' compute '{}'", a.name, c.activations.join("' or '")));
        ConvertError::Config(format!(
            "the activation is '{act}', and models of architecture {}",
            computed.collect::<Vec<_>>().join(", of ")
        ))
    })
}
