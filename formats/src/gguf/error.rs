//! Why a GGUF file was refused: what is wrong, where, and what to do about it.

use std::fmt;

use thiserror::Error;

use crate::types::TypeId;
use crate::types::ternary::TernaryError;

/// A refusal. One line: the field, the problem, the byte offset where the field starts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct GgufError {
    /// Byte offset in the file, where the problem has one.
    pub offset: Option<u64>,
    /// The field that was being read: `header: version`, `key 'general.name'`, `tensor 'output.weight'`.
    pub field: String,
    /// The problem.
    pub kind: ErrorKind,
}

impl fmt::Display for GgufError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "{}", self.kind)?;
        match self.offset {
            Some(at) => write!(f, " (at byte {at})"),
            None => Ok(()),
        }
    }
}

impl GgufError {
    /// An error without a place in the file, such as a metadata value of the wrong type.
    pub fn new(field: impl Into<String>, kind: ErrorKind) -> GgufError {
        GgufError { offset: None, field: field.into(), kind }
    }

    /// An error about a tensor.
    pub fn tensor(name: &str, kind: impl Into<ErrorKind>) -> GgufError {
        GgufError::new(format!("tensor '{name}'"), kind.into())
    }

    /// An error about a metadata key.
    pub fn key(key: &str, kind: ErrorKind) -> GgufError {
        GgufError::new(format!("key '{key}'"), kind)
    }

    /// The value of a key that has to be there.
    pub(crate) fn required<T>(key: &str, value: Option<T>) -> Result<T, GgufError> {
        value.ok_or_else(|| GgufError::key(key, ErrorKind::Missing))
    }
}

/// Errors in a GGUF file.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ErrorKind {
    #[error("the file is empty")]
    Empty,
    #[error("not a GGUF file: it starts with {found}, a GGUF file starts with the letters GGUF")]
    Magic { found: String },
    #[error("this is a big-endian GGUF file; convert it with gguf-py's gguf_convert_endian")]
    BigEndian,
    #[error("GGUF version {0} is not supported, only 2 and 3 are; make the file anew with a current converter")]
    Version(u32),
    #[error("needs {need} bytes where {left} are left: the file is cut off or damaged")]
    Truncated { need: u64, left: u64 },
    #[error("claims {count} entries where the {left} bytes left hold at most {max}: the file is cut off or damaged")]
    Count { count: u64, left: u64, max: u64 },
    #[error("is {len} bytes long, at most {max} are allowed")]
    TooLong { len: u64, max: u64 },
    #[error("would take {need} bytes of memory, {left} of the header's budget are left")]
    Memory { need: u64, left: u64 },
    #[error("is not valid UTF-8")]
    NotUtf8,
    #[error("contains a NUL byte")]
    Nul,
    #[error("is empty")]
    EmptyName,
    #[error("appears twice")]
    Duplicate,
    #[error("{0} is not a GGUF value type")]
    ValueType(u32),
    #[error("is an array of arrays, which no GGUF reader supports")]
    NestedArray,
    #[error("a bool must be 0 or 1, not {0}")]
    Bool(u8),
    #[error("{found} is not a usable alignment: a power of two up to {max} is")]
    Alignment { found: u32, max: u64 },
    #[error("is of type {found}, expected {expected}")]
    WrongType { expected: &'static str, found: &'static str },
    #[error("{value} does not fit {expected}")]
    OutOfRange { value: i128, expected: &'static str },
    #[error("is missing")]
    Missing,
    #[error("has {0} dimensions, 1 to 4 are allowed")]
    Dimensions(u32),
    #[error("dimension {index} is negative ({value})")]
    NegativeDimension { index: usize, value: i64 },
    #[error("shape {shape:?} has more elements or bytes than 63 bits can count")]
    Overflow { shape: Vec<u64> },
    #[error("{0} is not a tensor type")]
    TypeId(i32),
    #[error("type {ty} stores blocks of {block} values, but rows have {columns}, which is no multiple")]
    Block { ty: TypeId, block: u64, columns: u64 },
    #[error("data offset {offset} is not a multiple of the alignment {alignment}")]
    Misaligned { offset: u64, alignment: u64 },
    #[error(
        "data offset is {found} where the tensors before it end at {expected}: overlap, gap or wrong order (or a fork's tensor type of another size)"
    )]
    Layout { found: u64, expected: u64 },
    #[error("the file is truncated: the tensor needs bytes {start}..{end}, the file has {len}; download it again")]
    DataTruncated { start: u64, end: u64, len: u64 },
    #[error("has {found} bytes of data where its shape and type take {expected}")]
    DataLength { found: u64, expected: u64 },
    #[error("the size of {ty} is not known; it can only be copied whole")]
    UnknownSize { ty: TypeId },
    #[error("{0}")]
    Split(String),
    #[error("'{found}' is not a dialect that trine knows; it knows {known}")]
    UnknownDialect { found: String, known: String },
    #[error("type number {id} takes {sizes}, the file has room for {room}: it is damaged{note}")]
    ForeignType { id: u32, room: u64, sizes: String, note: &'static str },
    #[error(
        "type number {id} can be {names}, and nothing in the file tells which: make it anew with the key trine.dialect set to ggml or bitnet.cpp"
    )]
    AmbiguousType { id: u32, names: String },
    #[error("as {ty} the file would be read as {read}: set the key trine.dialect to '{dialect}' beside it")]
    Misread { ty: TypeId, read: TypeId, dialect: &'static str },
    #[error(
        "{ty} data of {rows} rows and {columns} columns cannot be read without its tile sizes, which the file does not give: take BM, BK and bm from the kernel_config.ini it was made with and give --tl-tiles {rows}x{columns}=BM,BK,bm"
    )]
    NoTiles { ty: TypeId, rows: u64, columns: u64 },
    #[error("is not a list of rows, columns, BM, BK and bm of matrices: five whole numbers each, no dimension 0")]
    TileList,
    #[error("{0} is not a ternary type with one scale per tensor: i2_s, tl1 and tl2 are")]
    NotPerTensor(TypeId),
    #[error("{0}")]
    Ternary(#[from] TernaryError),
}

/// An error that still lacks the name of the field.
#[derive(Debug)]
pub(crate) struct Unnamed {
    pub offset: u64,
    pub kind: ErrorKind,
}

/// Names the field of a failed read. The name is built only on failure.
pub(crate) trait Named<T> {
    fn of(self, field: impl FnOnce() -> String) -> Result<T, GgufError>;
}

impl<T> Named<T> for Result<T, Unnamed> {
    fn of(self, field: impl FnOnce() -> String) -> Result<T, GgufError> {
        self.map_err(|e| GgufError { offset: Some(e.offset), field: field(), kind: e.kind })
    }
}
