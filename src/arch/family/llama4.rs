//! Llama 4: chunked windows with RoPE, layers without, weights on what goes into an expert.

use crate::arch::expert_parts::{EXPERTS, SHARED};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, GATED_FFN, OUTPUT_OR_TIED, PLAIN_HEAD_NORMS, QKV, QKV_BIAS_OPTIONAL,
    ROPE_FACTORS,
};
use crate::arch::rules::{
    Attention, ExpertLayers, ExpertRule, ExpertWidth, GatingRule, Normalize, QkNorms, RopeLayers, RopeRule,
    SharedWidth, Temperature, WindowRope, WindowRule, WindowSize,
};
use crate::arch::{Arch, Checkpoint, Claim, Gating, HeadDim, Key, Step, Tokenizer};

/// `llama4`.
pub const LLAMA4: Arch = Arch {
    name: "llama4",
    models: "Llama 4 Scout, Llama 4 Maverick",
    ends: &[ENDS, OUTPUT_OR_TIED, ROPE_FACTORS],
    block: &[ATTN_NORM, QKV, PLAIN_HEAD_NORMS, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    expert_block: &[ATTN_NORM, QKV, PLAIN_HEAD_NORMS, ATTN_OUT, FFN_NORM, EXPERTS, SHARED, QKV_BIAS_OPTIONAL],
    attention: Attention {
        qk_norms: QkNorms::WithRope(128),
        temperature: Temperature::WithoutRope(8192, 0.1, 1.0),
        ..Attention::USUAL
    },
    rope: RopeRule { layers: RopeLayers::ButLastOfOrLast(4), ..RopeRule::ADJACENT },
    window: Some(WindowRule {
        size: WindowSize::UnlessZero(8192),
        chunked: true,
        rope: WindowRope::KEYED,
        ..WindowRule::every(4)
    }),
    experts: ExpertRule {
        gating: GatingRule::Fixed(Gating::Sigmoid),
        normalize: Normalize::Never,
        claim: Claim::Scores,
        weigh_inputs: true,
        width: ExpertWidth::Key,
        shared: SharedWidth::Expert,
        layers: ExpertLayers::Every,
        ..ExpertRule::USUAL
    },
    checkpoints: &[&Checkpoint {
        classes: &["Llama4ForConditionalGeneration", "Llama4ForCausalLM"],
        names: &[
            ("feed_forward.router.weight", &["ffn_gate_inp.weight"]),
            ("feed_forward.experts.gate_up_proj", &["ffn_gate_exps.weight", "ffn_up_exps.weight"]),
            ("feed_forward.experts.down_proj", &["ffn_down_exps.weight"]),
            ("feed_forward.shared_expert.gate_proj.weight", &["ffn_gate_shexp.weight"]),
            ("feed_forward.shared_expert.up_proj.weight", &["ffn_up_shexp.weight"]),
            ("feed_forward.shared_expert.down_proj.weight", &["ffn_down_shexp.weight"]),
            ("feed_forward.gate_proj.weight", &["ffn_gate.weight"]),
            ("feed_forward.up_proj.weight", &["ffn_up.weight"]),
            ("feed_forward.down_proj.weight", &["ffn_down.weight"]),
        ],
        steps: &[
            ("feed_forward.experts.gate_up_proj", &[Step::Transposed]),
            ("feed_forward.experts.down_proj", &[Step::Transposed]),
        ],
        neighbours: true,
        width_names: &["intermediate_size_mlp"],
        head_dim: HeadDim::Quotient,
        more_keys: &[
            Key::VocabSize,
            Key::RopeDimensions,
            Key::Whole(&["interleave_moe_layer_step"], "interleave_moe_layer_step"),
            Key::Whole(&["intermediate_size"], "expert_feed_forward_length"),
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};
