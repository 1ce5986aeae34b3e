//! Common parts of the layouts of I2_S, TL1 and TL2: the scale behind the codes, tile parameters, and errors in the
//! bytes. Each layout has a file of its own above this one; [`super::ternary`] chooses among them.

use std::fmt;

use thiserror::Error;

use super::TypeId;

/// Bytes that follow the packed codes: the scale and 28 unused bytes, written as zeros.
pub const TAIL: usize = 32;

/// Tile parameters of TL1 and TL2: the order of the bytes depends on them, and bitnet.cpp's files do not
/// say what they are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tiles {
    /// Rows of a tile, `BM`.
    pub rows: u32,
    /// Columns of a tile, `BK`.
    pub columns: u32,
    /// Rows of a micro-tile, `bm`.
    pub micro: u32,
}

impl Tiles {
    /// `BM`, `BK`, `bm`.
    pub const fn new(rows: u32, columns: u32, micro: u32) -> Tiles {
        Tiles { rows, columns, micro }
    }
}

impl fmt::Display for Tiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BM {}, BK {}, bm {}", self.rows, self.columns, self.micro)
    }
}

/// Why the bytes of a tensor are not a matrix of this format. The caller knows the tensor's name.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TernaryError {
    #[error(
        "{ty} packs {multiple} columns at a time, rows have {columns}, which is no multiple; convert the model to another type"
    )]
    Columns { ty: TypeId, columns: usize, multiple: usize },
    #[error("{ty} cannot have tiles of {tiles} for {rows} rows of {columns} columns: {rule}")]
    Tiles { ty: TypeId, tiles: Tiles, rows: usize, columns: usize, rule: &'static str },
    #[error("tl2 cannot hold rows of fewer than 256 columns, these have {columns}")]
    Narrow { columns: u64 },
    #[error("{rows} rows of {columns} columns are more than memory can address")]
    TooLarge { rows: usize, columns: usize },
    #[error("the {TAIL} bytes behind the codes that hold the scale are missing: {found} bytes, {expected} are needed")]
    NoScale { found: usize, expected: usize },
    #[error("has {found} bytes, {rows} rows of {columns} columns in {ty} take {expected}")]
    Length { ty: TypeId, rows: usize, columns: usize, found: usize, expected: usize },
    #[error(
        "row {row}, column {column}: {ty} code {code} stands for no weight: the data is damaged or laid out otherwise"
    )]
    Code { ty: TypeId, row: usize, column: usize, code: u8 },
    #[error("row {row}, column {column}: {code} is not a ternary weight")]
    NotTernary { row: usize, column: usize, code: i8 },
    #[error("rows {first}..{end} were asked for, the tensor has {rows}")]
    Rows { first: usize, end: usize, rows: usize },
    #[error("a buffer of {found} codes was given, {expected} are needed")]
    Buffer { found: usize, expected: usize },
}

/// A byte that decodes to nothing: position within the row, and the offending code.
pub(super) struct BadCode {
    pub column: usize,
    pub code: u8,
}
