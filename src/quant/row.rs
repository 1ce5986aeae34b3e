//! A tensor's way from the input to the output: what a plan is a list of.

use std::fmt;
use std::ops::Range;

use thiserror::Error;
use trine_formats::gguf::write::{NewTensor, ggml_shape};
use trine_formats::gguf::{Metadata, ModelFile, TensorInfo};
use trine_formats::types::TypeId;
use trine_formats::types::ik::apart::Interleaved;
use trine_formats::types::ternary::Packing;

/// The method that copies rows, or encodes them one by one: that of every row which no other takes.
pub(super) const ROUNDING: &str = "rounding";

/// One tensor of the output, or a matrix that becomes several.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Name in the output.
    pub name: String,
    /// Where it comes from.
    pub source: Source,
    /// Extents, fastest first, without trailing ones.
    pub shape: Vec<u64>,
    /// Type in the input, once rows are taken apart.
    pub from: TypeId,
    /// Type in the output.
    pub to: TypeId,
    /// Bytes in the input, in that type.
    pub bytes_from: u64,
    /// Bytes in the output.
    pub bytes: u64,
    /// Why it gets this type.
    pub reason: Reason,
    /// True if the importance matrix has weights for it.
    pub weighted: bool,
    /// The name of the method that makes it.
    pub method: &'static str,
    /// Set where ternary weights are moved rather than quantized.
    pub moves: Option<Move>,
    /// How the data of an I2_S, TL1 or TL2 tensor is laid out that is copied as it is, where that is known.
    pub packing: Option<Packing>,
}

impl Row {
    /// A tensor that stays what it is, wherever it lies.
    pub fn of(info: &TensorInfo) -> Row {
        raw(info.name.clone(), (0, 0, info))
    }

    /// An error that names it.
    pub(super) fn blame<F>(&self, fault: F) -> OfTensor<F> {
        OfTensor { tensor: self.name.clone(), fault }
    }

    /// Weights per row.
    pub fn columns(&self) -> u64 {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Number of weights.
    pub fn weights(&self) -> u64 {
        self.shape.iter().product()
    }

    /// The tensor as it is written.
    pub(super) fn tensor(&self) -> NewTensor {
        NewTensor { name: self.name.clone(), shape: self.shape.clone(), ty: self.to, bytes: Some(self.bytes) }
    }

    /// The tensor of the input, wherever it lies, with its rows taken apart.
    pub(super) fn info(&self) -> TensorInfo {
        let (name, shape) = (self.source.name.clone(), self.shape.clone());
        TensorInfo { name, shape, ty: self.from, offset: 0, bytes: self.bytes_from }
    }

    /// True if the type changes; otherwise the bytes are copied.
    pub fn converts(&self) -> bool {
        self.from != self.to || self.moves.is_some()
    }

    /// Leaves interleaved rows as they are that nothing converts and that no file can hold taken apart.
    pub(super) fn keep_together(&mut self) {
        let together = self.source.interleaved.filter(|ty| !self.converts() && ty.file_id() == self.to.file_id());
        if let Some(ty) = together {
            (self.from, self.to, self.source.interleaved) = (ty, ty, None);
        }
    }

    /// True if an encoder rounds the weights: they are neither copied nor moved, nor become floats.
    pub(super) fn is_encoded(&self) -> bool {
        let quantized = self.to.info().is_some_and(|ty| ty.is_quantized());
        self.from != self.to && self.moves.is_none() && quantized
    }
}

/// A fault of a tensor.
#[derive(Debug, Error)]
#[error("tensor {tensor}: {fault}")]
pub(super) struct OfTensor<F> {
    tensor: String,
    fault: F,
}

/// How a tensor is moved: the layouts that types of bitnet.cpp leave open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// The layout of an input of I2_S, TL1 or TL2.
    pub from: Option<Packing>,
    /// The layout of an output of these types.
    pub to: Option<Packing>,
}

/// A tensor of the input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Name in the input.
    pub name: String,
    /// Index of its shard.
    pub shard: usize,
    /// Where its data starts in the shard's file.
    pub offset: u64,
    /// Its type there, where its rows lie interleaved: they are taken apart when they are read.
    pub interleaved: Option<TypeId>,
}

impl Source {
    /// How its rows lie interleaved, and the bytes of a group of them in the file and of what it becomes.
    pub(super) fn groups(&self, columns: u64) -> Option<(&'static Interleaved, (usize, usize))> {
        let interleaved = self.interleaved.and_then(Interleaved::of)?;
        Some((interleaved, interleaved.group_bytes(usize::try_from(columns).ok()?)?))
    }
}

/// Why a tensor gets its type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The tensor is not quantized, for this reason.
    Kept(&'static str),
    /// The file type's own.
    Default,
    /// The mixture gives it another.
    Mixture,
    /// The pattern of a rule names it.
    Rule(String),
    /// This option names it.
    Option(&'static str),
    /// The type is the best for the size of the file.
    Allocated,
    /// A row is not whole blocks of the type it should have had.
    Fallback(TypeId),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Kept(why) => f.write_str(why),
            Reason::Default => f.write_str("file type"),
            Reason::Mixture => f.write_str("mixture"),
            Reason::Rule(pattern) => write!(f, "--tensor-type {pattern}"),
            Reason::Option(option) => f.write_str(option),
            Reason::Allocated => f.write_str("chosen for the size"),
            Reason::Fallback(wanted) => write!(f, "fallback from {wanted}"),
        }
    }
}

/// One output file.
#[derive(Clone, PartialEq, Debug)]
pub struct OutShard {
    /// Its keys.
    pub meta: Metadata,
    /// Its tensors, as a range of [`Plan::rows`](super::Plan::rows).
    pub rows: Range<usize>,
}

/// A tensor of a model: its shard, the offset of its data in that file in bytes, and its row of the table.
pub(super) type StoredTensor<'a> = (usize, u64, &'a TensorInfo);

/// All tensors of a model.
pub(super) fn sources(model: &ModelFile) -> Vec<StoredTensor<'_>> {
    let mut sources = Vec::with_capacity(model.n_tensors());
    for (s, shard) in model.shards().iter().enumerate() {
        let data = shard.gguf.data_offset;
        sources.extend(shard.gguf.tensors.iter().map(|t| (s, data + t.offset, t)));
    }
    sources
}

/// The row of a tensor whose bytes stay as they are.
pub(super) fn raw(name: String, (shard, offset, info): StoredTensor<'_>) -> Row {
    Row {
        name,
        source: Source { name: info.name.clone(), shard, offset, interleaved: None },
        shape: ggml_shape(&info.shape).to_vec(),
        from: info.ty,
        to: info.ty,
        bytes_from: info.bytes,
        bytes: info.bytes,
        reason: Reason::Default,
        weighted: false,
        method: ROUNDING,
        moves: None,
        packing: None,
    }
}

/// The same, but with rows taken apart that lie interleaved.
pub(super) fn unchanged(name: String, place: StoredTensor<'_>) -> Row {
    let mut row = raw(name, place);
    let info = place.2;
    let whole = |i: &&Interleaved| info.shape.get(1).is_some_and(|rows| rows.is_multiple_of(i.rows as u64));
    let interleaved = Interleaved::of(info.ty).filter(whole);
    let bytes_of = |i: &Interleaved| Some((i.base, i.base.info()?.tensor_bytes(info.columns(), info.rows())?));
    if let Some((ty, bytes)) = interleaved.and_then(bytes_of) {
        (row.from, row.to, row.bytes_from, row.bytes) = (ty, ty, bytes, bytes);
        row.source.interleaved = Some(info.ty);
    }
    row
}
