//! Hyper-parameters as metadata, in the order of the reference converter.

use trine_formats::gguf::{Metadata, Value};

use super::arch::{Arch, HeadDim};
use super::error::ConvertError;
use super::hparams::HParams;
use super::outtype::OutType;
use super::rope::{Kind, RopeScaling};

/// Sets the keys of the architecture, `general.file_type` and `general.quantization_version`.
pub(super) fn write(
    meta: &mut Metadata,
    h: &HParams,
    arch: &Arch,
    rope: &RopeScaling,
    outtype: OutType,
) -> Result<(), ConvertError> {
    let a = arch.name;
    let family = arch.family;
    let mut set = |key: &str, value: Value| meta.set(&format!("{a}.{key}"), value);
    let context = h
        .u32("max_position_embeddings")?
        .unwrap_or(family.defaults.context);
    set("block_count", Value::U32(arch.layers));
    set("context_length", Value::U32(context));
    set("embedding_length", Value::U32(arch.embd));
    set("feed_forward_length", Value::U32(arch.ff));
    set("attention.head_count", Value::U32(arch.heads));
    set("attention.head_count_kv", Value::U32(arch.kv_heads));
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
    let eps = h.f32("rms_norm_eps")?.unwrap_or(family.defaults.rms_eps);
    set("attention.layer_norm_rms_epsilon", Value::F32(eps));
    let stated = h.get("head_dim").is_some() || family.defaults.head_dim != HeadDim::Implied;
    if stated {
        set("attention.key_length", Value::U32(arch.head_dim));
        set("attention.value_length", Value::U32(arch.head_dim));
    }
    meta.set("general.file_type", Value::U32(outtype.ftype));
    let mut set = |key: &str, value: Value| meta.set(&format!("{a}.{key}"), value);
    match a {
        "llama" | "bitnet-b1.58" => {
            set("vocab_size", Value::U32(arch.vocab));
            set("rope.dimension_count", Value::U32(arch.head_dim));
        }
        "bitnet" => {
            // what the loader expects of this architecture; a factor of 1 changes nothing
            set("rope.scaling.type", Value::str("linear"));
            set("rope.scaling.factor", Value::F32(1.0));
        }
        "gemma3" => {
            if let Some(cap) = h.f32("final_logit_softcapping")?.filter(|c| *c != 0.0) {
                set("final_logit_softcapping", Value::F32(cap));
            }
            if h.get("attn_logit_softcapping").is_some() {
                return Err(ConvertError::Config(
                    "'attn_logit_softcapping' is not part of Gemma 3".into(),
                ));
            }
            if h.u32("sliding_window_pattern")? != Some(1) {
                set(
                    "attention.sliding_window",
                    Value::U32(h.u32("sliding_window")?.unwrap_or(4096)),
                );
            }
        }
        _ => {}
    }
    meta.set("general.quantization_version", Value::U32(2));
    Ok(())
}
