//! Moves ternary weights between formats without changing one: codes are moved, never rounded again.
//!
//! A ternary matrix is codes -1, 0, +1 and scales. The formats differ in how they pack the codes and in how
//! far a scale reaches and what it is stored in:
//!
//! | type | one scale for | as |
//! |---|---|---|
//! | I2_S, TL1, TL2 | the tensor | f32 |
//! | TQ1_0, TQ2_0 | 256 weights | f16 |
//! | Q2_0 | 64 weights | f16 |
//! | PQ2_0, Q2_0_G128, PTQ1_0 of PrismML's fork | 128 weights | f16 |
//! | STQ1_0 of Tencent, one zero in four | 256 weights | f16 |
//! | IQ1_BN, IQ2_BN of ik_llama.cpp | the row | f16, f32 |
//! | F32, F16, BF16 | every weight | itself |
//!
//! So a matrix can be moved when its scales fit the target: equal over what shares one there, and a number
//! that is stored there exactly. A span of zeros takes any scale. Whether nothing changed is not concluded
//! but found out: the output is decoded again and compared with the decoded input ([`compare`]). A zero's
//! sign is the only thing that codes cannot hold: -0 becomes +0, and is counted.
//!
//! From floats to TQ1_0, TQ2_0 and Q2_0 the quantizer's usual way applies, which writes llama-quantize's bytes.

mod carry;
mod choose;
mod codes;
mod compare;
mod decode;
mod report;
mod tiles;
mod verify;

use trine_formats::gguf::Metadata;
use trine_formats::types::TypeId;

pub use super::packed::Packed;
pub use super::row::Move;
pub(super) use carry::{CarryFault, carry};
pub(super) use choose::{choose_packed, keeps, plan_move};
pub use compare::{Comparison, Difference};
pub use report::{Inexact, MoveReport, Moved, Why};
pub(super) use tiles::record;
pub use verify::{Checked, Verdict, Verification, VerifyError, verify};

/// Types with one scale per tensor.
pub(super) fn is_packed(ty: TypeId) -> bool {
    ty.info().is_some_and(|t| t.is_per_tensor())
}

/// Quantized types that hold ternary weights, of which Q2_0 and PQ2_0 can hold others too.
pub fn is_ternary(ty: TypeId) -> bool {
    let prism = matches!(ty, TypeId::Q2_0_G128 | TypeId::PQ2_0 | TypeId::PTQ1_0);
    let ik = matches!(ty, TypeId::IQ1_BN | TypeId::IQ2_BN);
    let ggml = matches!(ty, TypeId::TQ1_0 | TypeId::TQ2_0 | TypeId::Q2_0);
    let tencent = matches!(ty, TypeId::STQ1_0 | TypeId::STQ1_0_43 | TypeId::STQ1_0_CONTIGUOUS);
    is_packed(ty) || ggml || prism || tencent || ik
}

fn is_float(ty: TypeId) -> bool {
    matches!(ty, TypeId::F32 | TypeId::F16 | TypeId::BF16)
}

/// Whether a conversion is a move.
pub(super) fn moves(from: TypeId, to: TypeId) -> bool {
    is_packed(to) || (from != to && is_ternary(from) && (is_ternary(to) || is_float(to)))
}

/// Whether a model has ternary weights already: its embeddings and output are then left alone.
pub(super) fn is_ternary_model<'a>(tensors: impl IntoIterator<Item = (&'a str, TypeId)>) -> bool {
    use super::category::Category;
    let mut tensors = tensors.into_iter();
    tensors.any(|(name, ty)| is_ternary(ty) && !matches!(Category::of(name), Category::TokenEmbd | Category::Output))
}

/// What a plan for moves looks at besides the row.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub meta: &'a Metadata,
    pub recipe: &'a super::Recipe,
}
