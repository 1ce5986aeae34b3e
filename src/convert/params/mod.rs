//! Hyper-parameters as metadata, in the order of the reference converter.

mod positions;

use serde_json::Value as JsonValue;
use trine_formats::gguf::{Array, Metadata, Value};

use super::beside::Beside;
use super::dense::Dense;
use super::drafters;
use super::error::ConvertError;
use super::hparams::HParams;
use super::lists;
use super::ngrams;
use super::outtype::OutType;
use super::rope::RopeScaling;
use super::source::{KV_HEADS, SHARED_WIDTH, Source};
use crate::arch::{HeadDim, Key, KvHeads};

/// Sources of the keys.
struct Keys<'a> {
    meta: &'a mut Metadata,
    h: &'a HParams,
    source: &'a Source,
    rope: &'a RopeScaling,
    outtype: OutType,
    beside: &'a Beside,
    target: Option<&'a HParams>,
}

/// A number of a key, which has 32 bits.
fn whole(key: &str, n: u64) -> Result<u64, ConvertError> {
    match u32::try_from(n) {
        Ok(_) => Ok(n),
        Err(_) => Err(ConvertError::Config(format!("'{key}' would be {n}, more than a file can say"))),
    }
}

/// Sets the keys of the architecture, `general.file_type` and `general.quantization_version`.
pub(super) fn write(
    [first, meta]: [&mut Metadata; 2],
    (h, target): (&HParams, Option<&HParams>),
    source: &Source,
    rope: &RopeScaling,
    outtype: OutType,
    beside: &Beside,
) -> Result<(), ConvertError> {
    let mut keys = Keys { meta: first, h, source, rope, outtype, beside, target };
    for key in source.checkpoint.first_keys {
        keys.write(key)?;
    }
    keys.meta = meta;
    let stated = source.checkpoint.keys.iter();
    for key in stated.chain(source.checkpoint.more_keys).chain(source.checkpoint.last_keys) {
        keys.write(key)?;
    }
    keys.meta.set("general.quantization_version", Value::U32(2));
    Ok(())
}

