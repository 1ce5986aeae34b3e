//! Rows and outputs of products of sixteen tokens at once.

use trine_formats::widely::Shape;

use super::CodeLayout;

/// Tokens of a call.
pub const TOKENS: usize = 16;
/// Rows of a call at most, whose sums stay in the second-level cache.
pub const ROWS: usize = 128;

/// Real and imaginary parts of the outputs of a row for all tokens.
pub type Outputs = [[f32; TOKENS]; 2];

/// Consecutive rows of a widely linear matrix, whole units but for the last.
#[derive(Clone, Copy)]
pub struct WeightRows<'a> {
    /// Shape of the whole matrix.
    pub shape: &'a Shape,
    /// Number of the first row in the matrix: the first one of its unit.
    pub first: usize,
    /// Layout of the codes.
    pub form: CodeLayout,
    /// The units that the rows stand in.
    pub weights: &'a [u8],
    /// The scales of the whole matrix.
    pub scales: &'a [f32],
}
