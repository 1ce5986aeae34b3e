//! Which matrices of a file were pruned to a pattern, so that kernels for the pattern may take them.
//!
//! The matrices are ordinary ones, whose zeros any program multiplies by. Two keys say what is known of them:
//!
//! | key | |
//! |---|---|
//! | `sparse.pattern` | `2:4`: of every four neighbouring weights of a row, the first four from column 0 on, at most two are not zero |
//! | `sparse.tensors` | names of the matrices, sorted |
//!
//! The keys are a claim: who relies on it counts the zeros.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::gguf::{Array, GgufError, Metadata, StrArray, Value};

/// Two of four.
pub const PATTERN: &str = "2:4";
const KEY_PATTERN: &str = "sparse.pattern";
const KEY_TENSORS: &str = "sparse.tensors";

/// Why the keys were refused.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PrunedError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error("{KEY_PATTERN} is '{0}'; this program knows {PATTERN}")]
    Pattern(String),
    #[error("{KEY_TENSORS} has a name that is not UTF-8; the file is damaged")]
    Name,
}

/// Names of the matrices that the keys call pruned; none where there are no keys.
///
/// # Errors
/// Another pattern, values of other types.
pub fn read(meta: &Metadata) -> Result<BTreeSet<String>, PrunedError> {
    match meta.get_str(KEY_PATTERN)? {
        None => return Ok(BTreeSet::new()),
        Some(PATTERN) => {}
        Some(other) => return Err(PrunedError::Pattern(other.to_owned())),
    }
    let names = meta.get_strs(KEY_TENSORS)?.into_iter();
    names
        .flat_map(StrArray::iter)
        .map(|name| match std::str::from_utf8(name) {
            Ok(name) => Ok(name.to_owned()),
            Err(_) => Err(PrunedError::Name),
        })
        .collect()
}

/// Sets the keys to these names, or removes them where there are none.
pub fn write(meta: &mut Metadata, tensors: &BTreeSet<String>) {
    if tensors.is_empty() {
        meta.remove(KEY_PATTERN);
        meta.remove(KEY_TENSORS);
        return;
    }
    meta.set(KEY_PATTERN, Value::str(PATTERN));
    let names = Array::Str(tensors.iter().collect());
    meta.set(KEY_TENSORS, Value::Array(names));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut meta = Metadata::default();
        assert_eq!(read(&meta), Ok(BTreeSet::new()));
        let names = BTreeSet::from(["b".to_owned(), "a".to_owned()]);
        write(&mut meta, &names);
        assert_eq!(read(&meta), Ok(names));
        write(&mut meta, &BTreeSet::new());
        assert_eq!(meta.iter().count(), 0);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let mut meta = Metadata::default();
        meta.set(KEY_PATTERN, Value::str("1:4"));
        let refused = read(&meta).expect_err("another pattern").to_string();
        assert_eq!(refused, "sparse.pattern is '1:4'; this program knows 2:4");
        meta.set(KEY_PATTERN, Value::str(PATTERN));
        meta.set(KEY_TENSORS, Value::U32(1));
        assert!(matches!(read(&meta), Err(PrunedError::Gguf(_))));
        let bad: StrArray = [b"\xff"].iter().collect();
        meta.set(KEY_TENSORS, Value::Array(Array::Str(bad)));
        assert_eq!(read(&meta), Err(PrunedError::Name));
    }
}
