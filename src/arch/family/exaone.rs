//! EXAONE 3, EXAONE 4 (norms after the sublayers of a block, RoPE in layers with a window alone) and its experts.

use super::qwen::DOWN_GATE_UP;
use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, EXPERTS, SHARED};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_POST_NORM, ENDS, FFN_NORM, FFN_POST_NORM, GATED_FFN, Group, HEAD_NORMS, OUTPUT_OR_TIED,
    OUTPUT_REQUIRED, QKV, QKV_BIAS_OPTIONAL, ROPE_FACTORS, begun,
};
use crate::arch::rules::{ExpertRule, GatingRule, RopeLayers, RopeRule, SharedWidth, WindowRule, WindowSize};
use crate::arch::{Arch, Checkpoint, HeadDim, Key, Rotary, Tokenizer};

/// `exaone`.
pub const EXAONE: Arch = Arch {
    name: "exaone",
    models: "EXAONE 3, EXAONE Deep",
    ends: &[ENDS, OUTPUT_OR_TIED, ROPE_FACTORS],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    checkpoints: &[&Checkpoint {
        classes: &["ExaoneForCausalLM"],
        root: "transformer",
        blocks: "h",
        names: &[
            ("wte.weight", &["token_embd.weight"]),
            ("ln_f.weight", &["output_norm.weight"]),
            ("ln_1.weight", &["attn_norm.weight"]),
            ("attn.attention.q_proj.weight", &["attn_q.weight"]),
            ("attn.attention.k_proj.weight", &["attn_k.weight"]),
            ("attn.attention.v_proj.weight", &["attn_v.weight"]),
            ("attn.attention.out_proj.weight", &["attn_output.weight"]),
            ("ln_2.weight", &["ffn_norm.weight"]),
            ("mlp.c_fc_0.weight", &["ffn_gate.weight"]),
            ("mlp.c_fc_1.weight", &["ffn_up.weight"]),
            ("mlp.c_proj.weight", &["ffn_down.weight"]),
        ],
        head_dim: HeadDim::Implied,
        layer_eps: Some(1e-5),
        rotary: Rotary::OfHead(1.0),
        more_keys: &[Key::RopeDimensions],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

/// `exaone4`: the 32B model, of 64 layers, has windows; llama.cpp knows it by that.
pub const EXAONE4: Arch = Arch {
    name: "exaone4",
    models: "EXAONE 4",
    block: &[QKV, HEAD_NORMS, ATTN_OUT, ATTN_POST_NORM, GATED_FFN, FFN_POST_NORM, QKV_BIAS_OPTIONAL],
    rope: RopeRule { layers: RopeLayers::WindowedOrAll, ..RopeRule::HALVES },
    window: Some(WindowRule { size: WindowSize::InModelsOf(64, 4096), ..WindowRule::every(4) }),
    checkpoints: &[&Checkpoint {
        classes: &["Exaone4ForCausalLM", "Exaone4_5_ForConditionalGeneration"],
        ..CHECKPOINT
    }],
    ..EXAONE
};

/// The common part of the later checkpoints.
const CHECKPOINT: Checkpoint =
    Checkpoint { head_dim: HeadDim::Quotient, more_keys: WINDOWS, tokenizer: Tokenizer::Json, ..Checkpoint::USUAL };

const WINDOWS: &[Key] =
    &[Key::VocabSize, Key::Whole(&["sliding_window"], "attention.sliding_window"), Key::WindowLayersIfAny];

/// Groups that both kinds of blocks begin with.
const EXAONE_MOE_MIXING: &[Group] = &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM];

/// `exaone-moe`.
pub const EXAONE_MOE: Arch = Arch {
    name: "exaone-moe",
    models: "K-EXAONE",
    ends: &[ENDS, OUTPUT_REQUIRED, ROPE_FACTORS],
    block: begun!(EXAONE_MOE_MIXING, GATED_FFN, QKV_BIAS_OPTIONAL),
    expert_block: begun!(EXAONE_MOE_MIXING, EXPERTS, CHOICE_BIAS_OPTIONAL, SHARED, QKV_BIAS_OPTIONAL),
    rope: RopeRule { layers: RopeLayers::Windowed, ..RopeRule::HALVES },
    window: Some(WindowRule::needed(4)),
    experts: ExpertRule { gating: GatingRule::Key(None), shared: SharedWidth::KeyOrExpert, ..ExpertRule::KEYED },
    checkpoints: &[&Checkpoint {
        classes: &["ExaoneMoEForCausalLM", "ExaoneMoeForCausalLM"],
        names: DOWN_GATE_UP,
        more_names: &[("mlp.e_score_correction_bias", &["exp_probs_b.bias"])],
        more_keys: &[
            WINDOWS[0],
            WINDOWS[1],
            WINDOWS[2],
            Key::ExpertWidth,
            Key::Whole(&["num_shared_experts"], "expert_shared_count"),
            Key::Product(&["moe_intermediate_size"], &["num_shared_experts"], "expert_shared_feed_forward_length"),
            Key::Fraction(&["routed_scaling_factor"], "expert_weights_scale"),
            Key::FlagIf("norm_topk_prob", "expert_weights_norm"),
            Key::WholeOr(&["first_k_dense_replace", "first_last_k_dense_replace"], "leading_dense_block_count", 0),
            Key::NoFurther(""),
            Key::Text("rope.scaling.type", "none"),
        ],
        ..CHECKPOINT
    }],
    ..EXAONE
};
