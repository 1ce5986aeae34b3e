//! EAGLE-3: one block that drafts for another model from states of that model's blocks.

use super::llama::CHECKPOINT;
use crate::arch::parts::{ATTN_OUT, FFN_NORM, GATED_FFN, Group, ROPE_FACTORS, beside, unnamed};
use crate::arch::rules::RopeRule;
use crate::arch::tensor::Extent::{Embd, Keys, Q, TwiceEmbd, Values};
use crate::arch::tensor::Role::{ByRows, Norm, Vector};
use crate::arch::{Arch, Checkpoint, Key, Step, Target};

/// Norms of a token's embedding and of the states, and projections of both side by side.
const MIXING: Group = &[
    unnamed("attn_norm.weight", &[Embd], Norm),
    unnamed("attn_norm_2.weight", &[Embd], Norm),
    unnamed("attn_q.weight", &[Q, TwiceEmbd], ByRows).rope_rows(),
    unnamed("attn_k.weight", &[Keys, TwiceEmbd], ByRows).rope_rows(),
    unnamed("attn_v.weight", &[Values, TwiceEmbd], ByRows),
];

/// `eagle3`, which runs beside the model that it was trained for and not by itself.
pub const EAGLE3: Arch = Arch {
    name: "eagle3",
    models: "EAGLE-3 drafters",
    ends: &[&[unnamed("output_norm.weight", &[Embd], Norm)], ROPE_FACTORS],
    block: &[MIXING, ATTN_OUT, FFN_NORM, GATED_FFN],
    rope: RopeRule::ADJACENT,
    scaled: &[],
    checkpoints: &[&Checkpoint {
        classes: &[
            "LlamaForCausalLM",
            "LlamaForCausalLMEagle3",
            "Eagle3LlamaForCausalLM",
            "Eagle3Speculator",
            "Eagle3DraftModel",
        ],
        told_by: Some("draft_vocab_size"),
        target: Target::OwnRules,
        first_keys: &[Key::DraftsByStates],
        beginnings: &[("midlayer.", "layers.0.")],
        left_out: &["t2d"],
        names: &[
            ("input_layernorm.weight", &["attn_norm.weight"]),
            ("hidden_norm.weight", &["attn_norm_2.weight"]),
            ("self_attn.q_proj.weight", &["attn_q.weight"]),
            ("self_attn.k_proj.weight", &["attn_k.weight"]),
            ("self_attn.v_proj.weight", &["attn_v.weight"]),
            ("norm.weight", &["output_norm.weight"]),
        ],
        beside_ends: &[
            beside("embed_tokens.weight", "token_embd.weight", ByRows),
            beside("lm_head.weight", "output.weight", ByRows),
            beside("fc.weight", "fc.weight", ByRows),
            beside("input_norm.weight", "enc.output_norm.weight", Norm),
            beside("d2t", "d2t", Vector),
        ],
        steps: &[("d2t", &[Step::TokenOffsets])],
        ..CHECKPOINT
    }],
    ..Arch::DENSE
};
