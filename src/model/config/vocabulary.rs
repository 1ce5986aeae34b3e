//! Tokens of a model.

use super::header::Header;
use super::keys::Keys;
use crate::arch::Arch;

/// Tokens in the vocabulary: the tokenizer's list, or what the file says without one.
pub(super) fn vocabulary(k: &mut Keys<'_>, file: &dyn Header) -> usize {
    let read = k.meta.get_strs("tokenizer.ggml.tokens");
    if let Some(tokens) = k.note(read) {
        return tokens.len();
    }
    let rows = file.rows("token_embd.weight").map_or(0, |rows| rows as usize);
    k.u32("vocab_size").map_or(rows, |n| n as usize)
}

/// The token that texts begin with, of models with an encoder that name one.
pub(super) fn first_token(k: &mut Keys<'_>, arch: &Arch, n_vocab: usize) -> Option<u32> {
    const KEY: &str = "decoder_start_token_id";
    arch.encoder?;
    let token = k.u32(KEY)?;
    if token as usize >= n_vocab {
        k.wrong(KEY, format!("is {token}, of a vocabulary of {n_vocab}"));
    }
    Some(token)
}
