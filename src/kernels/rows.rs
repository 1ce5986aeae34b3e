//! Kernels over rows as files have them: products, encoders, decoders and a comparison.

use trine_formats::types::{DecodeFn, EncodeFn, TypeId};

use crate::Isa;
use crate::arch::FOLDERS;
use crate::arch::rows::RowKernel;
use crate::scalar::{self, CompareRows, QuantizeAct};

/// The products of rows of a weight type with activations.
#[derive(Clone, Copy)]
pub struct MatRows {
    ty: TypeId,
    isa: Isa,
    kernel: Option<&'static RowKernel>,
}

impl MatRows {
    /// The products of R weight rows with `tokens` activation rows.
    ///
    /// `w`: R whole rows of `n` weights as the file has them; `acts`: `tokens` rows of `n`, encoded as the type's `act`;
    /// `out[r * tokens + t]` = dot(row r, token t), bits of `dot_ref`. R = `out.len() / tokens`.
    ///
    /// # Panics
    /// When `n` is not a multiple of the block, or a length does not fit the others.
    pub fn multiply(&self, w: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
        match self.kernel {
            Some(kernel) => kernel.multiply(self.isa, w, acts, n, tokens, out),
            None => scalar::multiply(self.ty, w, acts, n, tokens, out),
        }
    }

    /// True if the other one runs the same code.
    pub fn is_same_as(&self, other: &MatRows) -> bool {
        self.ty == other.ty && self.kernel.map(std::ptr::from_ref) == other.kernel.map(std::ptr::from_ref)
    }
}

/// The kernel of a weight type, or `None` when the type has no dot product.
///
/// A type without a kernel for `isa` gets the best there is below it, at last `dot_ref` in loops.
pub fn mat_rows(ty: TypeId, isa: Isa) -> Option<MatRows> {
    let info = ty.info()?;
    info.dot_ref.zip(info.act)?;
    let mut kernels = FOLDERS.iter().flat_map(|folder| folder.row_kernels).copied().flatten();
    let kernel = kernels.find(|kernel| kernel.ty == ty && kernel.needs.met_by(isa));
    Some(MatRows { ty, isa, kernel })
}

/// The encoder of an activation type: the bits of that type's own `encode(x, None, out)`, NaN and
/// infinities included.
///
/// # Panics
/// When `act` is no activation type: F32, F16, BF16, Q8_0, Q8_1 and Q8_K are.
pub fn quantize_act(act: TypeId, isa: Isa) -> QuantizeAct {
    if let Some(f) = FOLDERS.iter().find_map(|folder| (folder.quantize_act)(act, isa)) {
        return f;
    }
    match scalar::quantize_act(act) {
        Some(f) => f,
        None => panic!("{act} is no activation type"),
    }
}

/// The decoder of a type: the bits of its own `decode`, for every byte pattern. `None` when it has none.
pub fn decode_rows(ty: TypeId, isa: Isa) -> Option<DecodeFn> {
    let definition = ty.info()?.decode?;
    if let Some(f) = FOLDERS.iter().find_map(|folder| (folder.decode_rows)(ty, isa)) {
        return Some(f);
    }
    Some(definition)
}

/// The encoder of a type: the bytes of its own `encode`, for all inputs, with and without importance. `None`
/// when it has none.
pub fn encode_rows(ty: TypeId, isa: Isa) -> Option<EncodeFn> {
    let definition = ty.info()?.encode?;
    if let Some(f) = FOLDERS.iter().find_map(|folder| (folder.encode_rows)(ty, isa)) {
        return Some(f);
    }
    Some(definition)
}

/// The comparison of two rows.
pub fn compare_rows(isa: Isa) -> CompareRows {
    if let Some(f) = FOLDERS.iter().find_map(|folder| (folder.compare_rows)(isa)) {
        return f;
    }
    scalar::compare_rows
}
