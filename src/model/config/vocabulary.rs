//! Tokens of a model.

use trine_formats::gguf::ModelFile;

use super::keys::Keys;

/// Tokens in the vocabulary: the tokenizer's list, or what the file says without one.
pub(super) fn vocabulary(k: &mut Keys<'_>, file: &ModelFile) -> usize {
    let read = k.meta.get_strs("tokenizer.ggml.tokens");
    if let Some(tokens) = k.note(read) {
        return tokens.len();
    }
    let rows = file.tensor_info("token_embd.weight").map_or(0, |t| t.rows() as usize);
    k.u32("vocab_size").map_or(rows, |n| n as usize)
}
