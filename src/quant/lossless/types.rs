//! Which types hold ternary weights, and which conversions move them.

use trine_formats::types::TypeId;

use crate::quant::category::Category;

/// The method that moves ternary weights.
pub(super) const MOVES: &str = "lossless";

/// Types with one scale per tensor.
pub(in crate::quant) fn is_packed(ty: TypeId) -> bool {
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

pub(super) fn is_float(ty: TypeId) -> bool {
    matches!(ty, TypeId::F32 | TypeId::F16 | TypeId::BF16)
}

/// True if a conversion is a move.
pub(in crate::quant) fn moves(from: TypeId, to: TypeId) -> bool {
    is_packed(to) || (from != to && is_ternary(from) && (is_ternary(to) || is_float(to)))
}

/// True if a model has ternary weights already: its embeddings and output are then left alone.
pub(in crate::quant) fn is_ternary_model<'a>(tensors: impl IntoIterator<Item = (&'a str, TypeId)>) -> bool {
    let mut tensors = tensors.into_iter();
    tensors.any(|(name, ty)| is_ternary(ty) && !matches!(Category::of(name), Category::TokenEmbd | Category::Output))
}
