//! Hessians of linear layers: for every input that weight matrices of a model share, the sums of `x_i x_j` over the
//! tokens of a text, as `rimatrix --hessian` writes them and rounding with error feedback needs them.
//!
//! The file is GGUF. Each input has one tensor, named after the first weight that reads it:
//!
//! ```text
//! NAME.xtx     F64 [K (K + 1) / 2]    the lower triangle of sum of x x^T, row after row: (0,0) (1,0) (1,1) (2,0) ...
//! NAME.E.xtx   the same over the tokens that go to expert number E of the stacked matrices NAME
//! ```
//!
//! and the keys say what it belongs to and where it comes from:
//!
//! | key | |
//! |---|---|
//! | `general.type` | `hessian` |
//! | `hessian.version` | 1; 2 where there are experts |
//! | `hessian.weights` | names of all weights, sorted |
//! | `hessian.inputs` | for each of them the number of its input, which is the number of the tensor; for stacked matrices that of the first expert, which the others follow |
//! | `hessian.experts` | for each of them the number of stacked matrices, 0 of a matrix by itself; only in version 2 |
//! | `hessian.columns` | K of every input |
//! | `hessian.tokens` | tokens in the sums of every input; only in version 2 |
//! | `hessian.chunk_count`, `hessian.chunk_size` | the text's chunks, and tokens of each |
//! | `hessian.first_chunk` | chunks of the text that were left out at its beginning |
//! | `hessian.special` | whether texts of control tokens were taken as these tokens |
//! | `hessian.dataset`, `hessian.dataset_sha256` | the text's file name, and the SHA-256 of its bytes |
//! | `hessian.model_sha256` | SHA-256 of the model's file or files |

mod read;
mod write;

pub use write::write_sums;

use std::collections::BTreeMap;
use std::ops::Range;

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
    #[error("its version is {0}, this program knows versions 1 and 2; it was written by a newer one")]
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
    /// The expert that it goes to, where the weights are stacked.
    pub expert: Option<Expert>,
}

/// One of the experts of stacked matrices, or one of the heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expert {
    /// Its number.
    pub number: usize,
    /// Tokens that went there, which are those in its sums.
    pub tokens: u64,
}

/// The inputs that a weight reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// The number of its input; of stacked matrices that of the first, which the others follow.
    pub first: usize,
    /// The number of stacked matrices; 0 of a matrix by itself, which every token goes to.
    pub experts: usize,
}

impl Reads {
    /// The numbers of its inputs: one, or one for each expert.
    pub fn inputs(self) -> Range<usize> {
        self.first..self.first + self.experts.max(1)
    }
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
    /// The inputs of every weight.
    pub weights: BTreeMap<String, Reads>,
}

impl Hessians {
    /// Tokens that are in the sums.
    pub fn tokens(&self) -> u64 {
        u64::from(self.chunks) * u64::from(self.origin.chunk_size)
    }

    /// Tokens that are in the sums of input number `input`.
    ///
    /// # Panics
    /// When there is no such input.
    pub fn tokens_of(&self, input: usize) -> u64 {
        self.inputs[input].expert.map_or_else(|| self.tokens(), |expert| expert.tokens)
    }

    /// True if there are stacked matrices.
    pub fn has_experts(&self) -> bool {
        self.weights.values().any(|reads| reads.experts > 0)
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
        match self.expert {
            None => format!("{}{SUMS}", self.name),
            Some(expert) => format!("{}.{}{SUMS}", self.name, expert.number),
        }
    }
}

const TYPE: &str = "general.type";
const KIND: &str = "hessian";
const VERSION: &str = "hessian.version";
const WEIGHTS: &str = "hessian.weights";
const INPUTS: &str = "hessian.inputs";
const EXPERTS: &str = "hessian.experts";
const TOKENS: &str = "hessian.tokens";
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
