//! How products are computed where a model leaves a choice that decides their bits.

use crate::kernels::{bitplane, widely};

/// How products with any-precision and with widely linear weights are computed. Each is a definition of its own and
/// gives bits of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NumberPath {
    /// Single precision.
    F32,
    /// Any-precision weights: 16-bit centroids and 8-bit activations, with exact integer sums. Widely linear weights,
    /// which have no such path: single precision.
    #[default]
    I16,
    /// Widely linear weights: 8-bit activations in blocks of 64, with exact integer sums. It multiplies, and rounds
    /// activations. Models without such weights refuse it.
    I8,
    /// Products on a GPU with activations in half precision, of ternary weights and of Q4_0, as TriRun and
    /// MARLIN compute them. Their bits are neither the processor's nor those of another generation of GPUs; on one GPU
    /// no batch changes them. All else is as it always is.
    Fast,
}

impl NumberPath {
    /// That of any-precision weights.
    pub(super) fn bitplane(self) -> bitplane::NumberPath {
        match self {
            NumberPath::F32 => bitplane::NumberPath::F32,
            NumberPath::I16 | NumberPath::I8 | NumberPath::Fast => bitplane::NumberPath::I16,
        }
    }

    /// That of widely linear weights.
    pub(super) fn widely(self) -> widely::Path {
        match self {
            NumberPath::F32 | NumberPath::I16 | NumberPath::Fast => widely::Path::Exact,
            NumberPath::I8 => widely::Path::Int8,
        }
    }
}
