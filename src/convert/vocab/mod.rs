//! The tokenizer of a checkpoint as `tokenizer.ggml.*` metadata.

mod bpe;
mod chkhsh;
mod foreign;
mod gemma4;
mod keys;
mod plamo;
mod pre;
mod proto;
mod rwkv;
mod special;
mod spm;
mod ugm;

use serde_json::Value as Json;
use trine_formats::gguf::{Array, StrArray, Value};

use super::error::ConvertError;
use super::folder::Folder;
use super::hparams::HParams;
use crate::arch::{Checkpoint, SpacePrefix, TokenKey, Tokenizer};
use crate::isolate::Isolate;

pub use foreign::answer;
pub(super) use keys::Keys;
use keys::{TokenizerFiles, wrong};

/// The files of a tokenizer, and how they are read.
pub(super) struct Tokens<'a> {
    /// The folder that holds them.
    pub folder: &'a Folder,
    /// `config.json` of the model.
    pub h: &'a HParams,
    /// The one in the same folder as the tokenizer.
    pub beside: &'a HParams,
    /// The class whose rules they follow.
    pub checkpoint: &'a Checkpoint,
    /// Tokens of the model.
    pub vocab: u32,
}

/// All keys, in the order of the reference converter.
pub(super) fn convert(
    &Tokens { folder, h, beside, checkpoint, vocab: n_vocab }: &Tokens<'_>,
    pre: Option<&str>,
    elsewhere: Option<&dyn Isolate>,
    notes: &mut Vec<String>,
) -> Result<Keys, ConvertError> {
    let files = TokenizerFiles {
        tokenizer: folder.json("tokenizer.json")?,
        config: folder.json("tokenizer_config.json")?.unwrap_or(Json::Null),
    };
    let masked = checkpoint.tokenizer == Tokenizer::XlmRobertaMasked;
    if masked || checkpoint.tokenizer == Tokenizer::XlmRoberta {
        return ugm::keys(folder, h, &files, n_vocab, masked);
    }
    if checkpoint.tokenizer == Tokenizer::Plamo {
        let mut keys = plamo::keys(folder, &files.config, n_vocab as usize)?;
        keys.extend(stated(checkpoint.token_keys, folder, h, &files)?);
        return Ok(keys);
    }
    if checkpoint.tokenizer == Tokenizer::Rwkv {
        return rwkv::keys(folder, beside, &files, n_vocab as usize, notes);
    }
    let mut keys = stated(checkpoint.first_token_keys, folder, h, &files)?;
    let mut set = |key: &str, value: Value| keys.push((format!("tokenizer.ggml.{key}"), value));
    let space = checkpoint.space_prefix;
    let stated_prefix = files.config.get("add_prefix_space").and_then(Json::as_bool);
    if let (SpacePrefix::Config, Some(prefix)) = (space, stated_prefix) {
        set("add_space_prefix", Value::Bool(prefix));
    }
    let class = files.config.get("tokenizer_class").and_then(Json::as_str);
    let json_alone = files.tokenizer.is_some()
        && match checkpoint.tokenizer {
            Tokenizer::Any | Tokenizer::Arctic | Tokenizer::InternLm2 | Tokenizer::T5 => false,
            Tokenizer::Json
            | Tokenizer::Gemma4
            | Tokenizer::Xverse
            | Tokenizer::XlmRoberta
            | Tokenizer::XlmRobertaMasked
            | Tokenizer::Plamo
            | Tokenizer::Rwkv => true,
            Tokenizer::Phi => class == Some("GPT2Tokenizer"),
        };
    let unigram = checkpoint.tokenizer == Tokenizer::T5;
    let mut pieces = folder.read("tokenizer.model")?;
    if unigram && pieces.is_none() {
        pieces = folder.read("spiece.model")?;
    }
    let model = match pieces {
        Some(_) if json_alone => None,
        Some(bytes) => {
            match proto::parse(&bytes) {
                Ok(model) => Some(model),
                // Llama 3 ships its merges in another format under this name
                Err(what) if files.tokenizer.is_some() => {
                    notes
                        .push(format!("tokenizer.model is not a SentencePiece model ({what}); tokenizer.json is used"));
                    None
                }
                Err(what) => return Err(wrong("tokenizer.model", what)),
            }
        }
        None => None,
    };
    let (mut space_prefix, mut space_first, mut rules) = (None, None, Vec::new());
    let (name, pre, vocab, merges) = if let Some(model) = model {
        space_prefix = model.space_prefix(stated_prefix);
        let added = folder.json("added_tokens.json")?;
        let rule = checkpoint.tokenizer;
        match rule {
            Tokenizer::Arctic => space_prefix = None,
            Tokenizer::InternLm2 => space_first = Some(model.add_dummy_prefix),
            _ => {}
        }
        let vocab = spm::vocab(&model, &files, &added, n_vocab, rule, notes)?;
        // the first ones, and those of Pile-T5, are of type BPE
        let name = match unigram && model.model_type == 1 {
            true => {
                space_first = Some(model.add_dummy_prefix);
                rules.push(("remove_extra_whitespaces", Value::Bool(model.remove_extra_whitespaces)));
                if !model.charsmap.is_empty() {
                    rules.push(("precompiled_charsmap", Value::Array(Array::U8(model.charsmap))));
                }
                "t5"
            }
            false => "llama",
        };
        (name, "default".to_owned(), vocab, Vec::new())
    } else if let Some(tokenizer) = files.tokenizer.as_ref().filter(|_| !unigram) {
        if checkpoint.tokenizer == Tokenizer::Gemma4 {
            let vocab = gemma4::vocab(tokenizer, &files.config, n_vocab)?;
            ("gemma4", String::new(), vocab, bpe::merges(tokenizer)?)
        } else if checkpoint.tokenizer == Tokenizer::Xverse {
            let vocab = bpe::pieces(tokenizer, &files.config, n_vocab)?;
            ("llama", "default".to_owned(), vocab, Vec::new())
        } else if spm::is_spm_like(tokenizer) {
            space_prefix = spm::json_space_prefix(tokenizer, stated_prefix);
            let vocab = spm::vocab_of_json(tokenizer, &files.config, n_vocab)?;
            ("llama", "default".to_owned(), vocab, Vec::new())
        } else {
            let (config, probe) = (&files.config, pre.is_none());
            let (vocab, probe) = bpe::vocab(folder, tokenizer, config, n_vocab, probe, elsewhere)?;
            let pre = match pre {
                Some(name) => name.to_owned(),
                None => pre::detect(probe.unwrap_or_default(), tokenizer, notes)?,
            };
            match keys::cuts_words(tokenizer) {
                true => ("bert", pre, bpe::marked(vocab), Vec::new()),
                false => ("gpt2", pre, vocab, bpe::merges(tokenizer)?),
            }
        }
    } else {
        return Err(ConvertError::Missing {
            folder: folder.path.clone(),
            file: match unigram {
                true => "tokenizer.model nor spiece.model".into(),
                false => "tokenizer.json nor tokenizer.model".into(),
            },
            hint: "a GGUF file holds the tokenizer; download it too",
        });
    };
    set("model", Value::str(name));
    if !pre.is_empty() {
        set("pre", Value::str(&pre));
    }
    let tokens: StrArray = vocab.tokens.iter().collect();
    set("tokens", Value::Array(Array::Str(tokens)));
    if !vocab.scores.is_empty() {
        set("scores", Value::Array(Array::F32(vocab.scores)));
    }
    let kinds = vocab.kinds.iter().map(|k| *k as i32).collect();
    set("token_type", Value::Array(Array::I32(kinds)));
    if !merges.is_empty() {
        set("merges", Value::Array(Array::Str(merges.into_iter().collect())));
    }
    if let Some(prefix) = space_first {
        set("add_space_prefix", Value::Bool(prefix));
    }
    rules.into_iter().for_each(|(key, value)| set(key, value));
    let n_tokens = (name != "gpt2" && name != "gemma4").then_some(vocab.tokens.len() as u64);
    let named = special_tokens(&files, checkpoint)?;
    keys.extend(special::keys(folder, &files, beside, n_tokens, &named)?);
    for rule in checkpoint.token_rules {
        if rule.vocab.is_some_and(|n| n != n_vocab) {
            continue;
        }
        let eot = rule.eot.map(|id| ("eot_token_id", Value::U32(id)));
        let bos = rule.add_bos.map(|add| ("add_bos_token", Value::Bool(add)));
        let stated = eot.into_iter().chain(bos);
        keys.extend(stated.map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)));
    }
    let prefix = match space {
        _ if space_first.is_some() => None,
        SpacePrefix::Never => Some(false),
        SpacePrefix::Config if stated_prefix.is_some() => None,
        SpacePrefix::ConfigLast => stated_prefix.or(space_prefix),
        SpacePrefix::Config | SpacePrefix::Tokenizer => space_prefix,
    };
    if let Some(prefix) = prefix {
        keys.push(("tokenizer.ggml.add_space_prefix".into(), Value::Bool(prefix)));
    }
    keys.extend(stated(checkpoint.token_keys, folder, h, &files)?);
    let has_template = keys.iter().any(|(key, _)| key == "tokenizer.chat_template");
    if checkpoint.token_keys.contains(&TokenKey::TemplateElsewhere) && !has_template {
        notes
            .push("the folder has no chat template, in whose place llama.cpp's converter writes one of its own".into());
    }
    Ok(keys)
}

