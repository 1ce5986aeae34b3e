//! The vocabulary of Gemma 4, from `tokenizer.json`: BPE over characters that falls back to bytes.

use serde_json::Value as Json;

use super::super::error::ConvertError;
use super::bpe;
use super::keys::{Kind, Vocab, content, is_byte, wrong};

const FILE: &str = "tokenizer.json";
/// The score of every token: they are not used.
const SCORE: f32 = -1000.0;
/// Control tokens that the reader of a chat has to see, and that are therefore texts.
const SEEN: [&str; 7] =
    ["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|\"|>"];

/// All tokens of `tokenizer.json`, as many as `config.json` says. Special are those that `tokenizer_config.json` names,
/// not those that `tokenizer.json` calls so.
pub(super) fn vocab(tokenizer: &Json, config: &Json, n_vocab: u32) -> Result<Vocab, ConvertError> {
    let model = tokenizer.get("model");
    let falls_back = model.and_then(|m| m.get("byte_fallback")).and_then(Json::as_bool);
    let decoder = tokenizer.get("decoder").and_then(|d| d.get("type")).and_then(Json::as_str);
    if falls_back != Some(true) || decoder != Some("Sequence") {
        return Err(wrong(FILE, "is not of Gemma 4's kind: BPE with byte_fallback, and a decoder of several steps"));
    }
    let base = bpe::ids(tokenizer)?;
    let added = bpe::added(tokenizer, config, &base)?;
    let special = named(config);
    let mut by_id: Vec<Option<(&str, bool)>> = vec![None; n_vocab as usize];
    let all = base.iter().map(|(token, id)| (token.as_str(), *id, false));
    let all = all.chain(added.values().map(|a| (a.content.as_str(), a.id, true)));
    let of_base = base.len() as u64;
    for (token, id, is_added) in all {
        let slot = usize::try_from(id).ok().and_then(|i| by_id.get_mut(i));
        *slot.ok_or_else(|| bpe::outside(token, id, n_vocab))? = Some((token, is_added && id >= of_base));
    }
    let mut v = Vocab::default();
    for (id, token) in by_id.into_iter().enumerate() {
        let (token, behind) = token
            .ok_or_else(|| wrong(FILE, format!("has no token {id}, and config.json says vocab_size {n_vocab}")))?;
        let kind = match special.contains(&token) {
            _ if SEEN.contains(&token) => Kind::UserDefined,
            false if behind => Kind::UserDefined,
            _ if is_byte(token) && !behind => Kind::Byte,
            true => Kind::Control,
            false => Kind::Normal,
        };
        v.push(token, kind);
        v.scores.push(SCORE);
    }
    Ok(v)
}

/// The special tokens that `tokenizer_config.json` names.
fn named(config: &Json) -> Vec<&str> {
    let kinds = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"];
    let single = kinds.into_iter().filter_map(|kind| config.get(format!("{kind}_token")).and_then(content));
    let more = config.get("additional_special_tokens").and_then(Json::as_array);
    let more = more.into_iter().flatten().filter_map(content);
    let extra = config.get("extra_special_tokens").and_then(Json::as_object);
    let extra = extra.into_iter().flat_map(|all| all.values()).filter_map(content);
    single.chain(more).chain(extra).collect()
}
