//! Hyper-parameters as metadata, in the order of the reference converter.

use trine_formats::gguf::{Array, Metadata, Value};

use super::error::ConvertError;
use super::hparams::HParams;
use super::outtype::OutType;
use super::rope::{Kind, RopeScaling};
use super::source::{SHARED_WIDTH, Source};
use crate::arch::{HeadDim, Key};

/// Sources of the keys.
struct Keys<'a> {
    meta: &'a mut Metadata,
    h: &'a HParams,
    source: &'a Source,
    rope: &'a RopeScaling,
    outtype: OutType,
}

/// Sets the keys of the architecture, `general.file_type` and `general.quantization_version`.
pub(super) fn write(
    meta: &mut Metadata,
    h: &HParams,
    source: &Source,
    rope: &RopeScaling,
    outtype: OutType,
) -> Result<(), ConvertError> {
    let mut keys = Keys { meta, h, source, rope, outtype };
    let stated = source.checkpoint.keys.iter();
    for key in stated.chain(source.checkpoint.more_keys) {
        keys.write(key)?;
    }
    meta.set("general.quantization_version", Value::U32(2));
    Ok(())
}

impl Keys<'_> {
    fn set(&mut self, key: &str, value: Value) {
        let key = format!("{}.{key}", self.source.arch.name);
        self.meta.put(&key, value);
    }

    fn size(&mut self, key: &str, n: u64) {
        self.set(key, Value::U32(n as u32));
    }

    fn write(&mut self, key: &Key) -> Result<(), ConvertError> {
        let (h, source) = (self.h, self.source);
        let sizes = &source.sizes;
        match *key {
            Key::Blocks => self.size("block_count", source.layers.into()),
            Key::Context => self.size("context_length", sizes.context),
            Key::Embedding => self.size("embedding_length", sizes.embd),
            Key::FeedForward => self.size("feed_forward_length", sizes.ff),
            Key::Heads => self.size("attention.head_count", sizes.heads),
            Key::KvHeads => self.size("attention.head_count_kv", sizes.kv_heads),
            Key::RopeScaling => self.rope_scaling(),
            Key::OriginalContext => {
                let original = self.rope.original.unwrap_or(sizes.context as u32);
                self.size("rope.scaling.original_context_length", original.into());
            }
            Key::RopeBase => {
                self.set("rope.freq_base", Value::F32(self.rope.theta));
                if let Some(theta) = self.rope.theta_swa {
                    self.set("rope.freq_base_swa", Value::F32(theta));
                }
            }
            Key::RopeDimensions => self.size("rope.dimension_count", sizes.rope_dim),
            Key::RmsEpsilon => {
                let key = "attention.layer_norm_rms_epsilon";
                self.epsilon(key, &["rms_norm_eps"], source.checkpoint.rms_eps)?;
            }
            Key::LayerEpsilon => {
                let stated = &["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"];
                let key = "attention.layer_norm_epsilon";
                self.epsilon(key, stated, source.checkpoint.layer_eps)?;
            }
            Key::Experts | Key::ExpertsUsed if sizes.experts == 0 => {}
            Key::Experts => self.size("expert_count", sizes.experts),
            Key::ExpertsUsed => self.size("expert_used_count", source.experts_used.into()),
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
            Key::Constant(key, n) => self.size(key, n.into()),
            Key::Text(key, text) => self.set(key, Value::str(text)),
            Key::UnitScaling => {
                self.set("rope.scaling.type", Value::str("linear"));
                self.set("rope.scaling.factor", Value::F32(1.0));
            }
            Key::NoBos => {
                let key = "tokenizer.ggml.add_bos_token";
                self.meta.put(key, Value::Bool(false));
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
        let Some(types) = self.h.get("layer_types") else {
            return Ok((1..=layers).map(|n| !n.is_multiple_of(4)).collect());
        };
        let types = types.as_array().map_or(&[][..], Vec::as_slice);
        if types.len() != layers as usize {
            return Err(ConvertError::Config(format!(
                "'layer_types' has {} entries, and there are {layers} layers",
                types.len()
            )));
        }
        Ok(types.iter().map(|t| t == "sliding_attention").collect())
    }

    fn rope_scaling(&mut self) {
        let kind = |name| ("type", Value::str(name));
        let values = match &self.rope.kind {
            Kind::None | Kind::Llama3 | Kind::ByContext { .. } => return,
            Kind::Linear { factor } => vec![kind("linear"), ("factor", Value::F32(*factor))],
            Kind::Yarn { factor, original, extra } => {
                let mut values = vec![
                    kind("yarn"),
                    ("factor", Value::F32(*factor)),
                    ("original_context_length", Value::U32(*original)),
                ];
                values.extend(extra.iter().map(|(key, v)| (*key, Value::F32(*v))));
                values
            }
        };
        for (key, value) in values {
            self.set(&format!("rope.scaling.{key}"), value);
        }
    }
}