impl Keys<'_> {
    fn set(&mut self, key: &str, value: Value) {
        let key = format!("{}.{key}", self.source.arch.name);
        self.meta.put(&key, value);
    }

    fn all(&mut self, keys: Vec<(&'static str, Value)>) {
        keys.into_iter().for_each(|(key, value)| self.set(key, value));
    }

    fn size(&mut self, key: &str, n: u64) {
        self.set(key, Value::U32(n as u32));
    }

    fn write(&mut self, key: &Key) -> Result<(), ConvertError> {
        let (h, source) = (self.h, self.source);
        let sizes = &source.sizes;
        match *key {
            Key::Causal => {
                if h.bool("is_causal")? == Some(false) {
                    self.set("attention.causal", Value::Bool(false));
                }
            }
            Key::Sections => self.sections()?,
            Key::ExpertGroups => {
                for (stated, key) in [("n_group", "expert_group_count"), ("topk_group", "expert_group_used_count")] {
                    if let Some(n) = h.u32(stated)? {
                        self.size(key, n.into());
                    }
                }
            }
            Key::Gating => {
                if let Some(number) = h.gating()? {
                    self.size("expert_gating_func", number.into());
                }
            }
            Key::Blocks => self.size("block_count", source.layers.into()),
            Key::Context => self.size("context_length", sizes.context),
            Key::Embedding => self.size("embedding_length", sizes.embd),
            Key::FeedForward => self.size("feed_forward_length", sizes.ff),
            Key::Heads => self.size("attention.head_count", sizes.heads),
            Key::KvHeads => {
                let only_stated = [KvHeads::StatedAlone, KvHeads::OneWhereStated];
                if !only_stated.contains(&source.checkpoint.kv_heads) || h.first(KV_HEADS).is_some() {
                    self.size("attention.head_count_kv", sizes.kv_heads);
                }
            }
            Key::RopeScaling => self.rope_scaling(),
            Key::OriginalContext => {
                let original = self.rope.original.unwrap_or(sizes.context as u32);
                self.size("rope.scaling.original_context_length", original.into());
            }
            Key::RopeBase => {
                if self.rope.theta != 0.0 {
                    self.set("rope.freq_base", Value::F32(self.rope.theta));
                }
                if let Some(theta) = self.rope.theta_swa {
                    self.set("rope.freq_base_swa", Value::F32(theta));
                }
            }
            Key::RopeDimensions => self.size("rope.dimension_count", sizes.rope_dim),
            Key::RmsEpsilon => {
                let key = "attention.layer_norm_rms_epsilon";
                self.epsilon(key, &["rms_norm_eps", "norm_eps"], source.checkpoint.rms_eps)?;
            }
            Key::LayerEpsilon => {
                let stated = &["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"];
                let key = "attention.layer_norm_epsilon";
                self.epsilon(key, stated, source.checkpoint.layer_eps)?;
            }
            // the reference knows these names in any class, and those of single classes later
            Key::Experts => {
                if let Some(n) = h.find(&["num_local_experts", "num_experts", "n_routed_experts"])? {
                    self.size("expert_count", n.into());
                }
            }
            Key::ExpertsUsed => {
                if let Some(n) = h.find(&["num_experts_per_tok", "num_experts_per_token", "top_k_experts"])? {
                    self.size("expert_used_count", n.into());
                }
            }
            Key::ExpertWidth if sizes.experts == 0 => {}
            Key::ExpertWidth => self.size("expert_feed_forward_length", sizes.expert_ff),
            Key::SharedWidth => {
                if let Some(width) = h.find(SHARED_WIDTH)?.filter(|w| *w > 0) {
                    self.size("expert_shared_feed_forward_length", width.into());
                }
            }
            Key::HeadSizes => {
                let stated = h.get("head_dim").is_some();
                if stated || source.checkpoint.head_dim != HeadDim::Implied {
                    self.size("attention.key_length", sizes.head_dim);
                    self.size("attention.value_length", sizes.head_dim);
                }
            }
            Key::FileType => {
                let ftype = Value::U32(self.outtype.ftype);
                self.meta.put("general.file_type", ftype);
            }
            Key::VocabSize => self.size("vocab_size", sizes.vocab),
            Key::Window(assumed) => {
                if h.u32("sliding_window_pattern")? != Some(1) {
                    let window = h.u32("sliding_window")?.unwrap_or(assumed);
                    self.size("attention.sliding_window", window.into());
                }
            }
            Key::WindowLayers => {
                let layers = Value::Array(Array::Bool(self.window_layers()?));
                self.set("attention.sliding_window_pattern", layers);
            }
            Key::WindowLayersIfAny if h.get("sliding_window").is_none() => {}
            Key::WindowLayersIfAny => self.write(&Key::WindowLayers)?,
            Key::Number(stated, key, assumed) => {
                let number = h.f32(stated)?.unwrap_or(assumed);
                if number != 0.0 {
                    self.set(key, Value::F32(number));
                }
            }
            Key::Flag(stated, key, assumed) => {
                let flag = h.bool(stated)?.unwrap_or(assumed);
                self.set(key, Value::Bool(flag));
            }
            Key::FlagIf(stated, key) => {
                if let Some(flag) = h.bool(stated)? {
                    self.set(key, Value::Bool(flag));
                }
            }
            Key::FlagIfTrue(stated, key) => {
                if h.bool(stated)? == Some(true) {
                    self.set(key, Value::Bool(true));
                }
            }
            Key::Flags(stated, key) => {
                if let Some(all) = h.get(stated).and_then(JsonValue::as_array) {
                    let truth = |v: &JsonValue| v.as_bool().unwrap_or(v.as_f64() != Some(0.0));
                    self.set(key, Value::Array(Array::Bool(all.iter().map(truth).collect())));
                }
            }
            Key::SectionsOr(sections) => {
                let key = "rope.dimension_sections";
                if self.meta.get(&format!("{}.{key}", source.arch.name)).is_none() {
                    self.set(key, Value::Array(Array::I32(sections.to_vec())));
                }
            }
            Key::NoFurther(stated) => {
                if stated.is_empty() || h.get(stated).is_some() {
                    self.size("nextn_predict_layers", 0);
                }
            }
            Key::KvHeadsEvery(offset, period) => {
                let (offset, period) = (h.u32(offset)?.unwrap_or(0), h.need(period)?);
                let attends = |n: u32| n >= offset && (n - offset).is_multiple_of(period);
                let heads = |n| if attends(n) { sizes.kv_heads as i32 } else { 0 };
                let all = (0..source.layers).map(heads).collect();
                self.set("attention.head_count_kv", Value::Array(Array::I32(all)));
            }
            Key::ByPattern(pattern, letter, stated, key) => {
                let letters = h.kinds(pattern).unwrap_or_default();
                if letters.len() != source.layers as usize {
                    let count = letters.len();
                    return Err(ConvertError::Config(format!(
                        "'{pattern}' has {count} letters, and there are {} layers",
                        source.layers
                    )));
                }
                let n = h.find(stated)?.unwrap_or(0) as i32;
                let all = letters.into_iter().map(|l| if l == letter { n } else { 0 }).collect();
                self.set(key, Value::Array(Array::I32(all)));
            }
            Key::TurnedPart(stated, key) => {
                let part = h.f64(stated)?.unwrap_or(1.0);
                self.size(key, (sizes.head_dim as f64 * part) as u64);
            }
            Key::NoShift => self.meta.put("diffusion.shift_logits", Value::Bool(false)),
            Key::OwnToken(key, id) => self.meta.put(&format!("tokenizer.ggml.{key}"), Value::U32(id)),
            Key::Whole(stated, key) => {
                if let Some(n) = h.find(stated)? {
                    self.size(key, n.into());
                }
            }
            Key::WholeOr(stated, key, assumed) => {
                let n = h.find(stated)?.unwrap_or(assumed);
                self.size(key, n.into());
            }
            Key::Product(a, b, key) => {
                if let (Some(a), Some(b)) = (h.find(a)?, h.find(b)?) {
                    self.size(key, whole(key, u64::from(a) * u64::from(b))?);
                }
            }
            Key::Quotient(a, b, key) => {
                if let (Some(a), Some(b)) = (h.find(a)?, h.find(b)?) {
                    self.size(key, u64::from(a.checked_div(b).unwrap_or(0)));
                }
            }
            Key::Scaled(stated, key, factor, assumed) => {
                let number = h.first(stated).map_or(Ok(None), |k| h.f64(k))?;
                self.set(key, Value::F32((number.unwrap_or(assumed) * factor) as f32));
            }
            Key::CountOf(stated, key) => {
                let list = h.get(stated).and_then(JsonValue::as_array);
                self.size(key, list.map_or(0, |l| l.len() as u64));
            }
            Key::HeadSizesIfUnsaid => {
                if h.get("head_dim").is_none() {
                    self.size("attention.key_length", sizes.head_dim);
                    self.size("attention.value_length", sizes.head_dim);
                }
            }
            Key::Sum(a, b, key) => {
                if let (Some(a), Some(b)) = (h.find(a)?, h.find(b)?) {
                    self.size(key, whole(key, u64::from(a) + u64::from(b))?);
                }
            }
            Key::Fraction(stated, key) => {
                if let Some(number) = h.first(stated).map_or(Ok(None), |k| h.f32(k))? {
                    self.set(key, Value::F32(number));
                }
            }
            Key::FractionOr(stated, key, assumed) => {
                let number = h.first(stated).map_or(Ok(None), |k| h.f32(k))?;
                self.set(key, Value::F32(number.unwrap_or(assumed as f32)));
            }
            Key::FirstOf(stated, key) => {
                if h.get(stated).is_some() {
                    let n = h.whole(stated)?;
                    self.size(key, n.into());
                }
            }
            Key::Constant(key, n) => self.size(key, n.into()),
            Key::ConstantNumber(key, n) => self.set(key, Value::F32(n)),
            Key::ConstantFlag(key, flag) => self.set(key, Value::Bool(flag)),
            Key::PerBlock(stated, key, assumed) => {
                let number = h.f32(stated)?.unwrap_or(assumed);
                if number != 0.0 {
                    let all = vec![number; source.layers as usize];
                    self.set(key, Value::Array(Array::F32(all)));
                }
            }
            Key::LeadingDense => {
                let kinds = h.texts("mlp_layer_types", source.layers)?.unwrap_or_default();
                let leading = kinds.iter().take_while(|kind| **kind == "dense").count();
                self.size("leading_dense_block_count", leading as u64);
            }
            Key::DepthScale(stated) => {
                let depth = h.f64(stated)?.ok_or_else(|| ConvertError::Config(format!("has no '{stated}'")))?;
                let scale = depth / f64::from(source.layers).sqrt();
                self.set("residual_scale", Value::F32(scale as f32));
            }
            Key::WidthRatio(stated) => {
                let base = h.need(stated)?;
                let ratio = sizes.embd as f64 / f64::from(base);
                self.set("logit_scale", Value::F32(ratio as f32));
            }
            Key::Delta => self.delta()?,
            Key::TurnedByAxes => self.turned_by_axes()?,
            Key::KvHeadsBut(kind) => {
                let kinds = h.texts("layer_types", source.layers)?;
                let kinds = kinds.ok_or_else(|| ConvertError::Config("has no 'layer_types'".into()))?;
                let heads = |k: &&str| if *k == kind { 0 } else { sizes.kv_heads as i32 };
                let all = kinds.iter().map(heads).collect();
                self.set("attention.head_count_kv", Value::Array(Array::I32(all)));
            }
            Key::Pooling => {
                if let Some(kind) = self.beside.pooling {
                    self.size("pooling_type", kind.into());
                }
            }
            Key::Dense => {
                for Dense { name, widths: [into, out], .. } in &self.beside.dense {
                    self.size(&format!("{name}_feat_in"), u64::from(*into));
                    self.size(&format!("{name}_feat_out"), u64::from(*out));
                }
            }
            Key::Template(text) => self.meta.put("tokenizer.chat_template", Value::str(text)),
            Key::Token(stated, key) => {
                if let Some(id) = h.u32(stated)? {
                    self.meta.put(&format!("tokenizer.ggml.{key}"), Value::U32(id));
                }
            }
            Key::Stretched(alpha, context) => self.stretched(alpha, context)?,
            Key::YarnLog(factor) => {
                let stated = h.get("rope_parameters").or(h.get("rope_scaling"));
                let stated = stated.and_then(|s| s.get("mscale_all_dim")).and_then(JsonValue::as_f64);
                if let Some(dimension) = stated {
                    let log = factor * dimension;
                    self.set("rope.scaling.yarn_log_multiplier", Value::F32(log as f32));
                }
            }
            Key::Text(key, text) => self.set(key, Value::str(text)),
            Key::UnitScaling => {
                self.set("rope.scaling.type", Value::str("linear"));
                self.set("rope.scaling.factor", Value::F32(1.0));
            }
            Key::TokenFlag(key, flag) => self.meta.put(&format!("tokenizer.ggml.{key}"), Value::Bool(flag)),
            Key::Suppressed => {
                if let Some(ids) = &self.beside.suppressed {
                    self.meta.put("tokenizer.ggml.suppress_tokens", Value::Array(Array::I32(ids.clone())));
                }
            }
            Key::Copied(stated, key) => {
                if let Some(text) = h.str(stated) {
                    self.set(key, Value::str(text));
                }
            }
            Key::NamedPooling(stated, key) => match h.str(stated) {
                None => {}
                Some("mean") => self.size(key, 1),
                Some("cls") => self.size(key, 2),
                Some(other) => {
                    return Err(ConvertError::Config(format!("'{stated}' is '{other}'; known are mean and cls")));
                }
            },
            Key::Ngrams => self.all(ngrams::keys(h, self.beside.ngrams.as_ref(), source.layers)?),
            Key::DraftsByStates => self.all(drafters::by_states(h, self.target)?),
            Key::DraftsByBlocks => self.all(drafters::by_blocks(h, self.target, source)?),
            Key::Labels => {
                if let Some((key, value)) = lists::labels(h)? {
                    self.set(key, value);
                }
            }
            ref other => {
                if let Some((key, value)) = lists::list(other, h, source)? {
                    self.set(key, value);
                }
            }
        }
        Ok(())
    }

    /// An epsilon under the first of its names that is there, where the class has one.
    fn epsilon(&mut self, key: &str, stated: &[&str], assumed: Option<f32>) -> Result<(), ConvertError> {
        let Some(assumed) = assumed else {
            return Ok(());
        };
        let found = self.h.first(stated);
        let eps = found.map_or(Ok(None), |k| self.h.f32(k))?;
        self.set(key, Value::F32(eps.unwrap_or(assumed)));
        Ok(())
    }

    /// Which layers have a window.
    fn window_layers(&self) -> Result<Vec<bool>, ConvertError> {
        let layers = self.source.layers;
        Ok(match self.h.texts("layer_types", layers)? {
            None => (1..=layers).map(|n| !n.is_multiple_of(4)).collect(),
            Some(types) => types.into_iter().map(|t| t == "sliding_attention").collect(),
        })
    }

    /// Gated DeltaNet (`Qwen3NextModel.set_gguf_parameters` of the reference).
    fn delta(&mut self) -> Result<(), ConvertError> {
        let (h, layers) = (self.h, self.source.layers);
        let values = h.need("linear_num_value_heads")?;
        let inner = u64::from(h.need("linear_value_head_dim")?) * u64::from(values);
        self.size("ssm.conv_kernel", h.need("linear_conv_kernel_dim")?.into());
        self.size("ssm.state_size", h.need("linear_key_head_dim")?.into());
        self.size("ssm.group_count", h.need("linear_num_key_heads")?.into());
        self.size("ssm.time_step_rank", values.into());
        self.size("ssm.inner_size", whole("linear_value_head_dim", inner)?);
        if let Some(types) = h.texts("layer_types", layers)? {
            let recurrent = types.into_iter().map(|t| t == "linear_attention").collect();
            self.set("attention.recurrent_layers", Value::Array(Array::Bool(recurrent)));
        }
        self.size("full_attention_interval", h.u32("full_attention_interval")?.unwrap_or(4).into());
        self.size("rope.dimension_count", self.source.sizes.rope_dim);
        Ok(())
    }
}
