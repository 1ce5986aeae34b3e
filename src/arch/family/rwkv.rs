//! RWKV 6 and 7, and ARWKV with gated networks: no attention; a matrix for every head that decays with every position.

use crate::arch::parts::{
    ATTN_NORM, ENDS, FFN_NORM, GATED_FFN, Group, OUTPUT_NORM_BIAS, OUTPUT_NORM_BIAS_OPTIONAL, OUTPUT_REQUIRED,
    TOKEN_NORM,
};
use crate::arch::rules::{Mixing, NormKind, Recurrence, RopeRule};
use crate::arch::rwkv_parts::{
    CHANNEL_GATE, CHANNEL_MIX, RWKV_NORMS, SHARED_KEYS, TIME_MIX, TIME_MIX_6, TIME_MIX_6_ALONE, TIME_MIX_7,
    TIME_MIX_7_ALONE,
};
use crate::arch::{Arch, Checkpoint, Fixed, Key, Step};

/// Tensors outside the blocks.
const RWKV_ENDS: &[Group] = &[ENDS, TOKEN_NORM, OUTPUT_NORM_BIAS, OUTPUT_REQUIRED];

/// `rwkv7`.
pub const RWKV7: Arch = Arch {
    name: "rwkv7",
    models: "RWKV 7",
    ends: RWKV_ENDS,
    block: &[RWKV_NORMS, TIME_MIX, TIME_MIX_7, CHANNEL_MIX],
    norm: NormKind::Layer,
    mixing: Mixing::Recurrent(Recurrence::Rwkv7),
    rope: RopeRule::NONE,
    scaled: &[],
    // those of the first block, whose values are its own
    ignored: &["time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight"],
    fixed_keys: &[("token_shift_count", 2)],
    ..Arch::DENSE
};

/// `arwkv7`.
pub const ARWKV7: Arch = Arch {
    name: "arwkv7",
    models: "ARWKV 7",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: &[ATTN_NORM, TIME_MIX_7_ALONE, FFN_NORM, GATED_FFN],
    norm: NormKind::Rms,
    mixing: Mixing::Recurrent(Recurrence::Rwkv7Alone),
    fixed_keys: &[("token_shift_count", 1)],
    checkpoints: &[&Checkpoint {
        classes: &["RwkvHybridForCausalLM"],
        names: &[
            ("self_attn.time_mixer.x_r", &["time_mix_lerp_fused.weight"]),
            ("self_attn.time_mixer.x_w", &["time_mix_lerp_fused.weight"]),
            ("self_attn.time_mixer.x_k", &["time_mix_lerp_fused.weight"]),
            ("self_attn.time_mixer.x_v", &["time_mix_lerp_fused.weight"]),
            ("self_attn.time_mixer.x_a", &["time_mix_lerp_fused.weight"]),
            ("self_attn.time_mixer.x_g", &["time_mix_lerp_fused.weight"]),
            ("self_attn.time_mixer.w0", &["time_mix_w0.weight"]),
            ("self_attn.time_mixer.w1", &["time_mix_w1.weight"]),
            ("self_attn.time_mixer.w2", &["time_mix_w2.weight"]),
            ("self_attn.time_mixer.a0", &["time_mix_a0.weight"]),
            ("self_attn.time_mixer.a1", &["time_mix_a1.weight"]),
            ("self_attn.time_mixer.a2", &["time_mix_a2.weight"]),
            ("self_attn.time_mixer.v0", &["time_mix_v0.weight"]),
            ("self_attn.time_mixer.v1", &["time_mix_v1.weight"]),
            ("self_attn.time_mixer.v2", &["time_mix_v2.weight"]),
            ("self_attn.time_mixer.g1", &["time_mix_g1.weight"]),
            ("self_attn.time_mixer.g2", &["time_mix_g2.weight"]),
            ("self_attn.time_mixer.k_k", &["time_mix_k_k.weight"]),
            ("self_attn.time_mixer.k_a", &["time_mix_k_a.weight"]),
            ("self_attn.time_mixer.r_k", &["time_mix_r_k.weight"]),
            ("self_attn.time_mixer.receptance.weight", &["time_mix_receptance.weight"]),
            ("self_attn.time_mixer.key.weight", &["time_mix_key.weight"]),
            ("self_attn.time_mixer.value.weight", &["time_mix_value.weight"]),
            ("self_attn.time_mixer.output.weight", &["time_mix_output.weight"]),
            ("self_attn.time_mixer.ln_x.weight", &["time_mix_ln.weight"]),
            ("self_attn.time_mixer.ln_x.bias", &["time_mix_ln.bias"]),
        ],
        steps: &[
            ("self_attn.time_mixer.x_r", &[Step::Item(0)]),
            ("self_attn.time_mixer.x_w", &[Step::Item(1)]),
            ("self_attn.time_mixer.x_k", &[Step::Item(2)]),
            ("self_attn.time_mixer.x_v", &[Step::Item(3)]),
            ("self_attn.time_mixer.x_a", &[Step::Item(4)]),
            ("self_attn.time_mixer.x_g", &[Step::Item(5)]),
            ("self_attn.time_mixer.w1", &[Step::Transposed, Step::InFloats]),
            ("self_attn.time_mixer.w2", &[Step::Transposed, Step::InFloats]),
            ("self_attn.time_mixer.a1", &[Step::Transposed]),
            ("self_attn.time_mixer.a2", &[Step::Transposed]),
            ("self_attn.time_mixer.v1", &[Step::Transposed]),
            ("self_attn.time_mixer.v2", &[Step::Transposed]),
            ("self_attn.time_mixer.g1", &[Step::Transposed]),
            ("self_attn.time_mixer.g2", &[Step::Transposed]),
            ("self_attn.time_mixer.r_k", &[Step::Reshaped]),
        ],
        first_twice: &[
            ("time_mix_a0.weight", "time_mix_v0.weight"),
            ("time_mix_a1.weight", "time_mix_v1.weight"),
            ("time_mix_a2.weight", "time_mix_v2.weight"),
        ],
        fixed: &[("wkv_version", Fixed::Number(7.0)), ("wkv_has_gate", Fixed::True)],
        keys: &[
            Key::Constant("context_length", 1 << 20),
            Key::Embedding,
            Key::Blocks,
            Key::RmsEpsilon,
            Key::Whole(&["head_size"], "wkv.head_size"),
            Key::Constant("attention.decay_lora_rank", 64),
            Key::Constant("attention.iclr_lora_rank", 64),
            Key::Constant("attention.value_residual_mix_lora_rank", 32),
            Key::Constant("attention.gate_lora_rank", 128),
            Key::FeedForward,
            Key::FileType,
            Key::Constant("token_shift_count", 1),
            Key::Constant("attention.head_count", 0),
        ],
        ..Checkpoint::USUAL
    }],
    ..RWKV7
};

