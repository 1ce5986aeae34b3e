//! Errors of the packers.

use thiserror::Error;

/// Why a matrix cannot be laid out for the GPU.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PackError {
    /// Rows are no whole blocks.
    #[error("{what}: {columns} columns are not whole blocks of {block}")]
    Columns {
        /// The data to pack.
        what: &'static str,
        /// Weights per row.
        columns: usize,
        /// Weights per block.
        block: usize,
    },
    /// The data is not as long as the shape says.
    #[error("{what}: {found} elements, where {rows} x {columns} take {expected}")]
    Length {
        /// The data to pack.
        what: &'static str,
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        columns: usize,
        /// Bytes or codes that were given.
        found: usize,
        /// Bytes or codes that there should be.
        expected: usize,
    },
    /// The size does not fit in memory.
    #[error("{what}: {rows} x {columns} are more than memory can hold")]
    TooLarge {
        /// The data to pack.
        what: &'static str,
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        columns: usize,
    },
    /// A code that the format has no place for.
    #[error("{what}: code {code} at row {row}, column {column}")]
    Code {
        /// The data to pack.
        what: &'static str,
        /// The code.
        code: i32,
        /// Row of the matrix.
        row: usize,
        /// Column of the matrix.
        column: usize,
    },
    /// More than two of four consecutive weights are not zero.
    #[error("2:4 sparse: {kept} of the four weights of column {column} from row {row} on are not zero")]
    Dense {
        /// Weights that are not zero.
        kept: usize,
        /// First row of the group.
        row: usize,
        /// Column of the matrix.
        column: usize,
    },
    /// More than two of four weights are not zero, in a file that says it was pruned to 2:4.
    #[error(
        "the file says that it was pruned to 2:4, and {kept} of the four weights of row {row} from column {column} on are not zero; make it \
         anew with rquantize --gptq --sparse 2:4, or run it without --number-path fast"
    )]
    NotPruned {
        /// Weights that are not zero.
        kept: usize,
        /// Row of the matrix in the file.
        row: usize,
        /// Its first column.
        column: usize,
    },
    /// The tensor type has no layout for the GPU.
    #[error("{name} has no layout for the GPU")]
    Type {
        /// The tensor type.
        name: String,
    },
}

/// The shape of a matrix that is packed, and what it is called in errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) what: &'static str,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Shape {
    /// The product of sizes, each of which belongs to this matrix.
    ///
    /// # Errors
    /// It is more than a slice can have.
    pub(super) fn size<const N: usize>(&self, factors: [usize; N]) -> Result<usize, PackError> {
        let product = factors.into_iter().try_fold(1usize, usize::checked_mul);
        product.filter(|&n| n <= isize::MAX as usize / 8).ok_or(PackError::TooLarge {
            what: self.what,
            rows: self.rows,
            columns: self.columns,
        })
    }

    /// Blocks of a row.
    ///
    /// # Errors
    /// Rows are no whole blocks.
    pub(super) fn blocks(&self, block: usize) -> Result<usize, PackError> {
        if self.columns.is_multiple_of(block) {
            return Ok(self.columns / block);
        }
        Err(PackError::Columns { what: self.what, columns: self.columns, block })
    }

    /// Checks a length.
    ///
    /// # Errors
    /// `found` differs from `expected`.
    pub(super) fn expect(&self, found: usize, expected: usize) -> Result<(), PackError> {
        if found == expected {
            return Ok(());
        }
        Err(PackError::Length { what: self.what, rows: self.rows, columns: self.columns, found, expected })
    }
}
