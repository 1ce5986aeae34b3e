//! Devices that keep layers of pages.

use std::io;

/// A device that keeps layers of pages.
pub trait Keeper: Send + Sync {
    /// The first `positions` of a page: keys and then values of one layer after the other, of each `[head][position]` as
    /// their type has them.
    ///
    /// # Errors
    /// The device does not give them.
    fn page(&self, number: u32, positions: usize) -> io::Result<Vec<Vec<u8>>>;

    /// Puts there what [`Keeper::page`] gave.
    ///
    /// # Errors
    /// Pages of another shape; the device does not take them.
    fn set_page(&self, number: u32, positions: usize, cells: &[Vec<u8>]) -> io::Result<()>;
}
