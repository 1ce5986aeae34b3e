//! Options of the measurements.

use std::path::PathBuf;
use std::time::Duration;

/// Options of the measurements.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device.
    pub device: u32,
    /// Where the JSON goes.
    pub out: PathBuf,
    /// Shapes that an emulator computes in seconds.
    pub small: bool,
    /// The products alone, once: what a sanitizer watches.
    pub only_checks: bool,
    /// Models whose logits are compared.
    pub models: Vec<PathBuf>,
    /// JSON of an earlier run on the same device, to compare speeds with.
    pub against: Option<PathBuf>,
    /// Time limit of a section.
    pub limit: Duration,
}
