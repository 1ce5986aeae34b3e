//! DFlash: a few blocks that draft several tokens of another model at once. They attend to keys and values that they make of
//! inputs of that model's blocks, and to the tokens that are drafted.

use crate::arch::factors::DENSE_SCALES;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, BLOCK_SCALE, FFN_NORM, GATED_FFN, Group, HEAD_NORMS, PLAIN_VALUE_NORM, QKV_OR_QK,
    SINKS_OPTIONAL, beside, unnamed,
};
use crate::arch::rules::{
    Attention, EmbeddingScale, FeedForward, RopeRule, ScoreScale, Sections, WindowRope, WindowRule, WindowSize,
};
use crate::arch::tensor::Extent::{Embd, HeadPairs};
use crate::arch::tensor::Role::{Bias, ByRows, Norm, RopeFactors};
use crate::arch::{Arch, Checkpoint, Fixed, HeadDim, Key, Rotary, Step, Target, TokenKey};

/// The last norm, and divisors of RoPE's frequencies that some drafters have.
const ENDS: Group =
    &[unnamed("output_norm.weight", &[Embd], Norm), unnamed("rope_freqs.weight", &[HeadPairs], RopeFactors).optional()];

/// Norms of what the sublayers add to the residual stream, which some drafters have.
const POST_NORMS: Group = &[
    unnamed("post_attention_norm.weight", &[Embd], Norm).optional(),
    unnamed("post_ffw_norm.weight", &[Embd], Norm).optional(),
];

/// `dflash`, which runs beside the model that it was trained for and not by itself.
pub const DFLASH: Arch = Arch {
    name: "dflash",
    models: "DFlash drafters",
    ends: &[ENDS],
    block: &[
        ATTN_NORM,
        QKV_OR_QK,
        HEAD_NORMS,
        PLAIN_VALUE_NORM,
        SINKS_OPTIONAL,
        ATTN_OUT,
        FFN_NORM,
        GATED_FFN,
        POST_NORMS,
        BLOCK_SCALE,
    ],
    embedding_scale: EmbeddingScale::Key(0.0),
    rope: RopeRule { sections: Sections::IfAny, ..RopeRule::PARTIAL },
    window: Some(WindowRule { size: WindowSize::Key, rope: WindowRope::SAME, ..WindowRule::every(1) }),
    attention: Attention {
        ahead: true,
        scale: ScoreScale::Key,
        value_scale: true,
        plain_values: true,
        ..Attention::USUAL
    },
    feed_forward: FeedForward { named: true, ..Arch::DENSE.feed_forward },
    scaled: DENSE_SCALES,
    // the estimate whether a draft is right
    ignored: &["conf_proj.weight", "conf_proj.bias"],
    checkpoints: &[&Checkpoint {
        classes: &["DFlashDraftModel"],
        target: Target::ItsRules,
        only_with: &[("has_embed_tokens", "token_embd.weight")],
        names: &[
            ("norm.weight", &["output_norm.weight"]),
            ("self_attn.sinks", &["attn_sinks.weight"]),
            ("self_attn.sinks.weight", &["attn_sinks.weight"]),
            ("self_attn.attention_sink_bias", &["attn_sinks.weight"]),
            ("self_attn.attention_sink_bias.weight", &["attn_sinks.weight"]),
        ],
        beside_ends: &[
            beside("embed_tokens.weight", "token_embd.weight", ByRows),
            beside("lm_head.weight", "output.weight", ByRows),
            beside("fc.weight", "fc.weight", ByRows),
            beside("hidden_norm.weight", "enc.output_norm.weight", Norm),
            beside("markov_head.markov_w1.weight", "markov_w1.weight", ByRows),
            beside("markov_head.markov_w2.weight", "markov_w2.weight", ByRows),
            beside("confidence_head.proj.weight", "conf_proj.weight", ByRows),
            beside("confidence_head.proj.bias", "conf_proj.bias", Bias),
        ],
        steps: &[("confidence_head.proj.weight", &[Step::OneRow])],
        fixed: &[("rope_is_neox_style", Fixed::True)],
        rotary: Rotary::OfHead(1.0),
        head_dim: HeadDim::Implied,
        more_keys: &[Key::DraftsByBlocks],
        token_keys: &[TokenKey::Stated("dflash_config.mask_token_id", "mask_token_id")],
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};
