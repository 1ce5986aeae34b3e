//! What a type does with the columns of a row, one after the other.

/// Rounds the columns of a row in order. Columns that share a block or a scale are a span.
pub trait Rounding {
    /// Columns of a span; the last one of a row may have fewer.
    fn span(&self) -> usize;

    /// Decides the scales of the span that starts at column `first`, from its weights as they are when it is reached.
    fn begin(&mut self, first: usize, weights: &[f64]);

    /// Rounds column number `i` of the span; the value that the file will hold.
    fn round(&mut self, i: usize, weight: f64) -> f64;

    /// Writes the blocks of the span, all of whose columns are rounded.
    fn finish(&mut self, out: &mut [u8]);
}
