//! Drafters: what their files take of the folder of the model that they draft for, their keys, and the tokens of that
//! model which those of a shorter vocabulary are.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value as JsonValue;
use trine_formats::gguf::{Array, Value};
use trine_formats::safetensors::{Dtype, Tensor};
use trine_formats::types::TypeId;

use super::error::ConvertError;
use super::folder::{Folder, Source as Stored};
use super::hparams::HParams;
use super::row::{Content, Row};
use super::source::{Source, architecture};
use super::vocab::Tokens;
use crate::arch::{Checkpoint, Target as Use};

/// The vector of the token that stands for others, in a file of PyTorch, where a drafter has one.
const MASK: &str = "mask_embedding.pt";
/// Most tokens of a drafter's vocabulary.
const MOST: u64 = 1 << 20;

/// The model that another drafts for.
pub(super) struct Target {
    /// Its folder.
    pub folder: Folder,
    /// Its `config.json`.
    pub h: HParams,
    /// Its class, where that reads the tokenizer.
    class: Option<&'static Checkpoint>,
}

impl Target {
    /// Opens the folder that was named, for classes that need one; `own` is that of the drafter.
    pub fn open(path: Option<&Path>, own: &Folder, source: &mut Source) -> Result<Option<Target>, ConvertError> {
        let (path, rules) = match (path, source.checkpoint.target) {
            (None, Use::None) => return Ok(None),
            (Some(path), rules) if rules != Use::None => (path, rules),
            (None, _) => return Err(ConvertError::TargetNeeded(source.arch.name)),
            (Some(_), _) => return Err(ConvertError::TargetUnused(source.arch.name)),
        };
        if own.path.join(MASK).is_file() {
            return Err(ConvertError::MaskVector(MASK));
        }
        let folder = Folder::open(path)?;
        let config = folder.json("config.json")?.ok_or_else(|| ConvertError::Missing {
            folder: path.to_owned(),
            file: "config.json".into(),
            hint: "give the folder of the model that this one drafts for",
        })?;
        let h = HParams::new(config)?;
        let class = match rules {
            Use::ItsRules => Some(architecture(&h)?.1),
            _ => None,
        };
        source.target_tokens = Some(h.need("vocab_size")?);
        Ok(Some(Target { folder, h, class }))
    }

    /// The tokenizer of the folder in place of one of the drafter.
    pub fn tokens<'a>(&'a self, own: Tokens<'a>) -> Tokens<'a> {
        Tokens { folder: &self.folder, beside: &self.h, checkpoint: self.class.unwrap_or(own.checkpoint), ..own }
    }
}

/// A list of numbers of blocks, each one more by `more`.
fn blocks(h: &HParams, key: &str, more: i32) -> Result<Option<Vec<i32>>, ConvertError> {
    let Some(stated) = h.get(key) else { return Ok(None) };
    let number = |v: &JsonValue| v.as_u64().and_then(|n| i32::try_from(n).ok()?.checked_add(more));
    let all = stated.as_array().and_then(|all| all.iter().map(number).collect::<Option<Vec<i32>>>());
    let all = all.ok_or_else(|| ConvertError::Config(format!("'{key}' is {stated}, expected numbers of blocks")))?;
    Ok(Some(all).filter(|all| !all.is_empty()))
}

/// Keys of EAGLE-3 (`LlamaModel.__init__` of the reference).
pub(super) fn by_states(h: &HParams, target: Option<&HParams>) -> Result<Vec<(&'static str, Value)>, ConvertError> {
    let Some(target) = target else { return Ok(Vec::new()) };
    let layers = target.need("num_hidden_layers")? as i32;
    let heard = blocks(h, "eagle_aux_hidden_state_layer_ids", 0)?.unwrap_or_else(|| vec![2, layers / 2, layers - 3]);
    let width = match h.u32("target_hidden_size")? {
        Some(n) => n,
        None => target.need("hidden_size")?,
    };
    let mut keys = vec![("target_layers", Value::Array(Array::I32(heard))), ("target_hidden_size", Value::U32(width))];
    for key in ["norm_before_residual", "norm_before_fc"] {
        keys.push((key, Value::Bool(h.bool(key)?.unwrap_or(false))));
    }
    Ok(keys)
}

