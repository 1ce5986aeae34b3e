//! The types of the quantizer: those that it reads, those that it writes, and the size of a tensor in one.

use trine_formats::types::TypeId;

/// True of types whose weights share scales.
pub(super) fn is_quantized(ty: TypeId) -> bool {
    ty.info().is_some_and(|t| t.is_quantized())
}

/// Bytes of a tensor in type `ty`, a last partial block of a row counted whole. A tensor of this many
/// weights exists in the input with a checked size, and no type takes more than 8 bytes a weight.
pub(super) fn bytes_of(ty: TypeId, shape: &[u64]) -> u64 {
    let Some(info) = ty.info() else { return 0 };
    let columns = shape.first().copied().unwrap_or(1);
    let rows: u64 = shape.iter().skip(1).product();
    if info.is_per_tensor() {
        return info.tensor_bytes(columns, rows).unwrap_or(0);
    }
    let blocks = columns.div_ceil(info.block as u64);
    let row = blocks.saturating_mul(info.bytes as u64);
    rows.saturating_mul(row.saturating_add(info.head as u64))
}

/// True if trine can decode tensors of this type.
pub(super) fn can_read(ty: TypeId) -> bool {
    ty.info().is_some_and(|t| t.decode.is_some())
}

/// True if a file may hold tensors of this type that trine encoded. `q8_1` and `q8_K` are for
/// activations.
pub fn can_write(ty: TypeId) -> bool {
    !matches!(ty, TypeId::Q8_1 | TypeId::Q8_K) && ty.info().is_some_and(|t| t.encode.is_some())
}
