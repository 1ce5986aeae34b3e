//! Who is told how far the work is.

/// The progress that a program shows. It is called from the thread that fetches.
pub trait Watcher {
    /// A line for the user, without a line break.
    fn say(&self, line: &str);

    /// A download of `total` bytes begins, of which `have` are there already.
    fn begin(&self, file: &str, total: u64, have: u64);

    /// `bytes` more are there.
    fn advance(&self, bytes: u64);

    /// The download is over, whole or not.
    fn end(&self);
}

/// Nobody watches.
impl Watcher for () {
    fn say(&self, _: &str) {}
    fn begin(&self, _: &str, _: u64, _: u64) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}
}