/// Keys of the tokenizer that a class of models states which take another's.
pub(super) fn of_drafter(checkpoint: &Checkpoint, folder: &Folder, h: &HParams) -> Result<Keys, ConvertError> {
    let files = TokenizerFiles { tokenizer: None, config: Json::Null };
    stated(checkpoint.token_keys, folder, h, &files)
}

/// Keys that the class states.
fn stated(stated: &[TokenKey], folder: &Folder, h: &HParams, files: &TokenizerFiles) -> Result<Keys, ConvertError> {
    let mut keys = Keys::new();
    let words = files.tokenizer.as_ref().is_some_and(keys::cuts_words);
    for key in stated {
        let entry = match *key {
            TokenKey::TemplateFile => {
                let template = folder.read("chat_template.jinja")?;
                let text = template.map(|bytes| Value::str(&String::from_utf8_lossy(&bytes)));
                keys.extend(text.map(|text| ("tokenizer.chat_template".to_owned(), text)));
                None
            }
            TokenKey::Template => {
                let template = match folder.read("chat_template.jinja")? {
                    Some(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
                    None => files.config.get("chat_template").and_then(Json::as_str).map(str::to_owned),
                };
                let template = template.filter(|text| !text.is_empty());
                keys.extend(template.map(|text| ("tokenizer.chat_template".to_owned(), Value::str(&text))));
                None
            }
            TokenKey::Id(gguf, id) => Some((gguf, Value::U32(id))),
            TokenKey::Added(text, gguf) => files.added(text).map(|id| (gguf, Value::U32(id))),
            TokenKey::Stated(name, gguf) => h.u32(name)?.map(|id| (gguf, Value::U32(id))),
            TokenKey::StatedOr(name, gguf, or) => Some((gguf, Value::U32(h.u32(name)?.unwrap_or(or)))),
            TokenKey::KindsOfWords(name) => match words {
                true => Some(("token_type_count", Value::U32(h.u32(name)?.unwrap_or(1)))),
                false => None,
            },
            TokenKey::KindsOfOthers(n) => (!words).then_some(("token_type_count", Value::U32(n))),
            TokenKey::Flag(gguf, flag) => Some((gguf, Value::Bool(flag))),
            TokenKey::AddBos(add) => Some(("add_bos_token", Value::Bool(add))),
            TokenKey::TemplateElsewhere => None,
            TokenKey::OtherEnd => other_end(h).map(|id| ("eot_token_id", Value::U32(id))),
            TokenKey::FirstOfEnds => first_of_ends(folder)?.map(|id| ("eot_token_id", Value::U32(id))),
        };
        keys.extend(entry.map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)));
    }
    Ok(keys)
}

