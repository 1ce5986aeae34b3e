//! Without the feature `hub`: nothing is fetched, and no store of other programs is looked at.

use std::ffi::{OsStr, OsString};

use anyhow::Result;

use super::options::{Asked, Fetched};

/// Nothing is fetched: this build opens no connection, and knows no option that asks for it.
///
/// # Errors
/// None.
pub fn fetch(_: &Asked) -> Result<Fetched> {
    Ok(Fetched::default())
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
