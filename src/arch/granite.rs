//! Granite (dense): LLaMA with factors on the embeddings, the attention scores, what each half of a block adds, and the
//! logits. A file states all of them; a checkpoint calls them multipliers.

use super::llama::LLAMA;
use super::{Arch, Checkpoint, EmbeddingScale, HeadDim, RopeRule, ScoreScale, SpacePrefix};

/// `granite`.
pub const GRANITE: Arch = Arch {
    name: "granite",
    models: "Granite 3 (dense)",
    expert_block: &[],
    rope: RopeRule {
        switch: true,
        ..LLAMA.rope
    },
    score_scale: ScoreScale::FromKey,
    ffn_scales: false,
    embedding_scale: EmbeddingScale::FromKey,
    residual_scale: true,
    logit_scale: true,
    checkpoint: Some(&Checkpoint {
        classes: &["GraniteForCausalLM"],
        head_dim: HeadDim::Implied,
        states_sizes: true,
        numbers: &[
            ("attention_multiplier", "attention.scale", 1.0),
            ("embedding_multiplier", "embedding_scale", 1.0),
            ("residual_multiplier", "residual_scale", 1.0),
            ("logits_scaling", "logit_scale", 1.0),
        ],
        space_prefix: SpacePrefix::Config,
        ..Checkpoint::USUAL
    }),
    ..LLAMA
};
