//! How far ahead of a product of one token memory is asked for.
//!
//! Such a product waits for memory alone, and what helps depends on the processor and on how much the layout's kernel
//! has to do: one reads up to twice as fast when it asks for what lies some kilobytes ahead, another loses by asking.
//! So the first large model of a process that has a layout measures it on its own weights, in about a millisecond. No
//! bit depends on it.

use std::fmt;
use std::sync::{OnceLock, RwLock};

/// The environment variable that chooses by hand.
pub(super) const VARIABLE: &str = "TRINE_PREFETCH";
/// The distances of a model's layouts, and who chose them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// Bytes for all layouts, as `TRINE_PREFETCH` says.
    Given(usize),
    /// Name and bytes of those that were measured; all others do not ask for anything.
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

/// What `TRINE_PREFETCH` says, and the distances that this process has measured.
pub(super) static GIVEN: OnceLock<usize> = OnceLock::new();
static MEASURED: RwLock<Vec<(&str, usize)>> = RwLock::new(Vec::new());

/// The distance for products of one token with matrices in the layout of this name.
pub(super) fn ahead(layout: &str) -> usize {
    if let Some(given) = GIVEN.get() {
        return *given;
    }
    known(layout).unwrap_or(0)
}

/// What was measured of the layout.
pub(super) fn known(name: &str) -> Option<usize> {
    let measured = MEASURED.read().unwrap_or_else(|e| e.into_inner());
    measured.iter().find(|one| one.0 == name).map(|one| one.1)
}

/// Notes what was measured of the layout.
pub(super) fn note(name: &'static str, bytes: usize) {
    let mut measured = MEASURED.write().unwrap_or_else(|e| e.into_inner());
    measured.push((name, bytes));
}
