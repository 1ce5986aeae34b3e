//! Without the feature `hub`: nothing is fetched, and no store of other programs is looked at.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use anyhow::Result;

use super::options::Asked;

/// Nothing is fetched: this build opens no connection, and knows no option that asks for it.
///
/// # Errors
/// None.
pub fn fetch(_: &Asked) -> Result<Vec<PathBuf>> {
    Ok(Vec::new())
}

/// Nothing is found.
///
/// # Errors
/// None.
pub fn found(_: &OsStr, _: bool) -> Result<Option<OsString>> {
    Ok(None)
}

/// Nothing is known of other stores.
pub fn here(_: &str) -> Vec<String> {
    Vec::new()
}