/// `rwkv6qwen2`.
pub const RWKV6QWEN2: Arch = Arch {
    name: "rwkv6qwen2",
    models: "QRWKV 6",
    ends: &[ENDS, OUTPUT_NORM_BIAS_OPTIONAL, OUTPUT_REQUIRED],
    block: &[ATTN_NORM, SHARED_KEYS, TIME_MIX_6_ALONE, FFN_NORM, GATED_FFN],
    mixing: Mixing::Recurrent(Recurrence::Rwkv6Alone),
    ignored: &[],
    checkpoints: &[&Checkpoint {
        classes: &["RWKV6Qwen2ForCausalLM"],
        names: &[
            ("self_attn.time_maa_x", &["time_mix_lerp_x.weight"]),
            ("self_attn.time_maa_w", &["time_mix_lerp_fused.weight"]),
            ("self_attn.time_maa_k", &["time_mix_lerp_fused.weight"]),
            ("self_attn.time_maa_v", &["time_mix_lerp_fused.weight"]),
            ("self_attn.time_maa_r", &["time_mix_lerp_fused.weight"]),
            ("self_attn.time_maa_g", &["time_mix_lerp_fused.weight"]),
            ("self_attn.time_maa_w1", &["time_mix_w1.weight"]),
            ("self_attn.time_maa_w2", &["time_mix_w2.weight"]),
            ("self_attn.time_decay", &["time_mix_decay.weight"]),
            ("self_attn.time_decay_w1", &["time_mix_decay_w1.weight"]),
            ("self_attn.time_decay_w2", &["time_mix_decay_w2.weight"]),
            ("self_attn.q_proj.weight", &["time_mix_receptance.weight"]),
            ("self_attn.q_proj.bias", &["time_mix_receptance.bias"]),
            ("self_attn.k_proj.weight", &["time_mix_key.weight"]),
            ("self_attn.k_proj.bias", &["time_mix_key.bias"]),
            ("self_attn.v_proj.weight", &["time_mix_value.weight"]),
            ("self_attn.v_proj.bias", &["time_mix_value.bias"]),
            ("self_attn.gate.weight", &["time_mix_gate.weight"]),
            ("self_attn.o_proj.weight", &["time_mix_output.weight"]),
        ],
        steps: &[
            ("self_attn.time_maa_x", &[Step::Flat]),
            ("self_attn.time_maa_w", &[Step::Item(0)]),
            ("self_attn.time_maa_k", &[Step::Item(1)]),
            ("self_attn.time_maa_v", &[Step::Item(2)]),
            ("self_attn.time_maa_r", &[Step::Item(3)]),
            ("self_attn.time_maa_g", &[Step::Item(4)]),
            ("self_attn.time_maa_w1", &[Step::Transposed, Step::InFifths, Step::InFloats]),
            ("self_attn.time_maa_w2", &[Step::Transposed, Step::InFifths, Step::InFloats]),
            ("self_attn.time_decay_w1", &[Step::Transposed, Step::InFloats]),
            ("self_attn.time_decay_w2", &[Step::Transposed, Step::InFloats]),
        ],
        fixed: &[("rescale_every", Fixed::Unset)],
        keys: &[
            Key::Constant("context_length", 1 << 20),
            Key::Embedding,
            Key::Blocks,
            Key::Quotient(&["hidden_size"], &["num_attention_heads"], "wkv.head_size"),
            Key::ByWidth("lora_rank_tokenshift", "time_mix_extra_dim", [64, 32]),
            Key::ByWidth("lora_rank_decay", "time_decay_extra_dim", [128, 64]),
            Key::FeedForward,
            Key::FileType,
            Key::RmsEpsilon,
            Key::Constant("token_shift_count", 1),
            Key::KvHeads,
            Key::Constant("attention.head_count", 0),
        ],
        ..Checkpoint::USUAL
    }],
    ..ARWKV7
};

/// `rwkv6`.
pub const RWKV6: Arch = Arch {
    name: "rwkv6",
    models: "RWKV 6",
    block: &[RWKV_NORMS, TIME_MIX, TIME_MIX_6, CHANNEL_MIX, CHANNEL_GATE],
    mixing: Mixing::Recurrent(Recurrence::Rwkv6),
    ignored: &[],
    ..RWKV7
};
