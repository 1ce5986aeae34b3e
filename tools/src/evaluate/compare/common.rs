//! Shared by all parts of the comparison.

use anyhow::{Result, bail};

use crate::interrupt;

/// The option that names the picture.
pub(super) const PLOT: &str = "--plot";

/// An error once the user has asked to stop.
pub(super) fn stop_if_asked() -> Result<()> {
    if interrupt::asked() {
        bail!("interrupted");
    }
    Ok(())
}
