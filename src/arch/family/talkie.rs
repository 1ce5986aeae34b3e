//! Talkie: norms without gains, a gain per query head, and the embeddings added once more after every block.

use crate::arch::parts::{
    ATTN_OUT, BLOCK_SKIP, GATED_FFN, OUTPUT_REQUIRED, PLAIN_ATTN_NORM, PLAIN_ENDS, PLAIN_FFN_NORM, PLAIN_TOKEN_NORM,
    QKV, QKV_BIAS_OPTIONAL, QUERY_GAINS, beside,
};
use crate::arch::rules::{Attention, LogitScale, Output, QkNorms};
use crate::arch::{Arch, Checkpoint, HeadDim, Key, KvHeads, Role, Step, TensorKey, Tokenizer};

/// `talkie`.
pub const TALKIE: Arch = Arch {
    name: "talkie",
    models: "Talkie",
    ends: &[PLAIN_ENDS, PLAIN_TOKEN_NORM, OUTPUT_REQUIRED],
    block: &[PLAIN_ATTN_NORM, QKV, QUERY_GAINS, ATTN_OUT, PLAIN_FFN_NORM, GATED_FFN, BLOCK_SKIP, QKV_BIAS_OPTIONAL],
    attention: Attention { qk_norms: QkNorms::AfterRope, ..Attention::USUAL },
    output: Output { scale: LogitScale::Always, factored: false, ..Arch::DENSE.output },
    scaled: &["attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_down"],
    checkpoints: &[&Checkpoint {
        classes: &["TalkieForCausalLM"],
        blocks: "blocks",
        names: &[
            ("embed.weight", &["token_embd.weight"]),
            ("lm_head", &["output.weight"]),
            ("attn.attn_query.weight", &["attn_q.weight"]),
            ("attn.attn_key.weight", &["attn_k.weight"]),
            ("attn.attn_value.weight", &["attn_v.weight"]),
            ("attn.attn_resid.weight", &["attn_output.weight"]),
            ("attn.head_gain.head_g", &["attn_q_norm.weight"]),
            ("mlp.mlp_gate.weight", &["ffn_gate.weight"]),
            ("mlp.mlp_linear.weight", &["ffn_up.weight"]),
            ("mlp.mlp_resid.weight", &["ffn_down.weight"]),
            ("embed_skip.a_g", &["layer_output_scale.weight"]),
        ],
        steps: &[
            ("attn.attn_query.weight", &[Step::SecondHalvesNegative]),
            ("attn.attn_key.weight", &[Step::SecondHalvesNegative]),
        ],
        beside: &[
            beside("attn_gain.a_g", "attn_output.scale", Role::Vector),
            beside("mlp_gain.a_g", "ffn_down.scale", Role::Vector),
        ],
        tensor_keys: &[TensorKey::OfEnd("lm_head_gain.w_g", "logit_scale")],
        kv_heads: KvHeads::StatedAlone,
        head_dim: HeadDim::Implied,
        rms_eps: None,
        more_keys: &[Key::ConstantNumber("attention.layer_norm_rms_epsilon", f32::EPSILON)],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};
