//! Byte-level BPE from `tokenizer.json`: tokens by id, added tokens, merges.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::super::error::ConvertError;
use super::super::folder::Folder;
use super::foreign;
use super::keys::{Kind, Vocab, content, is_byte, looks_special, wrong};
use crate::isolate::Isolate;

const FILE: &str = "tokenizer.json";

/// A token that is matched in the text before anything else.
pub(super) struct Added {
    pub id: u64,
    pub content: String,
    pub special: bool,
    pub normalized: bool,
}

/// The model's own tokens and their ids.
pub(super) fn ids(tokenizer: &Json) -> Result<Vec<(String, u64)>, ConvertError> {
    let model = tokenizer.get("model").unwrap_or(&Json::Null);
    match model.get("type").and_then(Json::as_str) {
        // files from before 2020 have no type
        Some("BPE" | "WordPiece") | None => {}
        Some(other) => {
            return Err(wrong(
                FILE,
                format!("its model is of type {other}; BPE and WordPiece are what can be converted"),
            ));
        }
    }
    let vocab = model.get("vocab").and_then(Json::as_object).ok_or_else(|| wrong(FILE, "has no object model.vocab"))?;
    vocab
        .iter()
        .map(|(token, id)| match id.as_u64() {
            Some(id) => Ok((token.clone(), id)),
            None => Err(wrong(FILE, format!("the id of token '{token}' is {id}"))),
        })
        .collect()
}

/// Added tokens by their text: those of `tokenizer.json`, those that `tokenizer_config.json` has beside
/// them, and the special tokens of the base vocabulary that it names.
pub(super) fn added(
    tokenizer: &Json,
    config: &Json,
    base: &[(String, u64)],
) -> Result<BTreeMap<String, Added>, ConvertError> {
    let mut all = BTreeMap::new();
    let flag = |entry: &Json, key: &str, default| entry.get(key).and_then(Json::as_bool).unwrap_or(default);
    let list = tokenizer.get("added_tokens").and_then(Json::as_array);
    for entry in list.into_iter().flatten() {
        let (Some(id), Some(content)) = (entry.get("id").and_then(Json::as_u64), content(entry)) else {
            return Err(wrong(FILE, format!("added token {entry} has no id or no content")));
        };
        let special = flag(entry, "special", false);
        let added = Added { id, content: content.to_owned(), special, normalized: flag(entry, "normalized", !special) };
        all.insert(content.to_owned(), added);
    }
    let decoder = config.get("added_tokens_decoder").and_then(Json::as_object);
    for (id, entry) in decoder.into_iter().flatten() {
        let (Ok(id), Some(content)) = (id.parse(), content(entry)) else {
            return Err(wrong(
                "tokenizer_config.json",
                format!("added_tokens_decoder has an entry '{id}' without a number or content"),
            ));
        };
        let special = flag(entry, "special", false);
        all.entry(content.to_owned()).or_insert_with(|| Added {
            id,
            content: content.to_owned(),
            special,
            normalized: flag(entry, "normalized", !special),
        });
    }
    for kind in ["bos", "eos", "unk", "sep", "pad", "cls", "mask"] {
        let named = config.get(format!("{kind}_token")).and_then(content);
        let Some(named) = named.filter(|n| !all.contains_key(*n)) else {
            continue;
        };
        if let Some((_, id)) = base.iter().find(|(t, _)| t == named) {
            all.insert(
                named.to_owned(),
                Added { id: *id, content: named.to_owned(), special: true, normalized: false },
            );
        }
    }
    Ok(all)
}

pub(super) fn outside(token: &str, id: u64, n_vocab: u32) -> ConvertError {
    wrong(FILE, format!("token '{token}' has id {id}, and config.json says vocab_size {n_vocab}"))
}

/// The tokens of a vocabulary and of those that were added to it, by their ids.
fn by_id<'a>(
    base: &'a [(String, u64)],
    added: &'a BTreeMap<String, Added>,
    n_vocab: u32,
) -> Result<Vec<Option<&'a str>>, ConvertError> {
    let mut by_id: Vec<Option<&str>> = vec![None; n_vocab as usize];
    let all = base.iter().map(|(t, id)| (t.as_str(), *id));
    for (token, id) in all.chain(added.values().map(|a| (a.content.as_str(), a.id))) {
        let slot = usize::try_from(id).ok().and_then(|i| by_id.get_mut(i));
        *slot.ok_or_else(|| outside(token, id, n_vocab))? = Some(token);
    }
    Ok(by_id)
}

