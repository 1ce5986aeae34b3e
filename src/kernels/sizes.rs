//! Sizes of rows and calls, checked.

use trine_formats::types::TypeInfo;

/// Weights of the longest row that kernels take: far more than any model has, and few enough that no size computed from
/// one row wraps around.
pub(crate) const MAX_COLUMNS: usize = usize::MAX >> 10;

/// The product of sizes that a length is compared with.
///
/// # Panics
/// When it does not fit: wrapped around, it would pass for a small one.
pub(crate) fn size<const N: usize>(factors: [usize; N]) -> usize {
    let product = factors.into_iter().try_fold(1, usize::checked_mul);
    product.expect("a size beyond all memory")
}

/// Bytes of a row of `n` weights.
pub(crate) fn row_bytes(info: &TypeInfo, n: usize) -> usize {
    assert!(n <= MAX_COLUMNS, "{n} columns");
    assert!(n.is_multiple_of(info.block), "{}: {n} columns are not whole blocks of {}", info.name, info.block);
    info.head + n / info.block * info.bytes
}

/// Checks that the lengths of a [`crate::MatRows`] call fit each other; the number of rows.
pub(crate) fn check(w: &[u8], acts: &[u8], row: (usize, usize), tokens: usize, out: &[f32]) -> usize {
    let rows = out.len().checked_div(tokens).unwrap_or(0);
    assert_eq!(out.len(), rows * tokens, "outputs are whole rows of {tokens} tokens");
    assert_eq!(w.len(), size([rows, row.0]), "weights: {rows} rows of {} bytes", row.0);
    assert_eq!(acts.len(), size([tokens, row.1]), "activations: {tokens} rows of {} bytes", row.1);
    rows
}
