//! Step 3.5: a gate on every head's output, more query heads in layers with a window, gates bounded layer by layer, and
//! RoPE on half of the heads' elements in layers without a window.

use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, EXPERTS, SHARED};
use crate::arch::mtp_parts::MTP;
use crate::arch::parts::{
    ATTN_HEAD_GATE_OPTIONAL, ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, GATED_FFN, Group, HEAD_NORMS_OPTIONAL,
    OUTPUT_REQUIRED, QKV, QKV_BIAS_OPTIONAL, ROPE_FACTORS, ROPE_FACTORS_BY_CONTEXT, begun,
};
use crate::arch::rules::{
    Attention, DraftState, ExpertLayers, ExpertRule, FeedForward, GateClamp, HeadRule, RopeRule, SharedWidth,
    WindowRope, WindowRule,
};
use crate::arch::{Arch, Checkpoint, HeadDim, Key, KvHeads, Tokenizer};

/// The kind of layers with a window in `config.json`.
const WINDOW: &str = "sliding_attention";

/// Groups that both kinds of blocks begin with.
const MIXING: &[Group] =
    &[ATTN_NORM, QKV, HEAD_NORMS_OPTIONAL, ATTN_HEAD_GATE_OPTIONAL, ATTN_OUT, FFN_NORM, QKV_BIAS_OPTIONAL];

/// `step35`.
pub const STEP35: Arch = Arch {
    name: "step35",
    mtp: MTP,
    heads: HeadRule::Chained,
    draft_state: DraftState::Stream,
    models: "Step 3.5 Flash, 3.7 Flash (text)",
    ends: &[ENDS, OUTPUT_REQUIRED, ROPE_FACTORS, ROPE_FACTORS_BY_CONTEXT],
    block: begun!(MIXING, GATED_FFN),
    expert_block: begun!(MIXING, EXPERTS, CHOICE_BIAS_OPTIONAL, SHARED),
    rope: RopeRule { global_half: true, factors_in_windows: false, ..RopeRule::PARTIAL },
    window: Some(WindowRule { rope: WindowRope { own_dimensions: true, ..WindowRope::OWN }, ..WindowRule::needed(1) }),
    attention: Attention { heads_by_layer: true, values_apart: true, ..Attention::USUAL },
    feed_forward: FeedForward { clamp: GateClamp::After, ..Arch::DENSE.feed_forward },
    experts: ExpertRule { layers: ExpertLayers::Routed, shared: SharedWidth::Key, ..ExpertRule::KEYED },
    // the dense network of blocks that have experts
    ignored: &["ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"],
    checkpoints: &[&Checkpoint {
        classes: &["Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"],
        names: &[
            ("moe.gate.weight", &["ffn_gate_inp.weight"]),
            ("moe.router_bias", &["exp_probs_b.bias"]),
            ("moe.gate_proj.weight", &["ffn_gate_exps.weight"]),
            ("moe.up_proj.weight", &["ffn_up_exps.weight"]),
            ("moe.down_proj.weight", &["ffn_down_exps.weight"]),
            ("share_expert.gate_proj.weight", &["ffn_gate_shexp.weight"]),
            ("share_expert.up_proj.weight", &["ffn_up_shexp.weight"]),
            ("share_expert.down_proj.weight", &["ffn_down_shexp.weight"]),
        ],
        norms_plus_one: true,
        kv_heads: KvHeads::StatedAlone,
        head_dim: HeadDim::Implied,
        more_keys: &[
            Key::ByKind(
                WINDOW,
                [&["attention_other_setting.num_attention_heads", "num_attention_heads"], &["num_attention_heads"]],
                "attention.head_count",
            ),
            Key::ByKind(
                WINDOW,
                [&["attention_other_setting.num_attention_groups", "num_attention_groups"], &["num_attention_groups"]],
                "attention.head_count_kv",
            ),
            Key::Whole(&["sliding_window"], "attention.sliding_window"),
            Key::WindowLayersTurned("partial_rotary_factors"),
            Key::Whole(&["head_dim"], "attention.value_length"),
            Key::Whole(&["moe_num_experts"], "expert_count"),
            Key::Whole(&["moe_top_k"], "expert_used_count"),
            Key::Whole(&["moe_intermediate_size"], "expert_feed_forward_length"),
            Key::Whole(&["share_expert_dim"], "expert_shared_feed_forward_length"),
            Key::Fraction(&["moe_router_scaling_factor"], "expert_weights_scale"),
            Key::FlagIf("norm_expert_weight", "expert_weights_norm"),
            Key::LeadingOf("moe_layers_enum"),
            Key::WholeOr(&["moe_every_n_layer"], "moe_every_n_layers", 1),
            Key::FractionOr(&["rms_norm_eps"], "attention.layer_norm_rms_epsilon", 1e-5),
            Key::Limits("swiglu_limits", "swiglu_clamp_exp"),
            Key::Limits("swiglu_limits_shared", "swiglu_clamp_shexp"),
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};