/// The vocabulary, padded to `n_vocab`, and with `probe` the tokenizer's probe.
pub(super) fn vocab(
    folder: &Folder,
    tokenizer: &Json,
    config: &Json,
    n_vocab: u32,
    probe: bool,
    elsewhere: Option<&dyn Isolate>,
) -> Result<(Vocab, Option<String>), ConvertError> {
    let base = ids(tokenizer)?;
    let added = added(tokenizer, config, &base)?;
    let by_id = by_id(&base, &added, n_vocab)?;
    // A text can contain these tokens if the tokenizer returns them unchanged.
    let as_they_are = |token: &str| added.get(token).is_some_and(|a| !a.normalized);
    let asked = by_id.iter().flatten().copied();
    let asked: Vec<&str> = asked.filter(|t| as_they_are(t)).collect();
    let file = folder.read(FILE)?.unwrap_or_default();
    let answer = foreign::ask(elsewhere, &file, &asked, probe)?;
    let mut texts = answer.texts.into_iter();
    let mut v = Vocab::default();
    for (i, token) in by_id.into_iter().enumerate() {
        let Some(token) = token else {
            v.push(format!("[PAD{i}]"), Kind::Unused);
            continue;
        };
        let Some(entry) = added.get(token) else {
            v.push(token, Kind::Normal);
            continue;
        };
        let mut text = token.to_owned();
        if !entry.normalized {
            text = texts.next().ok_or_else(|| wrong(FILE, "its tokenizer left tokens out"))?;
        }
        if entry.special || looks_special(&text) {
            v.push(text, Kind::Control);
        } else {
            v.push(text.replace('\u{2581}', " "), Kind::UserDefined);
        }
    }
    Ok((v, answer.probe))
}

/// The pieces of words as GGUF has them: those that begin a word with a mark before them, others without theirs.
pub(super) fn marked(mut vocab: Vocab) -> Vocab {
    for (token, kind) in vocab.tokens.iter_mut().zip(&vocab.kinds) {
        if *kind == Kind::Control {
            continue;
        }
        *token = match token.strip_prefix(b"##") {
            Some(rest) => rest.to_vec(),
            None => ["\u{2581}".as_bytes(), token].concat(),
        };
    }
    vocab
}

/// The vocabulary of XVERSE: pieces without scores, bytes by their names.
pub(super) fn pieces(tokenizer: &Json, config: &Json, n_vocab: u32) -> Result<Vocab, ConvertError> {
    let base = ids(tokenizer)?;
    let added = added(tokenizer, config, &base)?;
    let by_id = by_id(&base, &added, n_vocab)?;
    let mut v = Vocab::default();
    for (id, token) in by_id.into_iter().enumerate() {
        let token = token.ok_or_else(|| wrong(FILE, format!("has no token of id {id}, and every id needs one")))?;
        match added.get(token) {
            // no text could be told from none
            _ if token == "\0" => v.push("<b'\\x00'>", Kind::Byte),
            _ if is_byte(token) => v.push(token, Kind::Byte),
            Some(entry) if entry.special => v.push(token, Kind::Control),
            Some(_) => v.push(token, Kind::UserDefined),
            None => v.push(token, Kind::Normal),
        }
    }
    Ok(v)
}

/// Left and right part of every merge, in order.
pub(super) fn merge_pairs(tokenizer: &Json) -> Result<Vec<[String; 2]>, ConvertError> {
    let merges = tokenizer.get("model").and_then(|m| m.get("merges")).and_then(Json::as_array);
    let merges = merges.ok_or_else(|| wrong(FILE, "has no list model.merges"))?;
    let pair = |merge: &Json| match merge {
        Json::String(s) => s.split_once(' ').map(|(a, b)| [a.to_owned(), b.to_owned()]),
        Json::Array(a) => match &a[..] {
            [Json::String(a), Json::String(b)] => Some([a.clone(), b.clone()]),
            _ => None,
        },
        _ => None,
    };
    merges.iter().map(|m| pair(m).ok_or_else(|| wrong(FILE, format!("merge {m} is not two texts")))).collect()
}

/// The merges as GGUF writes them: both parts joined by a space, spaces within as `Ġ`.
pub(super) fn merges(tokenizer: &Json) -> Result<Vec<String>, ConvertError> {
    let pairs = merge_pairs(tokenizer)?;
    Ok(pairs.into_iter().map(|p| p.map(|half| half.replace(' ', "\u{120}")).join(" ")).collect())
}
