//! News of a plan that is carried out.

use super::row::Row;

/// Is told how far the work is.
pub trait Progress {
    /// `index` counts from 0.
    fn tensor(&mut self, index: usize, row: &Row);
    /// So many more bytes of the input are done.
    fn advance(&mut self, bytes: u64);
}

/// No news.
impl Progress for () {
    fn tensor(&mut self, _: usize, _: &Row) {}
    fn advance(&mut self, _: u64) {}
}
