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

use std::fmt;

use trine_formats::types::{DecodeFn, EncodeFn, TypeId, TypeInfo};

pub use aligned::{AlignedBytes, Floats};

mod aligned;
mod arch;
pub mod bitplane;
pub mod elements;
pub mod gemm;
pub mod halves;
pub mod math;
pub mod packed;
pub mod probe;
mod scalar;
pub mod ternary;
#[doc(hidden)]
pub mod testing;

#[cfg(test)]
mod encode_tests;
#[cfg(test)]
mod tests;

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

/// Which instruction set the kernels use. The bits of the results do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Portable Rust: the definitions themselves.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// The above with AVX-512 F, BW, VL, DQ and VNNI.
    Avx512,
}

/// Why `TRINE_ISA` cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// Not one of the names.
    #[error("TRINE_ISA={0:?} is not known; use scalar, avx2 or avx512, or unset it")]
    Unknown(String),
    /// A known name that this processor cannot run.
    #[error("TRINE_ISA={wanted}: this processor has only {have}; use that or unset it")]
    Unsupported {
        /// The instruction set asked for.
        wanted: Isa,
        /// The best this processor has.
        have: Isa,
    },
}

impl Isa {
    /// All instruction sets, the plainest first.
    pub const ALL: [Isa; 3] = [Isa::Scalar, Isa::Avx2, Isa::Avx512];

    /// The best instruction set of this processor.
    pub fn detect() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vnni");
            match (avx2, avx512) {
                (true, true) => Isa::Avx512,
                (true, false) => Isa::Avx2,
                (false, _) => Isa::Scalar,
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Scalar
    }

    /// The instruction set that the environment variable `TRINE_ISA` names, or the best one.
    ///
    /// # Errors
    /// The name is unknown, or the processor cannot run it.
    pub fn from_env() -> Result<Isa, IsaError> {
        match std::env::var_os("TRINE_ISA") {
            None => Ok(Isa::detect()),
            Some(name) if name.is_empty() => Ok(Isa::detect()),
            Some(name) => Isa::from_name(&name.to_string_lossy()),
        }
    }

    fn from_name(name: &str) -> Result<Isa, IsaError> {
        let wanted = Isa::ALL.into_iter().find(|isa| isa.name() == name);
        let wanted = wanted.ok_or_else(|| IsaError::Unknown(name.to_owned()))?;
        let have = Isa::detect();
        if wanted > have {
            Err(IsaError::Unsupported { wanted, have })
        } else {
            Ok(wanted)
        }
    }

    /// The name that `TRINE_ISA` takes.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kernel of a weight type, or `None` when the type has no dot product.
///
/// An `isa` beyond what the processor has counts as the best it has; a type without a kernel for
/// `isa` gets the best there is below it, at last `dot_ref` in loops.
pub fn mat_rows(ty: TypeId, isa: Isa) -> Option<MatRows> {
    #[cfg(target_arch = "x86_64")]
    if let Some(f) = x86_64::mat_rows(ty, isa.min(Isa::detect())) {
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
    #[cfg(target_arch = "x86_64")]
    if let Some(f) = x86_64::quantize_act(act, isa.min(Isa::detect())) {
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
    #[cfg(target_arch = "x86_64")]
    if let Some(f) = x86_64::decode_rows(ty, isa.min(Isa::detect())) {
        return Some(f);
    }
    let _ = isa;
    Some(definition)
}

/// The encoder of a type: the bytes of its own `encode`, for all inputs, with and without importance. `None`
/// when it has none.
pub fn encode_rows(ty: TypeId, isa: Isa) -> Option<EncodeFn> {
    let definition = ty.info()?.encode?;
    #[cfg(target_arch = "x86_64")]
    if let Some(f) = x86_64::encode_rows(ty, isa.min(Isa::detect())) {
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
    if let Some(f) = x86_64::compare_rows(isa.min(Isa::detect())) {
        return f;
    }
    let _ = isa;
    scalar::compare_rows
}

/// Bytes of a row of `n` weights.
fn row_bytes(info: &TypeInfo, n: usize) -> usize {
    assert!(
        n.is_multiple_of(info.block),
        "{}: {n} columns are not whole blocks of {}",
        info.name,
        info.block
    );
    n / info.block * info.bytes
}

/// Checks that the lengths of a [`MatRows`] call fit each other; the number of rows.
fn check(w: &[u8], acts: &[u8], row: (usize, usize), tokens: usize, out: &[f32]) -> usize {
    let rows = out.len().checked_div(tokens).unwrap_or(0);
    assert_eq!(
        out.len(),
        rows * tokens,
        "outputs are whole rows of {tokens} tokens"
    );
    assert_eq!(
        w.len(),
        rows * row.0,
        "weights: {rows} rows of {} bytes",
        row.0
    );
    assert_eq!(
        acts.len(),
        tokens * row.1,
        "activations: {tokens} rows of {} bytes",
        row.1
    );
    rows
}
