//! News of long work on files.

/// Is told how far the work of a plan is.
pub trait Progress: Send {
    /// Work on row number `index` of the plan begins, which makes tensor `name`.
    fn tensor(&mut self, index: usize, name: &str);
    /// `bytes` more of the plan's work are done.
    fn advance(&mut self, bytes: u64);
}

/// No news.
impl Progress for () {
    fn tensor(&mut self, _: usize, _: &str) {}
    fn advance(&mut self, _: u64) {}
}
