//! Indexers, which choose the positions that are attended to.

use super::compressed::Compressed;
use super::keys::Keys;
use crate::arch::Arch;

const WIDTH: &str = "attention.indexer.key_length";
const TAIL: &str = "attention.indexer.kpool_select_tail";

/// Positions of the longest sequence in which an indexer chooses all; keys have `width` elements where the file does not say.
pub fn positions(k: &mut Keys<'_>, arch: &Arch, compressed: Option<&Compressed>, width: usize) -> Option<usize> {
    if !arch.attention.indexed {
        return None;
    }
    if k.bool(TAIL) == Some(false) {
        k.wrong(TAIL, "is false; trine can run models whose indexer chooses the positions behind the last whole pool");
    }
    let keys = k.u32("attention.key_length").unwrap_or(width as u32);
    if arch.attention.turned_like_indexer && k.u32(WIDTH) == Some(keys) {
        k.wrong(
            WIDTH,
            format!("is {keys}, as attention.key_length; llama.cpp rotates the cached keys of such models, and trine does not"),
        );
    }
    let most = k.count("attention.indexer.top_k", u32::MAX);
    match compressed {
        Some(compressed) => compressed.indexed(most),
        None => Some(most),
    }
}
