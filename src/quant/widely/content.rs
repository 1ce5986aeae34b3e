//! The tensors of the output, and what they are made of.

use trine_formats::gguf::Metadata;
use trine_formats::types::TypeId;
use trine_formats::widely::{Header, Shape};

use crate::quant::codec::bytes_of;
use crate::quant::copy;
use crate::quant::row::{Reason, Row, StoredTensor, raw};

/// The method that makes matrices widely linear, and dense again.
pub(super) const NAME: &str = "widely";

/// The source of a tensor of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// The bytes of the input; the rows of heads are put in the order of the checkpoint, or back.
    Copied {
        /// Elements of a head whose rows change places.
        head: Option<u64>,
    },
    /// The words of a matrix.
    Codes {
        /// The matrix.
        shape: Shape,
        /// Elements of a head whose rows change places.
        head: Option<u64>,
    },
    /// The scales of the matrix whose words come before.
    Scales,
    /// The words of a matrix that the Fairy2i fork of llama.cpp has stored.
    Tiles {
        /// The matrix.
        shape: Shape,
    },
    /// The token embedding of such a file.
    Embeddings,
    /// The sums of the stages of a matrix.
    Dense {
        /// The matrix.
        shape: Shape,
        /// Elements of a head whose rows change places.
        head: Option<u64>,
    },
}

impl Content {
    /// Description in a few words.
    fn what(self) -> &'static str {
        match self {
            Content::Copied { head: None } => "as it is",
            Content::Copied { head: Some(_) } => "rows of heads in another order",
            Content::Codes { .. } => "codes",
            Content::Scales => "scales",
            Content::Tiles { .. } => "codes of another layout",
            Content::Embeddings => "pairs of bfloat16, taken apart",
            Content::Dense { .. } => "the sum of the stages",
        }
    }
}

/// A plan of a whole file.
#[derive(Debug)]
pub(super) struct Contents {
    /// The keys about the matrices; for a model that becomes dense, those of the source.
    pub header: Header,
    /// All keys of the output.
    pub meta: Metadata,
    /// The tensors, in file order.
    pub rows: Vec<(Row, Content)>,
    /// Decisions that nobody asked for, a sentence each.
    pub notes: Vec<String>,
}

/// A tensor that stays what it is.
pub(super) fn copied(place: StoredTensor<'_>, head: Option<u64>) -> (Row, Content) {
    let content = Content::Copied { head };
    let method = if head.is_some() { NAME } else { copy::NAME };
    let reason = Reason::Kept(content.what());
    (Row { reason, method, ..raw(place.2.name.clone(), place) }, content)
}

/// A tensor of another name, type and shape, for which `work` bytes are read.
pub(super) fn made(
    place: StoredTensor<'_>,
    (name, ty, shape): (String, TypeId, Vec<u64>),
    work: u64,
    content: Content,
) -> (Row, Content) {
    let row = Row {
        to: ty,
        bytes_from: work,
        bytes: bytes_of(ty, &shape),
        shape,
        reason: Reason::Kept(content.what()),
        method: NAME,
        ..raw(name, place)
    };
    (row, content)
}
