//! Unigram models of XLM-RoBERTa: `sentencepiece.bpe.model`, whose name says what it is not, or `tokenizer.json`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value as Json;
use trine_formats::gguf::{Array, Value};

use super::super::error::ConvertError;
use super::super::folder::Folder;
use super::super::hparams::HParams;
use super::keys::{Keys, Kind, TokenizerFiles, Vocab, content, wrong};
use super::proto::{self, Model};
use super::special;

const FILE: &str = "sentencepiece.bpe.model";
const JSON: &str = "tokenizer.json";
/// Score of tokens that stand for none.
const PADDING: f32 = -10000.0;
/// The first tokens, which stand in another order in the file.
const FIRST: [(&str, Kind); 4] =
    [("<s>", Kind::Control), ("<pad>", Kind::Control), ("</s>", Kind::Control), ("<unk>", Kind::Unknown)];

/// The place of the token for what is masked, where the model lacks it, and its text.
const MASK: (usize, &str) = (250_001, "<mask>");

/// A vocabulary and the rules of its model.
struct Unigram {
    vocab: Vocab,
    space_prefix: bool,
    remove_whitespaces: bool,
    charsmap: Vec<u8>,
}

/// All keys, in the order of the reference converter; with `masked` a token for what is masked stands in its place.
pub(super) fn keys(
    folder: &Folder,
    h: &HParams,
    files: &TokenizerFiles,
    n_vocab: u32,
    masked: bool,
) -> Result<Keys, ConvertError> {
    let mut unigram = match (folder.read(FILE)?, &files.tokenizer) {
        (Some(bytes), _) => of_pieces(&bytes, n_vocab as usize)?,
        (None, Some(tokenizer)) => of_json(tokenizer, &files.config, n_vocab as usize)?,
        (None, None) => {
            return Err(ConvertError::Missing {
                folder: folder.path.clone(),
                file: "sentencepiece.bpe.model nor tokenizer.json".into(),
                hint: "tokens of models of this class have their scores there; download it too",
            });
        }
    };
    if masked {
        let (place, text) = MASK;
        let v = &mut unigram.vocab;
        let (Some(token), Some(kind), Some(score)) =
            (v.tokens.get_mut(place), v.kinds.get_mut(place), v.scores.get_mut(place))
        else {
            return Err(ConvertError::Config(format!("'vocab_size' is {n_vocab}, and token {place} is {text}")));
        };
        (*token, *kind, *score) = (text.into(), Kind::Control, 0.0);
    }
    let Unigram { vocab, space_prefix, remove_whitespaces, charsmap } = unigram;
    let n_tokens = vocab.tokens.len() as u64;
    let kinds = vocab.kinds.iter().map(|k| *k as i32).collect();
    let types = h.u32("type_vocab_size")?.unwrap_or(1);
    let mut keys = vec![
        ("model", Value::str("t5")),
        ("pre", Value::str("default")),
        ("tokens", Value::Array(Array::Str(vocab.tokens.iter().collect()))),
        ("scores", Value::Array(Array::F32(vocab.scores))),
        ("token_type", Value::Array(Array::I32(kinds))),
        ("add_space_prefix", Value::Bool(space_prefix)),
        ("token_type_count", Value::U32(types)),
        ("remove_extra_whitespaces", Value::Bool(remove_whitespaces)),
    ];
    if !charsmap.is_empty() {
        keys.push(("precompiled_charsmap", Value::Array(Array::U8(charsmap))));
    }
    let mut keys: Keys = keys.into_iter().map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)).collect();
    keys.extend(special::keys(folder, files, h, Some(n_tokens), &[])?);
    Ok(keys)
}

fn of_pieces(bytes: &[u8], n_vocab: usize) -> Result<Unigram, ConvertError> {
    let model = proto::parse(bytes).map_err(|what| wrong(FILE, what))?;
    if model.model_type != 1 {
        return Err(wrong(FILE, "is no unigram model, and those of this class are"));
    }
    Ok(Unigram {
        vocab: vocab(&model, n_vocab),
        space_prefix: model.add_dummy_prefix,
        remove_whitespaces: model.remove_extra_whitespaces,
        charsmap: model.charsmap,
    })
}

/// The same from `tokenizer.json`, whose tokens stand in the order of the file.
fn of_json(tokenizer: &Json, config: &Json, n_vocab: usize) -> Result<Unigram, ConvertError> {
    let wrong = |what: &str| wrong(JSON, what);
    let model = tokenizer.get("model").unwrap_or(&Json::Null);
    if model.get("type").and_then(Json::as_str) != Some("Unigram") {
        return Err(wrong("is no unigram model, and those of this class are"));
    }
    let pieces = model.get("vocab").and_then(Json::as_array).ok_or_else(|| wrong("has no list model.vocab"))?;
    let charsmap = tokenizer.get("normalizer").and_then(|n| n.get("precompiled_charsmap")?.as_str());
    let charsmap = charsmap.ok_or_else(|| wrong("has no normalizer.precompiled_charsmap"))?;
    let flag = |key: &str| config.get(key).and_then(Json::as_bool);
    let added = tokenizer.get("added_tokens").and_then(Json::as_array);
    let added: Vec<&str> = added.into_iter().flatten().filter_map(content).collect();
    let named = |kind: &str| config.get(format!("{kind}_token")).and_then(content);
    let unknown = named("unk").and_then(|text| pieces.iter().position(|p| piece(p).is_some_and(|(t, _)| t == text)));
    let unknown = unknown.or_else(|| Some(model.get("unk_id").and_then(Json::as_u64).unwrap_or(3) as usize));
    let special: Vec<&str> = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"].into_iter().filter_map(named).collect();
    let mut v = Vocab::default();
    for id in 0..n_vocab.max(pieces.len()) {
        let Some(entry) = pieces.get(id) else {
            v.push(format!("[PAD{id}]"), Kind::Unused);
            v.scores.push(PADDING);
            continue;
        };
        let (text, score) = piece(entry).ok_or_else(|| wrong("has a piece without a text and a score"))?;
        let kind = match text {
            _ if Some(id) == unknown => Kind::Unknown,
            _ if special.contains(&text) => Kind::Control,
            _ if added.contains(&text) => Kind::UserDefined,
            _ => Kind::Normal,
        };
        v.push(text, kind);
        v.scores.push(score);
    }
    Ok(Unigram {
        vocab: v,
        space_prefix: flag("add_prefix_space").unwrap_or(false),
        remove_whitespaces: flag("clean_up_tokenization_spaces").unwrap_or(false),
        charsmap: BASE64.decode(charsmap).map_err(|_| wrong("normalizer.precompiled_charsmap is not Base64"))?,
    })
}

/// The text and the score of an entry of `model.vocab`.
fn piece(entry: &Json) -> Option<(&str, f32)> {
    Some((entry.get(0)?.as_str()?, entry.get(1)?.as_f64()? as f32))
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