/// Special tokens that the class names by their texts.
fn special_tokens(files: &TokenizerFiles, checkpoint: &Checkpoint) -> Result<Vec<(&'static str, u64)>, ConvertError> {
    let added = files.tokenizer.as_ref().and_then(|t| t.get("added_tokens")?.as_array());
    let id = |text: &str| {
        let mut entries = added.into_iter().flatten();
        entries.find(|a| keys::content(a) == Some(text)).and_then(|a| a.get("id")?.as_u64())
    };
    let named = checkpoint.special.iter().map(|&(kind, text)| match id(text) {
        Some(id) => Ok((kind, id)),
        None => Err(wrong("tokenizer.json", format!("has no added token '{text}', which models of the class need"))),
    });
    named.collect()
}

/// The first of several tokens that end a text and that begins none.
fn other_end(h: &HParams) -> Option<u32> {
    let begin = h.get("bos_token_id").and_then(Json::as_u64);
    let ends = h.get("eos_token_id")?.as_array()?;
    let other = ends.iter().filter_map(Json::as_u64).find(|id| Some(*id) != begin)?;
    u32::try_from(other).ok()
}

/// The first of several tokens that end a text.
fn first_of_ends(folder: &Folder) -> Result<Option<u32>, ConvertError> {
    let generation = folder.json("generation_config.json")?.unwrap_or(Json::Null);
    let ends = generation.get("eos_token_id").and_then(Json::as_array).filter(|ends| ends.len() > 1);
    Ok(ends.and_then(|ends| ends[0].as_u64()).and_then(|id| u32::try_from(id).ok()))
}
