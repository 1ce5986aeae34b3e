//! EAGLE-3: one block that drafts for another model from states of that model's blocks.

use crate::arch::Arch;
use crate::arch::parts::{ATTN_OUT, FFN_NORM, GATED_FFN, Group, ROPE_FACTORS, unnamed};
use crate::arch::rules::RopeRule;
use crate::arch::tensor::Extent::{Embd, Keys, Q, TwiceEmbd, Values};
use crate::arch::tensor::Role::{ByRows, Norm};

/// Norms of a token's embedding and of the states, and projections of both side by side.
const MIXING: Group = &[
    unnamed("attn_norm.weight", &[Embd], Norm),
    unnamed("attn_norm_2.weight", &[Embd], Norm),
    unnamed("attn_q.weight", &[Q, TwiceEmbd], ByRows),
    unnamed("attn_k.weight", &[Keys, TwiceEmbd], ByRows),
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
    ..Arch::DENSE
};
