//! The kernels of a folder, as data.

use trine_formats::types::{DecodeFn, EncodeFn, TypeId};

use super::rows::RowKernel;
use crate::Isa;
use crate::scalar::{CompareRows, QuantizeAct};
use crate::shared::packed::Layout;

/// The kernels of a folder, by what they are for; those of an instruction set are handed out for its proof only, and of
/// several that an [`Isa`] may run, the best.
pub(crate) struct Kernels {
    /// Products of rows as files have them; of those of a type, the better stand first.
    pub row_kernels: &'static [&'static [RowKernel]],
    /// Packed layouts with their products.
    pub layouts: &'static [&'static [Layout]],
    /// Packed layouts whose products are looked up instead of multiplied.
    pub lookups: &'static [&'static [Layout]],
    /// Encoders of activation types.
    pub quantize_act: fn(TypeId, Isa) -> Option<QuantizeAct>,
    /// Decoders of rows.
    pub decode_rows: fn(TypeId, Isa) -> Option<DecodeFn>,
    /// Encoders of rows.
    pub encode_rows: fn(TypeId, Isa) -> Option<EncodeFn>,
    /// Comparisons of rows.
    pub compare_rows: fn(Isa) -> Option<CompareRows>,
}

impl Kernels {
    /// The definitions serve for everything.
    #[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "it has kernels of all kinds"))]
    pub const NONE: Kernels = Kernels {
        row_kernels: &[],
        layouts: &[],
        lookups: &[],
        quantize_act: |_, _| None,
        decode_rows: |_, _| None,
        encode_rows: |_, _| None,
        compare_rows: |_| None,
    };
}
