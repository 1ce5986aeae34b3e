//! Special tokens, whether texts begin and end with them, and the chat template.
//!
//! The rules are those of gguf-py's `SpecialVocab`, its reading of post-processors included: which
//! tokens a text gets is guessed there from the first and last entry of a template.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Map, Value as Json};
use trine_formats::gguf::{Array, StrArray, Value};

use super::super::error::ConvertError;
use super::super::folder::Folder;
use super::super::hparams::HParams;
use super::keys::{Keys, TokenizerFiles, content};

const TYPES: [&str; 7] = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"];

/// GGUF's key for the id of a kind of token; it has none for `cls`.
fn id_key(kind: &str) -> &str {
    match kind {
        "unk" => "unknown_token_id",
        "sep" => "seperator_token_id",
        "pad" => "padding_token_id",
        "bos" => "bos_token_id",
        "eos" => "eos_token_id",
        "mask" => "mask_token_id",
        "eot" => "eot_token_id",
        _ => "eom_token_id",
    }
}

struct Special {
    kinds: Vec<&'static str>,
    /// `tokenizer_config.json`, as corrected by what the post-processor shows.
    config: Option<Map<String, Json>>,
    /// In order of being found.
    adds: Vec<(&'static str, bool)>,
    lowercase: Option<bool>,
    strip_accents: Option<bool>,
}

/// All keys. `n_vocab`, when known, bounds the ids; `named` are tokens for kinds that the files name no token of.
pub(super) fn keys(
    folder: &Folder,
    files: &TokenizerFiles,
    h: &HParams,
    n_vocab: Option<u64>,
    named: &[(&'static str, u64)],
) -> Result<Keys, ConvertError> {
    let mut s = Special {
        kinds: TYPES.to_vec(),
        config: files.config.as_object().cloned(),
        adds: Vec::new(),
        lowercase: None,
        strip_accents: None,
    };
    if let Some(tokenizer) = &files.tokenizer {
        if let Some(normalizer) = tokenizer.get("normalizer") {
            s.normalizer(normalizer);
        }
        if let Some(post) = tokenizer.get("post_processor").filter(|p| !p.is_null()) {
            s.post_processor(post);
        }
    }
    let mut ids: Vec<(&str, u64)> = Vec::new();
    let mut found = |kind: &'static str, id: u64| {
        if n_vocab.is_none_or(|n| id < n) && ids.iter().all(|(k, _)| *k != kind) {
            ids.push((kind, id));
        }
    };
    let mut template = None;
    if let Some(config) = &s.config {
        template = config.get("chat_template").cloned();
        let empty = Vec::new();
        let added = files.tokenizer.as_ref().and_then(|t| t.get("added_tokens")?.as_array());
        let added = added.unwrap_or(&empty);
        for &kind in &s.kinds {
            if let Some(add) = config.get(&format!("add_{kind}_token")).and_then(Json::as_bool)
                && s.adds.iter().all(|(k, _)| *k != kind)
            {
                s.adds.push((kind, add));
            }
            let text = config.get(&format!("{kind}_token")).and_then(content);
            let token = text.and_then(|t| added.iter().find(|a| content(a) == Some(t)));
            if let Some(id) = token.and_then(|a| a.get("id")?.as_u64()) {
                found(kind, id);
            }
        }
        if template.is_none() {
            template = other_template(folder)?;
        }
    }
    for &kind in &s.kinds {
        if let Some(id) = h.get(&format!("{kind}_token_id")).and_then(Json::as_u64) {
            found(kind, id);
        }
    }
    for &(kind, id) in named {
        found(kind, id);
    }
    let mut keys = Keys::new();
    let mut set = |key: String, value| keys.push((format!("tokenizer.{key}"), value));
    for (kind, id) in ids {
        if let (Ok(id), true) = (u32::try_from(id), kind != "cls") {
            set(format!("ggml.{}", id_key(kind)), Value::U32(id));
        }
    }
    for (kind, add) in s.adds {
        if ["bos", "eos", "sep"].contains(&kind) {
            set(format!("ggml.add_{kind}_token"), Value::Bool(add));
        }
    }
    for (key, value) in template.map(templates).unwrap_or_default() {
        set(key, value);
    }
    if let Some(lowercase) = s.lowercase {
        set("ggml.normalizer.lowercase".into(), Value::Bool(lowercase));
    }
    if let Some(strip) = s.strip_accents {
        set("ggml.normalizer.strip_accents".into(), Value::Bool(strip));
    }
    Ok(keys)
}

impl Special {
    fn normalizer(&mut self, n: &Json) {
        let flag = |key: &str| n.get(key).and_then(Json::as_bool);
        match n.get("type").and_then(Json::as_str) {
            Some("Lowercase") => self.lowercase = Some(true),
            Some("StripAccents") => self.strip_accents = Some(true),
            Some("BertNormalizer") => {
                self.lowercase = flag("lowercase").or(self.lowercase);
                self.strip_accents = flag("strip_accents").or(self.strip_accents);
            }
            Some("Sequence") => {
                let list = n.get("normalizers").and_then(Json::as_array);
                list.into_iter().flatten().for_each(|n| self.normalizer(n));
            }
            _ => {}
        }
    }

    fn add(&mut self, kind: &'static str, value: bool) {
        match self.adds.iter_mut().find(|(k, _)| *k == kind) {
            Some((_, v)) => *v = value,
            None => self.adds.push((kind, value)),
        }
    }

    fn post_processor(&mut self, post: &Json) {
        let text = |s: &Special, key: &str| {
            let entry = s.config.as_ref()?.get(key)?;
            content(entry).filter(|t| !t.is_empty()).map(str::to_owned)
        };
        let mut bos = text(self, "bos_token");
        let mut cls = text(self, "cls_token");
        let mut eos = text(self, "eos_token");
        let mut sep = text(self, "sep_token");
        let mut learn = BTreeMap::new();
        if bos.is_none() && cls.is_some() {
            bos.clone_from(&cls);
            learn.insert("bos_token", bos.clone());
        }
        if eos.is_none() && sep.is_some() {
            eos.clone_from(&sep);
            learn.insert("eos_token", eos.clone());
        }
        let known = self.config.is_some();
        let single = std::slice::from_ref(post);
        let processors = post.get("processors").and_then(Json::as_array).map_or(single, Vec::as_slice);
        for p in processors {
            match p.get("type").and_then(Json::as_str) {
                Some("ByteLevel") => {
                    for kind in ["bos", "eos"] {
                        if self.adds.iter().all(|(k, _)| *k != kind) {
                            self.add(kind, false);
                        }
                    }
                }
                Some("RobertaProcessing") => {
                    ["bos", "eos", "sep"].into_iter().for_each(|k| self.add(k, true));
                    let first = |key: &str| p.get(key)?.get(0)?.as_str().map(str::to_owned);
                    if cls.is_none() && known {
                        cls = first("cls").or(bos.clone());
                        learn.insert("cls_token", cls.clone());
                    }
                    if sep.is_none() && known {
                        sep = first("sep").or(eos.clone());
                        learn.insert("sep_token", sep.clone());
                    }
                }
                Some("TemplateProcessing") => {
                    let list = |key: &str| p.get(key).and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
                    let token = |e: Option<&Json>| e?.get("SpecialToken")?.get("id")?.as_str().map(str::to_owned);
                    let sequence = |e: Option<&Json>| e?.get("Sequence")?.get("id")?.as_str().map(str::to_owned);
                    let (one, mut pair) = (list("single"), list("pair"));
                    let (mut first, mut last) = (None, None);
                    if one.len() > 1 {
                        first = token(one.first());
                        if first.is_some() {
                            if !known {
                                bos.clone_from(&first);
                            } else if first != bos && first != cls {
                                if bos.is_none() {
                                    bos.clone_from(&first);
                                    learn.insert("bos_token", bos.clone());
                                }
                                if cls.is_none() {
                                    cls.clone_from(&first);
                                    learn.insert("cls_token", cls.clone());
                                }
                            }
                            self.add("bos", first == bos || first == cls);
                        }
                        last = token(one.last());
                        if last.is_some() {
                            if !known {
                                eos.clone_from(&last);
                            } else if last != eos {
                                // the end of a text takes the place of the end of a turn
                                for (kind, key) in [("eot", "eot_token"), ("eom", "eom_token")] {
                                    if !self.kinds.contains(&kind) {
                                        self.kinds.push(kind);
                                        learn.insert(key, eos.clone());
                                        break;
                                    }
                                }
                                eos.clone_from(&last);
                                learn.insert("eos_token", eos.clone());
                            }
                            self.add("eos", last == eos);
                        }
                    }
                    if first.is_some() && token(pair.first()) == first {
                        pair = &pair[1..];
                    }
                    if last.is_some() && token(pair.last()) == last {
                        pair = &pair[..pair.len() - 1];
                    }
                    let inner = pair.get(1..pair.len().saturating_sub(1)).unwrap_or_default();
                    if sequence(pair.first()).as_deref() == Some("A")
                        && sequence(pair.last()).as_deref() == Some("B")
                        && !inner.is_empty()
                    {
                        let separates = |t: &Option<String>| t.is_some() && (*t == sep || *t == eos);
                        let mut add = separates(&token(inner.first())) && last.is_none();
                        add |= inner.len() == 2 && separates(&token(inner.get(1)));
                        self.add("sep", add);
                        if add && sep.is_none() && known {
                            learn.insert("sep_token", eos.clone());
                        }
                    }
                }
                _ => {}
            }
        }
        if let Some(config) = &mut self.config {
            for (key, value) in learn {
                config.insert(key.to_owned(), value.map_or(Json::Null, Json::String));
            }
        }
    }
}

/// A template in a file of its own.
fn other_template(folder: &Folder) -> Result<Option<Json>, ConvertError> {
    if let Some(default) = folder.read("chat_template.jinja")? {
        let text = |bytes: Vec<u8>| Json::String(String::from_utf8_lossy(&bytes).into_owned());
        let default = text(default);
        let extra = folder.path.join("additional_chat_templates");
        let mut names: Vec<String> = fs::read_dir(extra)
            .into_iter()
            .flatten()
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .filter(|n| n.ends_with(".jinja"))
            .collect();
        if names.is_empty() {
            return Ok(Some(default));
        }
        names.sort();
        let mut all = vec![serde_json::json!({"name": "default", "template": default})];
        for name in names {
            let template = folder.read(&format!("additional_chat_templates/{name}"))?.unwrap_or_default();
            let name = name.trim_end_matches(".jinja");
            all.push(serde_json::json!({"name": name, "template": text(template)}));
        }
        return Ok(Some(Json::Array(all)));
    }
    let file = folder.json("chat_template.json")?;
    Ok(file.and_then(|f| f.get("chat_template").cloned()))
}

/// One template, or several with names of which "default" is the usual one.
fn templates(template: Json) -> Vec<(String, Value)> {
    let list = match template {
        Json::String(text) => return vec![("chat_template".into(), Value::str(&text))],
        Json::Array(list) => list,
        _ => return Vec::new(),
    };
    let mut keys = Vec::new();
    let mut names = Vec::new();
    let mut default = None;
    for entry in &list {
        let text = |key: &str| entry.get(key).and_then(Json::as_str);
        let (Some(name), Some(template)) = (text("name"), text("template")) else {
            continue;
        };
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        if name == "default" {
            default = Some(template);
        } else if !name.is_empty() {
            keys.push((format!("chat_template.{name}"), Value::str(template)));
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    if !names.is_empty() {
        let names: StrArray = names.iter().collect();
        keys.push(("chat_templates".into(), Value::Array(Array::Str(names))));
    }
    keys.extend(default.map(|t| ("chat_template".into(), Value::str(t))));
    keys
}
