//! The pieces of PLaMo 2 and 3, with their scores: `tokenizer.jsonl`, an array in every line.

use serde_json::Value as Json;
use trine_formats::gguf::{Array, Value};

use super::super::error::ConvertError;
use super::super::folder::Folder;
use super::keys::{Keys, Kind, Vocab, content, wrong};

const FILE: &str = "tokenizer.jsonl";
/// Score of tokens that stand for none.
const PADDING: f32 = -1000.0;
/// The token `<|plamo:op|>`, which begins a turn and ends the one before.
const TURN: u32 = 4;

/// All keys, in the order of the reference converter.
pub(super) fn keys(folder: &Folder, config: &Json, n_vocab: usize) -> Result<Keys, ConvertError> {
    let bytes = folder.read(FILE)?.ok_or_else(|| ConvertError::Missing {
        folder: folder.path.clone(),
        file: FILE.into(),
        hint: "tokens of models of this class have their scores there; download it too",
    })?;
    let vocab = vocab(&bytes, n_vocab)?;
    let mut ids = Vec::new();
    for kind in ["bos", "eos", "pad", "sep", "unk"] {
        let Some(text) = config.get(format!("{kind}_token")).and_then(content) else {
            continue;
        };
        let id = vocab.tokens.iter().position(|token| token == text.as_bytes());
        let id =
            id.ok_or_else(|| wrong(FILE, format!("has no token '{text}', the {kind}_token of the configuration")))?;
        ids.push((
            match kind {
                "bos" => "bos_token_id",
                "eos" => "eos_token_id",
                "pad" => "padding_token_id",
                "sep" => "seperator_token_id",
                _ => "unknown_token_id",
            },
            Value::U32(id as u32),
        ));
    }
    let kinds = vocab.kinds.iter().map(|k| *k as i32).collect();
    let all = [
        ("model", Value::str("plamo2")),
        ("pre", Value::str("default")),
        ("tokens", Value::Array(Array::Str(vocab.tokens.iter().collect()))),
        ("scores", Value::Array(Array::F32(vocab.scores))),
        ("token_type", Value::Array(Array::I32(kinds))),
    ];
    let last = [("eot_token_id", Value::U32(TURN)), ("add_space_prefix", Value::Bool(false))];
    let all = all.into_iter().chain(ids).chain(last);
    Ok(all.map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)).collect())
}

/// The vocabulary, padded to `n_vocab`.
fn vocab(bytes: &[u8], n_vocab: usize) -> Result<Vocab, ConvertError> {
    let text = std::str::from_utf8(bytes).map_err(|_| wrong(FILE, "is not UTF-8"))?;
    let mut v = Vocab::default();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    for (number, line) in lines {
        let entry: Json = serde_json::from_str(line).unwrap_or(Json::Null);
        let (Some(token), Some(score)) = (entry.get(0).and_then(Json::as_str), entry.get(1).and_then(Json::as_f64))
        else {
            return Err(wrong(FILE, format!("line {} is no array of a text, a score and a kind", number + 1)));
        };
        let kind = match entry.get(2).and_then(Json::as_str) {
            Some("UNKNOWN") => Kind::Unknown,
            Some("CONTROL") => Kind::Control,
            Some("BYTE") => Kind::Byte,
            _ if token.starts_with("<|plamo:") && token.ends_with("|>") => Kind::Control,
            _ => Kind::Normal,
        };
        v.push(token, kind);
        v.scores.push(score as f32);
    }
    for n in 1..=n_vocab.saturating_sub(v.tokens.len()) {
        v.push(format!("[PAD{n}]"), Kind::Unused);
        v.scores.push(PADDING);
    }
    Ok(v)
}
