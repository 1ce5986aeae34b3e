//! Vocabularies in SentencePiece's manner: pieces with scores, spaces as U+2581, bytes as `<0xHH>`.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;

use super::super::error::ConvertError;
use super::bpe;
use super::keys::{Kind, TokenizerFiles, Vocab, content, is_byte, looks_special, wrong};
use super::proto::Model;
use crate::arch::Tokenizer;

const SPACE: char = '\u{2581}';
/// Score of tokens that no merge makes.
const ADDED: f32 = -1000.0;
/// Score of tokens that stand for none.
const PADDING: f32 = -10000.0;

/// The vocabulary of `tokenizer.model`, added tokens included, padded to `n_vocab`. Of Phi's and InternLM 2's tokenizers
/// those of `tokenizer.json` are added too, and all as they are; of T5's those of `added_tokens.json` alone.
pub(super) fn vocab(
    model: &Model,
    files: &TokenizerFiles,
    added: &Option<Json>,
    n_vocab: u32,
    rule: Tokenizer,
    notes: &mut Vec<String>,
) -> Result<Vocab, ConvertError> {
    let n = n_vocab as usize;
    let listed_too = matches!(rule, Tokenizer::Phi | Tokenizer::InternLm2);
    if model.model_type != 2 && rule != Tokenizer::T5 {
        notes.push("tokenizer.model is not of type BPE; GGUF's 'llama' tokenizer joins pieces by score".into());
    }
    if model.pieces.len() > n {
        notes.push(format!(
            "tokenizer.model has {} pieces and the model {n}: the last ones are left out",
            model.pieces.len()
        ));
    }
    let mut v = Vocab::default();
    for p in model.pieces.iter().take(n) {
        // the reference knows user-defined tokens only from the other files
        let kind = match p.kind {
            _ if rule == Tokenizer::InternLm2 && p.text.starts_with(b"[UNUSED") => Kind::Unused,
            Kind::UserDefined => Kind::Normal,
            kind => kind,
        };
        let text = match &p.text[..] {
            // no text could be told from none
            b"\0" if rule == Tokenizer::InternLm2 => "🐉".as_bytes(),
            text => text,
        };
        v.push(text, kind);
        v.scores.push(p.score);
    }
    for i in v.tokens.len()..n {
        v.push(format!("[PAD{i}]"), Kind::Unused);
        v.scores.push(PADDING);
    }
    let added = added.as_ref().filter(|_| rule != Tokenizer::Arctic);
    for (token, id) in added.and_then(Json::as_object).into_iter().flatten() {
        let id = id.as_u64().ok_or_else(|| wrong("added_tokens.json", format!("the id of '{token}' is {id}")))?;
        put(&mut v, id, token.clone(), Kind::UserDefined, notes);
    }
    let decoder = files.config.get("added_tokens_decoder").filter(|_| rule != Tokenizer::T5);
    let decoder = decoder.and_then(Json::as_object);
    for (id, entry) in decoder.into_iter().flatten() {
        let (Ok(id), Some(token)) = (id.parse(), content(entry)) else {
            return Err(wrong(
                "tokenizer_config.json",
                format!("added_tokens_decoder has an entry '{id}' without a number or content"),
            ));
        };
        if rule == Tokenizer::Arctic {
            put_redefined(&mut v, id, token, entry, &files.config);
            continue;
        }
        put_added(&mut v, id, token, entry, listed_too, notes);
    }
    let listed = files.tokenizer.as_ref().filter(|_| listed_too);
    let listed = listed.and_then(|t| t.get("added_tokens")?.as_array());
    for entry in listed.into_iter().flatten() {
        let (Some(id), Some(token)) = (entry.get("id").and_then(Json::as_u64), content(entry)) else {
            return Err(wrong("tokenizer.json", format!("added token {entry} has no id or no content")));
        };
        put_added(&mut v, id, token, entry, listed_too, notes);
    }
    Ok(v)
}

/// Puts a token in its place that its entry may call special.
fn put_added(v: &mut Vocab, id: u64, token: &str, entry: &Json, as_it_is: bool, notes: &mut Vec<String>) {
    let special = entry.get("special").and_then(Json::as_bool) == Some(true);
    let (text, kind) = match special || (!as_it_is && looks_special(token)) {
        true => (token.to_owned(), Kind::Control),
        false if as_it_is => (token.to_owned(), Kind::UserDefined),
        false => (token.replace(SPACE, " "), Kind::UserDefined),
    };
    put(v, id, text, kind, notes);
}

