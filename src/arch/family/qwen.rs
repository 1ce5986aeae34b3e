//! Qwen 1 (half the stated width), Qwen 2 (biases on q, k and v) and Qwen 3 (a norm on every query and key head
//! instead), with experts, and the text models behind eyes and voices, whose positions have several dimensions.

use super::llama;
use super::neox::FOLDED;
use crate::arch::encoder_parts::BARE_RANK_HEAD;
use crate::arch::expert_parts::{CHUNKS, EXPERTS, SHARED, SHARED_GATE};
use crate::arch::factors::{ATTN_OUT_SCALE, DENSE_SCALES, EXPERT_SCALES};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS_OPTIONAL, ENDS, FFN_NORM, GATED_FFN, HALF_FFN, HEAD_NORMS, OUTPUT_BIAS,
    OUTPUT_OR_TIED, OUTPUT_REQUIRED, QKV, QKV_BIAS, QKV_BIAS_OPTIONAL, beside,
};
use crate::arch::rules::{ExpertRule, ExpertWidth, NormKind, Normalize, RopeRule, Sections, SharedWidth};
use crate::arch::tensor::Role::ByRows;
use crate::arch::{Arch, Checkpoint, Claim, Fixed, Fused, HeadDim, Key, KvHeads, Name, Step, Tokenizer};

