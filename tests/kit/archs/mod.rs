//! Small random models of many architectures, from their listings in `testdata/archs`.

mod header;
mod heads;
mod listing;
mod weights;

use std::path::PathBuf;

pub use header::{Header, Size};
pub use heads::agreeing;
pub use listing::Listing;

/// The path of the listing of a model that makes vectors.
pub fn of_vectors(name: &str) -> PathBuf {
    super::testdata(&format!("archs/embed/{name}.txt"))
}

/// The path of the listing of a model with a head for multi-token prediction.
pub fn with_heads(name: &str) -> PathBuf {
    super::testdata(&format!("archs/mtp/{name}.txt"))
}

/// The path of the listing of a model with an encoder.
pub fn with_encoder(name: &str) -> PathBuf {
    super::testdata(&format!("archs/encoder/{name}.txt"))
}

/// The path of the listing of a drafter of a kind: `eagle3`, `dflash` or `assistant`, or of a model with several heads:
/// `chained`.
pub fn drafter(kind: &str, name: &str) -> PathBuf {
    super::testdata(&format!("archs/{kind}/{name}.txt"))
}

/// The listing at `path`.
pub fn listing(path: &std::path::Path) -> Listing {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Listing::parse(&text)
}