/// Arctic's: special tokens have the scores of control tokens, and others that of unused ones.
fn put_redefined(v: &mut Vocab, id: u64, token: &str, entry: &Json, config: &Json) {
    let Some(i) = usize::try_from(id).ok().filter(|i| *i < v.tokens.len()) else {
        return;
    };
    let unknown = config.get("unk_token").and_then(content);
    let special = entry.get("special").and_then(Json::as_bool) == Some(true);
    (v.kinds[i], v.scores[i]) = match special {
        true if unknown == Some(token) => (Kind::Unknown, 0.0),
        true => (Kind::Control, 0.0),
        false => (Kind::UserDefined, PADDING),
    };
    v.tokens[i] = token.as_bytes().to_vec();
}

fn put(v: &mut Vocab, id: u64, token: String, kind: Kind, notes: &mut Vec<String>) {
    let i = usize::try_from(id).unwrap_or(usize::MAX);
    if i >= v.tokens.len() {
        notes.push(format!("token '{token}' has id {id}, past the {} of the model: left out", v.tokens.len()));
        return;
    }
    v.tokens[i] = token.into_bytes();
    v.kinds[i] = kind;
    v.scores[i] = ADDED;
}

/// True if `tokenizer.json` holds a SentencePiece vocabulary that was rewritten as merges.
pub(super) fn is_spm_like(tokenizer: &Json) -> bool {
    let model = |key: &str| tokenizer.get("model").and_then(|m| m.get(key));
    model("type").and_then(Json::as_str) == Some("BPE") && model("byte_fallback").and_then(Json::as_bool) == Some(true)
}

/// True if texts get a leading space; `None` where that is the default.
pub(super) fn json_space_prefix(tokenizer: &Json, stated: Option<bool>) -> Option<bool> {
    fn any(node: &Json, wanted: &dyn Fn(&Json) -> bool) -> bool {
        wanted(node)
            || ["normalizers", "pretokenizers"].iter().any(|k| {
                let list = node.get(k).and_then(Json::as_array);
                list.is_some_and(|l| l.iter().any(|n| any(n, wanted)))
            })
    }
    let says = |node: &Json, key: &str, value: &str| node.get(key).and_then(Json::as_str) == Some(value);
    let prepends = tokenizer.get("normalizer").is_some_and(|n| any(n, &|n| says(n, "type", "Prepend")));
    let metaspace = tokenizer.get("pre_tokenizer").is_some_and(|p| {
        any(p, &|p| {
            let never =
                says(p, "prepend_scheme", "never") || p.get("add_prefix_space").and_then(Json::as_bool) == Some(false);
            says(p, "type", "Metaspace") && !never
        })
    });
    (stated.is_none() && !prepends && !metaspace).then_some(false)
}

/// The same from `tokenizer.json`. A piece's score is minus the rank of the first merge that makes it,
/// so that pieces join in the order of the merges.
pub(super) fn vocab_of_json(tokenizer: &Json, config: &Json, n_vocab: u32) -> Result<Vocab, ConvertError> {
    let base = bpe::ids(tokenizer)?;
    let added = bpe::added(tokenizer, config, &base)?;
    let mut ranks: HashMap<String, usize> = HashMap::new();
    for (rank, merge) in bpe::merge_pairs(tokenizer)?.into_iter().enumerate() {
        ranks.entry(merge.concat()).or_insert(rank);
    }
    let unknown = tokenizer.get("model").and_then(|m| m.get("unk_token")).and_then(Json::as_str);
    let n = n_vocab as usize;
    let mut by_id: Vec<Option<&str>> = vec![None; n];
    let mut seen = HashSet::new();
    for (token, id) in
        base.iter().map(|(t, i)| (t.as_str(), *i)).chain(added.values().map(|a| (a.content.as_str(), a.id)))
    {
        let slot = usize::try_from(id).ok().and_then(|i| by_id.get_mut(i));
        let slot = slot.ok_or_else(|| bpe::outside(token, id, n_vocab))?;
        *slot = Some(token);
        seen.insert(token);
    }
    let mut v = Vocab::default();
    for (i, token) in by_id.into_iter().enumerate() {
        let Some(token) = token else {
            v.push(format!("[PAD{i}]"), Kind::Unused);
            v.scores.push(PADDING);
            continue;
        };
        let score = ranks.get(token).map_or(ADDED, |r| -(*r as f32));
        match added.get(token) {
            _ if Some(token) == unknown => v.push(token, Kind::Unknown),
            Some(a) if a.special || looks_special(token) => v.push(token, Kind::Control),
            Some(_) => v.push(token.replace(SPACE, " "), Kind::UserDefined),
            None if is_byte(token) => v.push(token, Kind::Byte),
            None => v.push(token, Kind::Normal),
        }
        v.scores.push(score);
    }
    Ok(v)
}
