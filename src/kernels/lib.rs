//! Matrix kernels: SIMD versions of each type's `dot_ref`, behind one table.
//!
//! Every kernel gives the bits of `dot_ref` for every byte pattern of weights and activations (a NaN
//! stays a NaN; its payload is not promised). Integer sums are exact in any order, so they are free;
//! each output keeps its own float chain, in the reference's order and association, with multiply
//! and add rounded apart. FMA appears only where the product is exact (f16 x f16 in f64).
//!
//! Two regimes: with few tokens a row is read once, front to back; with more, panels of 8 or 16 rows
//! are unpacked once into interleaved lines (lanes = rows) and all tokens run over them. Preparing
//! the activations costs about as much as 8 to 16 rows, so with many tokens call with 64 or more rows.

// Processors without vectors of ours run the portable loops alone.
#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code, unused_imports, unused_variables)
)]

use trine_formats::types::{DecodeFn, EncodeFn, TypeId, TypeInfo};

pub use aligned::{AlignedBytes, Floats};
pub use isa::{Isa, IsaError, Level};
pub use proof::Needs;

mod aligned;
mod arch;
pub mod bitplane;
pub mod elements;
pub mod gemm;
pub mod halves;
mod isa;
mod line;
pub mod math;
pub mod packed;
pub mod probe;
mod proof;
mod scalar;
mod simd;
pub mod ternary;
#[doc(hidden)]
pub mod testing;
pub mod widely;

#[cfg(test)]
mod encode_tests;
#[cfg(test)]
mod tests;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use arch::native;
#[cfg(target_arch = "x86_64")]
use arch::x86_64;

/// `mat_rows(w, acts, n, tokens, out)`: the products of R weight rows with `tokens` activation rows.
///
/// `w`: R whole rows of `n` weights as the file has them; `acts`: `tokens` rows of `n`, encoded as the
/// type's `act`; `out[r * tokens + t]` = dot(row r, token t), bits of `dot_ref`. R = `out.len() / tokens`.
///
/// # Panics
/// When `n` is not a multiple of the block, or a length does not fit the others.
pub type MatRows = fn(w: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]);

/// `quantize(x, out)`: one activation row to the bytes of an activation type.
pub type QuantizeAct = fn(x: &[f32], out: &mut [u8]);

/// The kernel of a weight type, or `None` when the type has no dot product.
///
/// A type without a kernel for `isa` gets the best there is below it, at last `dot_ref` in loops.
pub fn mat_rows(ty: TypeId, isa: Isa) -> Option<MatRows> {
    #[cfg(target_arch = "x86_64")]
    if let Some(f) = x86_64::mat_rows(ty, isa) {
        return Some(f);
    }
    let _ = isa;
    scalar::mat_rows(ty)
}

/// The encoder of an activation type: the bits of that type's own `encode(x, None, out)`, NaN and
/// infinities included.
///
/// # Panics
/// When `act` is no activation type: F32, F16, BF16, Q8_0, Q8_1 and Q8_K are.
pub fn quantize_act(act: TypeId, isa: Isa) -> QuantizeAct {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(f) = native::quantize_act(act, isa) {
        return f;
    }
    let _ = isa;
    match scalar::quantize_act(act) {
        Some(f) => f,
        None => panic!("{act} is no activation type"),
    }
}

/// The decoder of a type: the bits of its own `decode`, for every byte pattern. `None` when it has none.
pub fn decode_rows(ty: TypeId, isa: Isa) -> Option<DecodeFn> {
    let definition = ty.info()?.decode?;
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(f) = native::decode_rows(ty, isa) {
        return Some(f);
    }
    let _ = isa;
    Some(definition)
}

/// The encoder of a type: the bytes of its own `encode`, for all inputs, with and without importance. `None`
/// when it has none.
pub fn encode_rows(ty: TypeId, isa: Isa) -> Option<EncodeFn> {
    let definition = ty.info()?.encode?;
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(f) = native::encode_rows(ty, isa) {
        return Some(f);
    }
    let _ = isa;
    Some(definition)
}

/// `compare_rows(a, b)`: how many values are not zero, when all of the two rows, which are as long, are equal;
/// `None` when one pair is not. A NaN equals nothing, and zeros are equal whatever their signs.
pub type CompareRows = fn(a: &[f32], b: &[f32]) -> Option<usize>;

/// The comparison of two rows.
pub fn compare_rows(isa: Isa) -> CompareRows {
    #[cfg(target_arch = "x86_64")]
    if let Some(f) = x86_64::compare_rows(isa) {
        return f;
    }
    let _ = isa;
    scalar::compare_rows
}

/// Weights of the longest row that kernels take: far more than any model has, and few enough that no size computed from
/// one row wraps around.
const MAX_COLUMNS: usize = usize::MAX >> 10;

/// The product of sizes that a length is compared with.
///
/// # Panics
/// When it does not fit: wrapped around, it would pass for a small one.
fn size<const N: usize>(factors: [usize; N]) -> usize {
    let product = factors.into_iter().try_fold(1, usize::checked_mul);
    product.expect("a size beyond all memory")
}

/// Bytes of a row of `n` weights.
fn row_bytes(info: &TypeInfo, n: usize) -> usize {
    assert!(n <= MAX_COLUMNS, "{n} columns");
    assert!(n.is_multiple_of(info.block), "{}: {n} columns are not whole blocks of {}", info.name, info.block);
    info.row_header() + n / info.block * info.bytes
}

/// Checks that the lengths of a [`MatRows`] call fit each other; the number of rows.
fn check(w: &[u8], acts: &[u8], row: (usize, usize), tokens: usize, out: &[f32]) -> usize {
    let rows = out.len().checked_div(tokens).unwrap_or(0);
    assert_eq!(out.len(), rows * tokens, "outputs are whole rows of {tokens} tokens");
    assert_eq!(w.len(), size([rows, row.0]), "weights: {rows} rows of {} bytes", row.0);
    assert_eq!(acts.len(), size([tokens, row.1]), "activations: {tokens} rows of {} bytes", row.1);
    rows
}
