//! A row whose codes and tables are improved.

/// A row on its way: a code for each column, and the tables of all widths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coded {
    /// Codes, `[column]`.
    pub codes: Vec<u8>,
    /// Tables in half precision, the narrowest width first.
    pub luts: Vec<Vec<u16>>,
    /// The error at every width, `(Q - W) H (Q - W)^T`.
    pub errors: Vec<f64>,
    /// `W H W^T`.
    pub energy: f64,
}
