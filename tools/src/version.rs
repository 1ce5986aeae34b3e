//! Which trine this is.

/// The version of the tools.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit they are built from, in hexadecimal; `unknown` where the source tree does not say.
pub const COMMIT: &str = env!("TRINE_COMMIT");

/// Both, as `--version` shows them.
pub fn described() -> String {
    let short = COMMIT.get(..12).unwrap_or(COMMIT);
    format!("{VERSION} (commit {short})")
}
