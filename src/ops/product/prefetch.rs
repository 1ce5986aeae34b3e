//! Prefetch distances of GEMV kernels.
//!
//! A GEMV is bound by memory, and the best distance depends on the processor and on the layout's kernel: one reads up
//! to twice as fast when it prefetches some kilobytes ahead, another becomes slower. So the first large model of a
//! process that has a layout tunes the distance on its own weights, in about a millisecond. The results are
//! bit-identical at any distance.

use std::fmt;
use std::sync::{OnceLock, RwLock};

/// The environment variable that chooses by hand.
pub(super) const VARIABLE: &str = "TRINE_PREFETCH";
/// The distances of a model's layouts, and who chose them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// Bytes for all layouts, as `TRINE_PREFETCH` says.
    Given(usize),
    /// Name and distance in bytes of the layouts that were measured; all others do not prefetch.
    Measured(Vec<(&'static str, usize)>),
}

impl Default for Prefetch {
    fn default() -> Prefetch {
        Prefetch::Measured(Vec::new())
    }
}

impl fmt::Display for Prefetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Prefetch::Given(bytes) => write!(f, "prefetch {bytes} bytes ahead ({VARIABLE})"),
            Prefetch::Measured(all) => {
                f.write_str("prefetch")?;
                for (i, (name, bytes)) in all.iter().filter(|one| one.1 > 0).enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma} {bytes} bytes ahead of {name}")?;
                }
                let none = all.iter().all(|one| one.1 == 0);
                f.write_str(if none { " none" } else { " (measured)" })
            }
        }
    }
}

/// The distance in `TRINE_PREFETCH`, and those that this process has measured.
pub(super) static GIVEN: OnceLock<usize> = OnceLock::new();
static MEASURED: RwLock<Vec<(&str, usize)>> = RwLock::new(Vec::new());

/// The distance for products of one token with matrices in the layout of this name.
pub(super) fn ahead(layout: &str) -> usize {
    if let Some(given) = GIVEN.get() {
        return *given;
    }
    known(layout).unwrap_or(0)
}

/// The distance measured for the layout.
pub(super) fn known(name: &str) -> Option<usize> {
    let measured = MEASURED.read().unwrap_or_else(|e| e.into_inner());
    measured.iter().find(|one| one.0 == name).map(|one| one.1)
}

/// Notes what was measured of the layout.
pub(super) fn note(name: &'static str, bytes: usize) {
    let mut measured = MEASURED.write().unwrap_or_else(|e| e.into_inner());
    measured.push((name, bytes));
}
