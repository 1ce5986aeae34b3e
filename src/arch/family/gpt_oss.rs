//! gpt-oss: sinks, windows in every other layer, biases on router and experts, a clamped gate.

use crate::arch::expert_parts::{EXPERT_BIASES, EXPERTS};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS, ENDS, FFN_NORM_AFTER_ATTN, OUTPUT_REQUIRED, QKV, QKV_BIAS_OPTIONAL, SINKS,
};
use crate::arch::rules::{
    DraftState, ExpertRule, ExpertWidth, FeedForward, GatingRule, Normalize, WindowRope, WindowRule,
};
use crate::arch::{Activation, Arch, Checkpoint, Gating, HeadDim, Key, Step, Tokenizer};

/// `gpt-oss`.
pub const GPT_OSS: Arch = Arch {
    name: "gpt-oss",
    models: "gpt-oss 20B, 120B",
    draft_state: DraftState::Stream,
    ends: &[ENDS, OUTPUT_REQUIRED],
    expert_block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        ATTN_OUT_BIAS,
        SINKS,
        FFN_NORM_AFTER_ATTN,
        EXPERTS,
        EXPERT_BIASES,
        QKV_BIAS_OPTIONAL,
    ],
    window: Some(WindowRule { rope: WindowRope::KEYED, ..WindowRule::needed(2) }),
    feed_forward: FeedForward { activation: Activation::OpenAiSwiglu, ..Arch::DENSE.feed_forward },
    experts: ExpertRule {
        gating: GatingRule::Fixed(Gating::SoftMaxOfChosen),
        normalize: Normalize::Never,
        width: ExpertWidth::Key,
        ..ExpertRule::USUAL
    },
    checkpoints: &[&Checkpoint {
        classes: &["GptOssForCausalLM"],
        names: &[
            ("mlp.router.weight", &["ffn_gate_inp.weight"]),
            ("mlp.router.bias", &["ffn_gate_inp.bias"]),
            ("mlp.experts.gate_up_proj", &["ffn_gate_exps.weight", "ffn_up_exps.weight"]),
            ("mlp.experts.gate_up_proj_bias", &["ffn_gate_exps.bias", "ffn_up_exps.bias"]),
            ("mlp.experts.down_proj", &["ffn_down_exps.weight"]),
            ("mlp.experts.down_proj_bias", &["ffn_down_exps.bias"]),
        ],
        steps: &[
            ("mlp.experts.gate_up_proj", &[Step::Transposed, Step::Alternating]),
            ("mlp.experts.gate_up_proj_bias", &[Step::ColumnsAlternate]),
            ("mlp.experts.down_proj", &[Step::Transposed]),
        ],
        head_dim: HeadDim::Fixed(64),
        more_keys: &[Key::Window(128), Key::Whole(&["intermediate_size"], "expert_feed_forward_length")],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};