/// Keys of DFlash (`DFlashModel.set_gguf_parameters` of the reference).
pub(super) fn by_blocks(
    h: &HParams,
    target: Option<&HParams>,
    source: &Source,
) -> Result<Vec<(&'static str, Value)>, ConvertError> {
    // the object of the drafter's numbers comes first
    let within = |key: &str| format!("dflash_config.{key}");
    let number = |key: &str| match h.f32(&within(key))? {
        Some(n) => Ok(Some(n)),
        None => h.f32(key),
    };
    let mut keys = Vec::new();
    let rope = h.get("rope_parameters").or(h.get("rope_scaling"));
    let part = rope.and_then(|r| r.get("partial_rotary_factor")?.as_f64());
    if let Some(part) = part.or(h.f64("partial_rotary_factor")?) {
        let turned = (source.sizes.head_dim as f64 * part) as u32;
        keys.push(("rope.dimension_count", Value::U32(turned)));
    }
    if let Some(scale) = h.f32(&within("attention_value_scale"))? {
        keys.push(("attention.value_scale", Value::F32(scale)));
    }
    let size = h.find(&[&within("block_size"), "block_size"])?.unwrap_or(16);
    keys.push(("block_size", Value::U32(size)));
    if let Some(scale) = number("output_multiplier")? {
        keys.push(("logit_scale", Value::F32(scale)));
    }
    if let Some(cap) = number("final_logit_softcapping")?.filter(|cap| *cap > 0.0) {
        keys.push(("final_logit_softcapping", Value::F32(cap)));
    }
    if let Some(scale) = number("input_embedding_scale")? {
        keys.push(("embedding_scale", Value::F32(scale)));
    }
    let heard = match blocks(h, &within("target_layer_ids"), 1)? {
        Some(all) => Some(all),
        None => blocks(h, "target_layer_ids", 1)?,
    };
    keys.extend(heard.map(|all| ("target_layers", Value::Array(Array::I32(all)))));
    let all = h.bool(&within("use_swa"))? == Some(true);
    let any = all || h.bool("use_sliding_window")? == Some(true);
    let stated = h.u32(&within("swa_window_size"))?.filter(|n| *n > 0);
    let window = stated.or(h.u32("sliding_window")?.filter(|n| *n > 0));
    if let (true, Some(window)) = (any, window) {
        let kinds = h.texts("layer_types", source.layers)?.unwrap_or_default();
        let windowed = match all {
            true => vec![true; source.layers as usize],
            false => kinds.into_iter().map(|kind| kind == "sliding_attention").collect(),
        };
        keys.push(("attention.sliding_window", Value::U32(window)));
        keys.push(("attention.sliding_window_pattern", Value::Array(Array::Bool(windowed))));
    }
    let causal = match h.bool("is_causal")? {
        Some(causal) => Some(causal),
        None => h.bool(&within("causal"))?,
    };
    keys.extend(causal.map(|causal| ("attention.causal", Value::Bool(causal))));
    let rope = target.and_then(|t| t.get("rope_parameters").or(t.get("rope_scaling")));
    if rope.is_some_and(|r| r.get("mrope_section").is_some()) {
        let pairs = (source.sizes.head_dim / 2) as i32;
        keys.push(("rope.dimension_sections", Value::Array(Array::I32(vec![pairs, 0, 0, 0]))));
    }
    Ok(keys)
}

/// The tokens of the other model that the numbers of a tensor are, which stand there less their places.
pub(super) fn tokens(folder: &Folder, s: &Stored, vocab: Option<u32>) -> Result<Vec<i64>, String> {
    let t = &s.tensor;
    let count: u64 = t.shape.iter().product();
    if t.dtype != Dtype::I64 || count == 0 || count > MOST {
        return Err(format!("'{}' is of shape {:?} and type {}, expected I64", t.name, t.shape, t.dtype.name()));
    }
    let mut bytes = vec![0; count as usize * 8];
    folder.shards.read(s.shard, t.offset, &mut bytes).map_err(|e| e.to_string())?;
    let offsets = bytes.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap_or_default()));
    let all: Vec<i64> = offsets.zip(0..).map(|(offset, n)| offset.saturating_add(n)).collect();
    let known = i64::from(vocab.unwrap_or(0));
    if let Some(n) = all.iter().position(|id| !(0..known).contains(id)) {
        return Err(format!("'{}' makes token {n} the token {} of {known}", t.name, all[n]));
    }
    if all.iter().collect::<BTreeSet<_>>().len() != all.len() {
        return Err(format!("'{}' makes two tokens the same one", t.name));
    }
    Ok(all)
}

/// The tensor of such tokens.
pub(super) fn row(name: &str, t: &Tensor, tokens: Vec<i64>) -> Row {
    Row {
        name: name.to_owned(),
        source: t.name.clone(),
        from: t.dtype.name(),
        shape: vec![tokens.len() as u64],
        ty: TypeId::I64,
        content: Content::Longs(tokens),
    }
}
