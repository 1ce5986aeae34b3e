//! The single things that keep a model from running. One pass over a file collects them all.

use std::io;
use std::path::PathBuf;

use trine_formats::anyprec::AnyPrecError;
use trine_formats::gguf::GgufError;
use trine_formats::rotated::RotatedError;
use trine_formats::widely::WidelyError;

/// One thing that keeps a model from running.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A key that the architecture needs is missing.
    #[error("{0} is missing")]
    MissingKey(String),
    /// A key has a value that no model of the architecture can have, or that trine does not run.
    #[error("{key} {what}")]
    Key {
        /// Its full name.
        key: String,
        /// The value, and what it should be.
        what: String,
    },
    /// Parts of the metadata, or of what was asked for, that contradict each other.
    #[error("{0}")]
    Contradiction(String),
    /// A value of the wrong type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A tensor that the architecture needs is missing.
    #[error("tensor {0} is missing")]
    MissingTensor(String),
    /// A tensor of a shape that the metadata does not say.
    #[error("tensor {tensor} has shape {found:?}, expected {expected:?}")]
    Shape {
        /// Its name.
        tensor: String,
        /// The extents in the file, as GGUF orders them: the length of a row first.
        found: Vec<u64>,
        /// Those that fit the metadata.
        expected: Vec<usize>,
    },
    /// A tensor that is there and cannot be used.
    #[error("tensor {tensor}: {what}")]
    Tensor {
        /// Its name.
        tensor: String,
        /// The reason.
        what: String,
    },
    /// Tensors that nothing in the architecture asks for.
    #[error("the architecture has no place for {0}")]
    Leftover(String),
    /// The parts of an any-precision matrix do not fit to each other.
    #[error(transparent)]
    AnyPrecision(#[from] AnyPrecError),
    /// Keys about rotated weights that make no sense.
    #[error(transparent)]
    Rotated(#[from] RotatedError),
    /// The parts of a widely linear matrix do not fit to each other.
    #[error(transparent)]
    Widely(#[from] WidelyError),
    /// A file of low-rank weights that changes what it cannot change.
    #[error("adapter {path}: {what}", path = .path.display())]
    Adapter {
        /// Its path.
        path: PathBuf,
        /// The reason.
        what: String,
    },
    /// There is no memory for weights in the layout that they run from.
    #[error("no memory for packed weights: {0}; try --no-repack")]
    Memory(io::Error),
    /// An environment variable that says how to load and makes no sense.
    #[error("{0}")]
    Environment(String),
    /// An operation of the forward pass without a derivative, or a matrix without plain weights.
    #[error("{0}")]
    Gradient(String),
}

impl Problem {
    /// A tensor that cannot be used, and why.
    pub fn tensor(name: &str, what: impl Into<String>) -> Problem {
        Problem::Tensor { tensor: name.to_owned(), what: what.into() }
    }
}
