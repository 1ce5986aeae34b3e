//! Hessians of linear layers: for every input that weight matrices of a model share, the sums of `x_i x_j` over the
//! tokens of a text, as `rimatrix --hessian` writes them and rounding with error feedback needs them.
//!
//! The file is GGUF. Each input has one tensor, named after the first weight that reads it:
//!
//! ```text
//! NAME.xtx   F64 [K (K + 1) / 2]    the lower triangle of sum of x x^T, row after row: (0,0) (1,0) (1,1) (2,0) ...
//! ```
//!
//! and the keys say what it belongs to and where it comes from:
//!
//! | key | |
//! |---|---|
//! | `general.type` | `hessian` |
//! | `hessian.version` | 1 |
//! | `hessian.weights` | names of all weights, sorted |
//! | `hessian.inputs` | for each of them the number of its input, which is the number of the tensor |
//! | `hessian.columns` | K of every input |
//! | `hessian.chunk_count`, `hessian.chunk_size` | the text's chunks, and tokens of each |
//! | `hessian.first_chunk` | chunks of the text that were left out at its beginning |
//! | `hessian.special` | whether texts of control tokens were taken as these tokens |
//! | `hessian.dataset`, `hessian.dataset_sha256` | the text's file name, and the SHA-256 of its bytes |
//! | `hessian.model_sha256` | SHA-256 of the model's file or files |

mod read;
mod write;

use std::collections::BTreeMap;

use thiserror::Error;

use crate::gguf::GgufError;

/// Why a file of Hessians was refused.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HessianError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error("the file holds no Hessians: {0}")]
    NoHessians(&'static str),
    #[error("its version is {0}, this program knows version 1; it was written by a newer one")]
    Version(u32),
    #[error("'{name}': {what}")]
    Input { name: String, what: String },
}

/// Origin of the sums. Two files with the same origin belong to the same run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// SHA-256 of the model's file or files, in hexadecimal.
    pub model_sha256: String,
    /// The text, as named on the command line.
    pub dataset: String,
    /// SHA-256 of its bytes, in hexadecimal.
    pub dataset_sha256: String,
    /// Tokens of a chunk.
    pub chunk_size: u32,
    /// Chunks of the text that were left out at its beginning.
    pub first_chunk: u32,
    /// True if texts of control tokens were parsed as these tokens.
    pub special: bool,
}

/// An input that one or more weights read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The first weight that reads it.
    pub name: String,
    /// Its width K.
    pub columns: u64,
}

/// The description in a file of Hessians: everything but the sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hessians {
    /// Origin of the sums.
    pub origin: Origin,
    /// Chunks that are in the sums.
    pub chunks: u32,
    /// The inputs, in the order of the graph.
    pub inputs: Vec<Input>,
    /// The input of every weight.
    pub weights: BTreeMap<String, usize>,
}

impl Hessians {
    /// Tokens that are in the sums.
    pub fn tokens(&self) -> u64 {
        u64::from(self.chunks) * u64::from(self.origin.chunk_size)
    }

    /// Bytes of all sums; `None` where no memory holds them.
    pub fn bytes(&self) -> Option<u64> {
        let mut sizes = self.inputs.iter().map(Input::bytes);
        sizes.try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
    }
}

impl Input {
    /// Elements of the lower triangle.
    pub fn elements(&self) -> Option<u64> {
        let k = self.columns;
        k.checked_mul(k.checked_add(1)?).map(|n| n / 2)
    }

    /// Bytes of the sums.
    pub fn bytes(&self) -> Option<u64> {
        self.elements()?.checked_mul(8)
    }

    /// The name of its tensor.
    pub fn tensor(&self) -> String {
        format!("{}{SUMS}", self.name)
    }
}

const TYPE: &str = "general.type";
const KIND: &str = "hessian";
const VERSION: &str = "hessian.version";
const WEIGHTS: &str = "hessian.weights";
const INPUTS: &str = "hessian.inputs";
const COLUMNS: &str = "hessian.columns";
const CHUNK_COUNT: &str = "hessian.chunk_count";
const CHUNK_SIZE: &str = "hessian.chunk_size";
const FIRST_CHUNK: &str = "hessian.first_chunk";
const SPECIAL: &str = "hessian.special";
const DATASET: &str = "hessian.dataset";
const DATASET_SHA256: &str = "hessian.dataset_sha256";
const MODEL_SHA256: &str = "hessian.model_sha256";
const SUMS: &str = ".xtx";

#[cfg(test)]
mod tests;