/// `qwen`.
pub const QWEN: Arch = Arch {
    name: "qwen",
    models: "Qwen 1",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, HALF_FFN, QKV_BIAS],
    rope: RopeRule::PARTIAL,
    checkpoints: &[&Checkpoint {
        classes: &["QWenLMHeadModel"],
        root: "transformer",
        blocks: "h",
        names: &[
            ("wte.weight", &["token_embd.weight"]),
            ("ln_f.weight", &["output_norm.weight"]),
            ("ln_1.weight", &["attn_norm.weight"]),
            ("attn.c_attn.weight", &["attn_qkv.weight"]),
            ("attn.c_attn.bias", &["attn_qkv.bias"]),
            ("attn.c_proj.weight", &["attn_output.weight"]),
            ("ln_2.weight", &["ffn_norm.weight"]),
            ("mlp.w1.weight", &["ffn_up.weight"]),
            ("mlp.w2.weight", &["ffn_gate.weight"]),
            ("mlp.c_proj.weight", &["ffn_down.weight"]),
        ],
        fused: Some(Fused::InOrder),
        head_dim: HeadDim::Implied,
        kv_heads: KvHeads::StatedAlone,
        rope_names: &["rotary_emb_base"],
        // config.json has the epsilon of its RMS norms under the name of layer norms
        layer_eps: Some(1e-6),
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

/// `qwen2`.
pub const QWEN2: Arch = Arch {
    name: "qwen2",
    models: "Qwen 2, Qwen 2.5",
    ends: &[ENDS, OUTPUT_OR_TIED, OUTPUT_BIAS],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    checkpoints: &[&Checkpoint {
        classes: &[
            "Qwen2ForCausalLM",
            "Qwen2Model",
            "Qwen2AudioForConditionalGeneration",
            "AudioFlamingo3ForConditionalGeneration",
            "DotsOCRForCausalLM",
            "KORMoForCausalLM",
        ],
        more_keys: &[Key::Pooling],
        context: 32768,
        head_dim: HeadDim::Implied,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

/// `qwen2vl`; the output bias is not added, and the epsilon of the norms is 0 whatever the file says, as in the reference.
pub const QWEN2VL: Arch = Arch {
    name: "qwen2vl",
    models: "Qwen 2 VL, Qwen 2.5 VL (text)",
    ends: &[ENDS, OUTPUT_OR_TIED],
    rope: RopeRule { sections: Sections::InOrder, ..RopeRule::HALVES },
    ignored: &["output.bias"],
    norm: NormKind::RmsWithoutEps,
    checkpoints: &[&Checkpoint {
        classes: &[
            "Qwen2VLModel",
            "Qwen2VLForConditionalGeneration",
            "Qwen2_5_VLForConditionalGeneration",
            "Qwen2_5OmniModel",
        ],
        context: 32768,
        head_dim: HeadDim::Implied,
        kv_heads: KvHeads::StatedOr(32),
        ..Checkpoint::USUAL
    }],
    ..QWEN2
};

/// `qwen2moe`: an expert that all tokens go to, with a gate.
pub const QWEN2MOE: Arch = Arch {
    name: "qwen2moe",
    models: "Qwen 1.5 MoE, Qwen 2 MoE",
    ends: &[ENDS, OUTPUT_REQUIRED],
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, EXPERTS, SHARED, SHARED_GATE, QKV_BIAS_OPTIONAL],
    experts: ExpertRule {
        normalize: Normalize::Never,
        width: ExpertWidth::KeyOrShare,
        shared: SharedWidth::KeyOrFull,
        ..ExpertRule::USUAL
    },
    checkpoints: &[&Checkpoint {
        classes: &["Qwen2MoeForCausalLM"],
        kv_heads: KvHeads::StatedOr(16),
        fixed: &[
            ("norm_topk_prob", Fixed::Unset),
            ("decoder_sparse_step", Fixed::Number(1.0)),
            ("mlp_only_layers", Fixed::Unset),
        ],
        ..MOE_CHECKPOINT
    }],
    ..Arch::DENSE
};

/// The common part of checkpoints with experts.
const MOE_CHECKPOINT: Checkpoint = Checkpoint {
    names: EXPERT_NAMES,
    head_dim: HeadDim::Implied,
    context: 32768,
    more_keys: &[Key::ExpertWidth, Key::SharedWidth],
    tokenizer: Tokenizer::Json,
    ..Checkpoint::USUAL
};

/// A matrix per expert, or all of them in one as new checkpoints have it.
pub const EXPERT_NAMES: &[Name] = &[
    ("mlp.gate.weight", &["ffn_gate_inp.weight"]),
    ("mlp.experts.*.down_proj.weight", &["ffn_down_exps.weight"]),
    ("mlp.experts.*.gate_proj.weight", &["ffn_gate_exps.weight"]),
    ("mlp.experts.*.up_proj.weight", &["ffn_up_exps.weight"]),
    ("mlp.experts.down_proj", &["ffn_down_exps.weight"]),
    ("mlp.experts.gate_up_proj", &["ffn_gate_exps.weight", "ffn_up_exps.weight"]),
    ("mlp.shared_expert_gate.weight", &["ffn_gate_inp_shexp.weight"]),
    ("mlp.shared_expert.gate_proj.weight", &["ffn_gate_shexp.weight"]),
    ("mlp.shared_expert.up_proj.weight", &["ffn_up_shexp.weight"]),
    ("mlp.shared_expert.down_proj.weight", &["ffn_down_shexp.weight"]),
];

/// A matrix per expert, and a router.
pub const DOWN_GATE_UP: &[Name] = &[
    ("mlp.gate.weight", &["ffn_gate_inp.weight"]),
    ("mlp.experts.*.down_proj.weight", &["ffn_down_exps.weight"]),
    ("mlp.experts.*.gate_proj.weight", &["ffn_gate_exps.weight"]),
    ("mlp.experts.*.up_proj.weight", &["ffn_up_exps.weight"]),
];

/// The same, written in another order.
pub const GATE_UP_DOWN: &[Name] = &[
    ("mlp.gate.weight", &["ffn_gate_inp.weight"]),
    ("mlp.experts.*.gate_proj.weight", &["ffn_gate_exps.weight"]),
    ("mlp.experts.*.up_proj.weight", &["ffn_up_exps.weight"]),
    ("mlp.experts.*.down_proj.weight", &["ffn_down_exps.weight"]),
];

/// `qwen3`.
pub const QWEN3: Arch = Arch {
    name: "qwen3",
    models: "Qwen 3, Bonsai",
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL],
    scaled: DENSE_SCALES,
    ends: &[ENDS, OUTPUT_OR_TIED, BARE_RANK_HEAD],
    yes_or_no: true,
    checkpoints: &[&Checkpoint {
        classes: &["Qwen3ForCausalLM", "Qwen3Model"],
        more_keys: &[Key::Pooling],
        context: 32768,
        head_dim: HeadDim::Fixed(128),
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

/// `qwen3moe`.
pub const QWEN3MOE: Arch = Arch {
    name: "qwen3moe",
    models: "Qwen 3 30B-A3B, 235B-A22B",
    expert_block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, EXPERTS, QKV_BIAS_OPTIONAL],
    experts: ExpertRule { width: ExpertWidth::KeyOrShare, ..ExpertRule::USUAL },
    scaled: EXPERT_SCALES,
    checkpoints: &[&Checkpoint {
        classes: &["Qwen3MoeForCausalLM"],
        kv_heads: KvHeads::StatedOr(4),
        fixed: &[
            ("norm_topk_prob", Fixed::TrueNoted),
            ("decoder_sparse_step", Fixed::Number(1.0)),
            ("mlp_only_layers", Fixed::Unset),
        ],
        ..MOE_CHECKPOINT
    }],
    ..Arch::DENSE
};

/// `grovemoe`: small experts beside groups of others.
pub const GROVEMOE: Arch = Arch {
    name: "grovemoe",
    models: "GroveMoE",
    expert_block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, EXPERTS, CHUNKS, QKV_BIAS_OPTIONAL],
    experts: ExpertRule { claim: Claim::Sigmoids, chunks: true, ..QWEN3MOE.experts },
    scaled: Arch::DENSE.scaled,
    checkpoints: &[&Checkpoint {
        classes: &["GroveMoeForCausalLM", "modeling_grove_moe.GroveMoeForCausalLM"],
        names: DOWN_GATE_UP,
        more_names: &[
            ("mlp.chunk_experts.*.down_proj.weight", &["ffn_down_chexps.weight"]),
            ("mlp.chunk_experts.*.gate_proj.weight", &["ffn_gate_chexps.weight"]),
            ("mlp.chunk_experts.*.up_proj.weight", &["ffn_up_chexps.weight"]),
        ],
        head_dim: HeadDim::Implied,
        more_keys: &[
            Key::ExpertWidth,
            Key::WholeOr(&["head_dim"], "expert_chunk_feed_forward_length", 128),
            Key::Constant("experts_per_group", 2),
            Key::ConstantNumber("expert_group_scale", 0.05),
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..QWEN3MOE
};

/// `qwen3vl`.
pub const QWEN3VL: Arch = Arch {
    name: "qwen3vl",
    models: "Qwen 3 VL (text)",
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    rope: RopeRule { sections: Sections::Alternating, ..RopeRule::HALVES },
    ends: &[ENDS, OUTPUT_OR_TIED, BARE_RANK_HEAD],
    yes_or_no: true,
    checkpoints: &[&Checkpoint {
        classes: &["Qwen3VLForConditionalGeneration"],
        more_keys: &[Key::Pooling, DEEPSTACK],
        ..VOICED
    }],
    ..Arch::DENSE
};

const DEEPSTACK: Key = Key::CountOf("vision_config.deepstack_visual_indexes", "n_deepstack_layers");

/// The common part of the text models behind eyes and voices.
const VOICED: Checkpoint =
    Checkpoint { context: 128_000, head_dim: HeadDim::Fixed(128), rope_theta: 5_000_000.0, ..Checkpoint::USUAL };

/// `qwen3tts`, as far as it has as many outputs as tokens.
pub const QWEN3TTS: Arch = Arch {
    name: "qwen3tts",
    models: "Qwen 3 TTS (talker)",
    yes_or_no: false,
    checkpoints: &[],
    unconverted: FOLDED,
    ..QWEN3VL
};

/// `qwen3vlmoe`.
pub const QWEN3VLMOE: Arch = Arch {
    name: "qwen3vlmoe",
    models: "Qwen 3 VL MoE (text)",
    rope: QWEN3VL.rope,
    scaled: Arch::DENSE.scaled,
    checkpoints: &[&Checkpoint {
        classes: &["Qwen3VLMoeForConditionalGeneration"],
        names: EXPERT_NAMES,
        steps: &[("mlp.experts.down_proj", &[Step::Transposed]), ("mlp.experts.gate_up_proj", &[Step::Transposed])],
        kv_heads: KvHeads::StatedOr(4),
        more_keys: &[Key::ExpertWidth, DEEPSTACK],
        tokenizer: Tokenizer::Json,
        head_dim: HeadDim::Implied,
        ..VOICED
    }],
    ..QWEN3MOE
};

/// `cogvlm`: text goes through weights of its own.
pub const COGVLM: Arch = Arch {
    name: "cogvlm",
    models: "CogVLM (text)",
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN],
    rope: RopeRule { fixed: true, ..RopeRule::HALVES },
    scaled: ATTN_OUT_SCALE,
    ignored: &[
        "rope_freqs.weight",
        "vis_attn_qkv.weight",
        "vis_attn_output.weight",
        "vis_gate.weight",
        "vis_up.weight",
        "vis_down.weight",
    ],
    checkpoints: &[&Checkpoint {
        classes: &["CogVLMForCausalLM"],
        names: &[
            ("self_attn.language_expert_query_key_value.weight", &["attn_qkv.weight"]),
            ("self_attn.language_expert_dense.weight", &["attn_output.weight"]),
            ("mlp.language_mlp.gate_proj.weight", &["ffn_gate.weight"]),
            ("mlp.language_mlp.up_proj.weight", &["ffn_up.weight"]),
            ("mlp.language_mlp.down_proj.weight", &["ffn_down.weight"]),
        ],
        beside: &[
            beside("self_attn.vision_expert_query_key_value.weight", "vis_attn_qkv.weight", ByRows),
            beside("self_attn.vision_expert_dense.weight", "vis_attn_output.weight", ByRows),
            beside("mlp.vision_mlp.gate_proj.weight", "vis_gate.weight", ByRows),
            beside("mlp.vision_mlp.up_proj.weight", "vis_up.weight", ByRows),
            beside("mlp.vision_mlp.down_proj.weight", "vis_down.weight", ByRows),
        ],
        left_out: &["model.vision."],
        fused: Some(Fused::InOrder),
        head_dim: HeadDim::Implied,
        ..llama::CHECKPOINT
    }],
    ..Arch::DENSE
};
