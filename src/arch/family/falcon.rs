//! Falcon 1: the sublayers of a block run in parallel, in the large models with a norm each. Falcon H1: attention and
//! Mamba 2 beside each other.

use super::gpt2::GPT2;
use crate::arch::factors::SSM_SCALES;
use crate::arch::parts::{
    ATTN_NORM, ATTN_NORM_2_OPTIONAL, ATTN_NORM_BIAS, ATTN_OUT, ENDS, FFN_BIAS_OPTIONAL, FFN_NORM_BARE, GATED_FFN,
    OUTPUT_NORM_BIAS, OUTPUT_OR_TIED, PLAIN_FFN, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::recurrent_parts::{CONVOLUTION_BIAS, GROUP_NORM_OPTIONAL, MAMBA_2};
use crate::arch::rules::{Mixing, Recurrence, Residual, RopeRule, Sum};
use crate::arch::{Arch, Checkpoint, Factor, Fixed, Fused, Key, KvHeads, RopeScaling, Step, Tokenizer, Width};

/// `falcon`.
pub const FALCON: Arch = Arch {
    name: "falcon",
    models: "Falcon 7B, 40B, 180B",
    ends: &[ENDS, OUTPUT_NORM_BIAS, OUTPUT_OR_TIED],
    block: &[ATTN_NORM, ATTN_NORM_BIAS, ATTN_NORM_2_OPTIONAL, QKV, ATTN_OUT, PLAIN_FFN],
    rope: RopeRule::HALVES,
    residual: Residual::Parallel(Sum::HalvesFirst),
    checkpoints: &[&Checkpoint {
        classes: &["FalconForCausalLM", "RWForCausalLM"],
        activations: &["gelu", "gelu_new", "gelu_pytorch_tanh"],
        tied: true,
        root: "transformer",
        blocks: "h",
        names: &[
            ("word_embeddings.weight", &["token_embd.weight"]),
            ("ln_f.weight", &["output_norm.weight"]),
            ("ln_f.bias", &["output_norm.bias"]),
            ("ln_mlp.weight", &["attn_norm.weight"]),
            ("ln_mlp.bias", &["attn_norm.bias"]),
            ("ln_attn.weight", &["attn_norm_2.weight"]),
            ("ln_attn.bias", &["attn_norm_2.bias"]),
            ("self_attention.query_key_value.weight", &["attn_qkv.weight"]),
            ("self_attention.dense.weight", &["attn_output.weight"]),
            ("mlp.dense_h_to_4h.weight", &["ffn_up.weight"]),
            ("mlp.dense_4h_to_h.weight", &["ffn_down.weight"]),
        ],
        fused: Some(Fused::ByKeyHead),
        kv_heads: KvHeads::Falcon,
        width: Width::Fourfold,
        rope_scaling: RopeScaling::None,
        // the file has no base of RoPE, and the graph none of the others
        fixed: &[
            ("rope_theta", Fixed::Number(10000.0)),
            ("alibi", Fixed::Unset),
            ("bias", Fixed::Unset),
            ("parallel_attn", Fixed::True),
        ],
        keys: &[
            // no config.json says it
            Key::Constant("context_length", 2048),
            Key::Text("tensor_data_layout", "jploski"),
            Key::Embedding,
            Key::FeedForward,
            Key::Blocks,
            Key::Heads,
            Key::KvHeads,
            Key::LayerEpsilon,
            Key::FileType,
        ],
        ..Checkpoint::LAYER_NORMS
    }],
    ..GPT2
};

/// `falcon-h1`. Its graph ignores the output projection's bias and the divisors of RoPE's frequencies.
pub const FALCON_H1: Arch = Arch {
    name: "falcon-h1",
    models: "Falcon H1",
    block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        MAMBA_2,
        CONVOLUTION_BIAS,
        GROUP_NORM_OPTIONAL,
        FFN_NORM_BARE,
        GATED_FFN,
        QKV_BIAS_OPTIONAL,
        FFN_BIAS_OPTIONAL,
    ],
    mixing: Mixing::Both(Recurrence::Mamba2),
    rope: RopeRule::PARTIAL,
    scaled: SSM_SCALES,
    ignored: &["attn_output.bias", "rope_freqs.weight"],
    checkpoints: &[&Checkpoint {
        classes: &["FalconH1ForCausalLM"],
        names: &[
            ("final_layernorm.weight", &["output_norm.weight"]),
            ("pre_ff_layernorm.weight", &["ffn_norm"]),
            ("feed_forward.gate_proj.weight", &["ffn_gate.weight"]),
            ("feed_forward.up_proj.weight", &["ffn_up.weight"]),
            ("feed_forward.down_proj.weight", &["ffn_down.weight"]),
            ("mamba.in_proj.weight", &["ssm_in.weight"]),
            ("mamba.conv1d.weight", &["ssm_conv1d.weight"]),
            ("mamba.conv1d.bias", &["ssm_conv1d.bias"]),
            ("mamba.dt_bias", &["ssm_dt.bias"]),
            ("mamba.A_log", &["ssm_a"]),
            ("mamba.D", &["ssm_d"]),
            ("mamba.norm.weight", &["ssm_norm.weight"]),
            ("mamba.out_proj.weight", &["ssm_out.weight"]),
        ],
        steps: &[
            ("mamba.A_log", &[Step::Decay]),
            ("mamba.norm.weight", &[Step::Reshaped]),
            ("embed_tokens.weight", &[Step::Times(&[Factor::First(&["embedding_multiplier"])])]),
            ("lm_head.weight", &[Step::Times(&[Factor::First(&["lm_head_multiplier"])])]),
            ("self_attn.q_proj.weight", &[Step::Times(&[Factor::First(&["attention_in_multiplier"])])]),
            (
                "self_attn.k_proj.weight",
                &[Step::Times(&[Factor::First(&["key_multiplier"]), Factor::First(&["attention_in_multiplier"])])],
            ),
            ("self_attn.v_proj.weight", &[Step::Times(&[Factor::First(&["attention_in_multiplier"])])]),
            ("self_attn.o_proj.weight", &[Step::Times(&[Factor::First(&["attention_out_multiplier"])])]),
            ("feed_forward.gate_proj.weight", &[Step::Times(&[Factor::First(&["mlp_multipliers.0"])])]),
            ("feed_forward.down_proj.weight", &[Step::Times(&[Factor::First(&["mlp_multipliers.1"])])]),
            ("mamba.out_proj.weight", &[Step::Times(&[Factor::First(&["ssm_out_multiplier"])])]),
            (
                "mamba.in_proj.weight",
                &[Step::Times(&[Factor::First(&["ssm_in_multiplier"]), Factor::OfParts("ssm_multipliers")])],
            ),
        ],
        keys: &[
            Key::Constant("context_length", 1 << 20),
            Key::Embedding,
            Key::Constant("feed_forward_length", 0),
            Key::Constant("attention.head_count", 0),
            Key::Blocks,
            Key::WholeOr(&["mamba_d_conv"], "ssm.conv_kernel", 4),
            Key::Whole(&["mamba_d_ssm"], "ssm.inner_size"),
            Key::WholeOr(&["mamba_d_state"], "ssm.state_size", 128),
            Key::Quotient(&["mamba_d_ssm"], &["mamba_d_head"], "ssm.time_step_rank"),
            Key::Whole(&["mamba_n_groups"], "ssm.group_count"),
            Key::RmsEpsilon,
            Key::FileType,
            Key::VocabSize,
            Key::Blocks,
            Key::Context,
            Key::FeedForward,
            Key::Heads,
            Key::KvHeads,
            Key::Whole(&["head_dim"], "attention.key_length"),
            Key::Whole(&["head_dim"], "attention.value_length"),
            Key::RopeBase,
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};
