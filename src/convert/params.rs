//! Hyper-parameters as metadata, in the order of the reference converter.

use trine_formats::gguf::{Metadata, Value};

use super::error::ConvertError;
use super::hparams::HParams;
use super::outtype::OutType;
use super::rope::{Kind, RopeScaling};
use super::source::Source;
use crate::arch::rules::LogitCap;
use crate::arch::{self, HeadDim};

/// Sets the keys of the architecture, `general.file_type` and `general.quantization_version`.
pub(super) fn write(
    meta: &mut Metadata,
    h: &HParams,
    source: &Source,
    rope: &RopeScaling,
    outtype: OutType,
) -> Result<(), ConvertError> {
    let (name, sizes, checkpoint) = (source.arch.name, &source.sizes, source.checkpoint);
    let size = |n: u64| Value::U32(n as u32);
    let mut set = |key: &str, value: Value| meta.set(&format!("{name}.{key}"), value);
    let context = h
        .u32("max_position_embeddings")?
        .unwrap_or(checkpoint.context);
    set("block_count", Value::U32(source.layers));
    set("context_length", Value::U32(context));
    set("embedding_length", size(sizes.embd));
    set("feed_forward_length", size(sizes.ff));
    set("attention.head_count", size(sizes.heads));
    set("attention.head_count_kv", size(sizes.kv_heads));
    match &rope.kind {
        Kind::None | Kind::Llama3 => {}
        Kind::Linear { factor } => {
            set("rope.scaling.type", Value::str("linear"));
            set("rope.scaling.factor", Value::F32(*factor));
        }
        Kind::Yarn {
            factor,
            original,
            extra,
        } => {
            set("rope.scaling.type", Value::str("yarn"));
            set("rope.scaling.factor", Value::F32(*factor));
            set(
                "rope.scaling.original_context_length",
                Value::U32(*original),
            );
            for (key, value) in extra {
                set(&format!("rope.scaling.{key}"), Value::F32(*value));
            }
        }
    }
    set("rope.freq_base", Value::F32(rope.theta));
    if let Some(theta) = rope.theta_swa {
        set("rope.freq_base_swa", Value::F32(theta));
    }
    let eps = h.f32("rms_norm_eps")?.unwrap_or(checkpoint.rms_eps);
    set("attention.layer_norm_rms_epsilon", Value::F32(eps));
    let stated = h.get("head_dim").is_some() || checkpoint.head_dim != HeadDim::Implied;
    if stated {
        set("attention.key_length", size(sizes.head_dim));
        set("attention.value_length", size(sizes.head_dim));
    }
    meta.set("general.file_type", Value::U32(outtype.ftype));
    let mut set = |key: &str, value: Value| meta.set(&format!("{name}.{key}"), value);
    if checkpoint.states_sizes {
        set("vocab_size", size(sizes.vocab));
        set("rope.dimension_count", size(sizes.rope_dim));
    }
    if checkpoint.rope_scaling == arch::RopeScaling::One {
        set("rope.scaling.type", Value::str("linear"));
        set("rope.scaling.factor", Value::F32(1.0));
    }
    if source.arch.output.softcap != LogitCap::None {
        if let Some(cap) = h.f32("final_logit_softcapping")?.filter(|c| *c != 0.0) {
            set("final_logit_softcapping", Value::F32(cap));
        }
        if h.get("attn_logit_softcapping").is_some() {
            return Err(ConvertError::Config(format!(
                "'attn_logit_softcapping' is not part of architecture '{name}'"
            )));
        }
    }
    if let Some(window) = checkpoint.window
        && h.u32("sliding_window_pattern")? != Some(1)
    {
        let window = h.u32("sliding_window")?.unwrap_or(window);
        set("attention.sliding_window", Value::U32(window));
    }
    for (stated, key, assumed) in checkpoint.numbers {
        let number = h.f32(stated)?.unwrap_or(*assumed);
        if number != 0.0 {
            set(key, Value::F32(number));
        }
    }
    meta.set("general.quantization_version", Value::U32(2));
    Ok(())
}
