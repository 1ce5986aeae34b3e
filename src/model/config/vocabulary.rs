//! Tokens of a model.

use super::header::Header;
use super::keys::Keys;

/// Tokens in the vocabulary: the tokenizer's list, or what the file says without one.
pub(super) fn vocabulary(k: &mut Keys<'_>, file: &dyn Header) -> usize {
    let read = k.meta.get_strs("tokenizer.ggml.tokens");
    if let Some(tokens) = k.note(read) {
        return tokens.len();
    }
    let rows = file.rows("token_embd.weight").map_or(0, |rows| rows as usize);
    k.u32("vocab_size").map_or(rows, |n| n as usize)
}
