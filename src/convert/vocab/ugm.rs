//! Unigram models of XLM-RoBERTa: `sentencepiece.bpe.model`, whose name says what it is not.

use trine_formats::gguf::{Array, Value};

use super::super::error::ConvertError;
use super::super::folder::Folder;
use super::super::hparams::HParams;
use super::keys::{Keys, Kind, TokenizerFiles, Vocab, wrong};
use super::proto::{self, Model};
use super::special;

const FILE: &str = "sentencepiece.bpe.model";
/// Score of tokens that stand for none.
const PADDING: f32 = -10000.0;
/// The first tokens, which stand in another order in the file.
const FIRST: [(&str, Kind); 4] =
    [("<s>", Kind::Control), ("<pad>", Kind::Control), ("</s>", Kind::Control), ("<unk>", Kind::Unknown)];

/// All keys, in the order of the reference converter.
pub(super) fn keys(folder: &Folder, h: &HParams, files: &TokenizerFiles, n_vocab: u32) -> Result<Keys, ConvertError> {
    let bytes = folder.read(FILE)?.ok_or_else(|| ConvertError::Missing {
        folder: folder.path.clone(),
        file: FILE.into(),
        hint: "tokens of models of this class have their scores there; download it too",
    })?;
    let model = proto::parse(&bytes).map_err(|what| wrong(FILE, what))?;
    if model.model_type != 1 {
        return Err(wrong(FILE, "is no unigram model, and those of this class are"));
    }
    let vocab = vocab(&model, n_vocab as usize);
    let n_tokens = vocab.tokens.len() as u64;
    let kinds = vocab.kinds.iter().map(|k| *k as i32).collect();
    let types = h.u32("type_vocab_size")?.unwrap_or(1);
    let mut keys = vec![
        ("model", Value::str("t5")),
        ("pre", Value::str("default")),
        ("tokens", Value::Array(Array::Str(vocab.tokens.iter().collect()))),
        ("scores", Value::Array(Array::F32(vocab.scores))),
        ("token_type", Value::Array(Array::I32(kinds))),
        ("add_space_prefix", Value::Bool(model.add_dummy_prefix)),
        ("token_type_count", Value::U32(types)),
        ("remove_extra_whitespaces", Value::Bool(model.remove_extra_whitespaces)),
    ];
    if !model.charsmap.is_empty() {
        keys.push(("precompiled_charsmap", Value::Array(Array::U8(model.charsmap))));
    }
    let mut keys: Keys = keys.into_iter().map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)).collect();
    keys.extend(special::keys(folder, files, h, Some(n_tokens), &[])?);
    Ok(keys)
}

/// The vocabulary: the pieces behind the first three of the file, each one place later, padded, without the last.
fn vocab(model: &Model, n_vocab: usize) -> Vocab {
    let mut v = Vocab::default();
    for (text, kind) in FIRST {
        v.push(text, kind);
        v.scores.push(0.0);
    }
    let n = n_vocab.max(model.pieces.len());
    for id in 3..n.saturating_sub(1) {
        match model.pieces.get(id) {
            None => {
                v.push(format!("[PAD{id}]"), Kind::Unused);
                v.scores.push(PADDING);
            }
            Some(piece) => {
                let kind = if piece.kind == Kind::UserDefined { Kind::Normal } else { piece.kind };
                v.push(&piece.text[..], kind);
                v.scores.push(piece.score);
            }
        }
    }
    v
}
