//! Which pre-tokenizer a byte-level BPE has, under llama.cpp's name for it.
//!
//! GGUF names pre-tokenizers instead of describing them. llama.cpp's converter knows tokenizers by the
//! hash of one encoded text, which is asked first; a tokenizer of its own vocabulary is then known by
//! the regular expressions of `tokenizer.json`.

use serde_json::Value as Json;

use super::super::error::ConvertError;
use super::chkhsh::TABLE;
use super::keys::cuts_words;

/// The name of tokenizers that cut words into pieces, whose list says all.
const WORDS: &str = "bert-bge";

/// The text whose ids are hashed; every blank of it counts.
pub(super) const PROBE: &str = concat!(
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n\u{1f680} (normal) \u{1f636}\u{200d}",
    "\u{1f32b}\u{fe0f} (multiple emojis concatenated) \u{2705} \u{1f999}\u{1f999} 3 33 333 3333 3",
    "3333 333333 3333333 33333333 3.3 3..3 3...3 \u{1780}\u{17b6}\u{1793}\u{17cb}\u{178f}\u{17c2}",
    "\u{1796}\u{17b7}\u{179f}\u{17c1}\u{179f}\u{17a2}\u{17b6}\u{1785}\u{1f601} ?\u{6211}\u{60f3}",
    "\u{5728}apple\u{5de5}\u{4f5c}1314151\u{5929}\u{ff5e} ------======= \u{43d}\u{435}\u{449}",
    "\u{43e} \u{43d}\u{430} \u{411}\u{44a}\u{43b}\u{433}\u{430}\u{440}\u{441}\u{43a}\u{438} '''''",
    "'```````\"\"\"\"......!!!!!!?????? I've been 'told he's there, 'RE you sure? 'M not sure I'l",
    "l make it, 'D you like some tea? We'Ve a'lL",
);

/// `(?i:'s|…)` as most tokenizers write it.
macro_rules! contractions {
    () => {
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    };
}

/// Llama 3's expression, with a maximum of digits.
macro_rules! llama3 {
    ($digits:literal) => {
        concat!(
            contractions!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

/// GPT-4o's, where a word may start in the middle of another; with a suffix and a maximum of digits.
macro_rules! cased {
    ($suffix:expr, $digits:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $suffix,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $suffix,
            r"|\p{N}",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

/// Steps of a pre-tokenizer, whether words that are tokens are taken whole, and the name.
const SHAPES: &[(&[&str], bool, &str)] = &[
    (&["gpt-2"], false, "gpt-2"),
    (&["digits", "gpt-2"], false, "smollm"),
    (&[llama3!("{1,3}"), "bytes"], true, "llama-bpe"),
    (&[llama3!("{1,3}"), "bytes"], false, "smaug-bpe"),
    (&[llama3!(""), "bytes"], false, "qwen2"),
    (&[cased!(concat!(contractions!(), "?"), "{1,3}"), "bytes"], false, "gpt-4o"),
    (&[cased!("", ""), "bytes"], true, "tekken"),
];

/// The name of a probe. Two tokenizers stand in the table under two names; llama.cpp's converter takes the
/// later one.
fn known(probe: &str) -> Option<&'static str> {
    let row = TABLE.iter().rev().find(|(hash, _)| *hash == probe)?;
    Some(row.1)
}

/// The name for `tokenizer.ggml.pre` of a tokenizer with this probe.
///
/// # Errors
/// A pre-tokenizer that neither the table nor the shapes know.
pub(super) fn detect(probe: String, tokenizer: &Json, notes: &mut Vec<String>) -> Result<String, ConvertError> {
    if let Some(name) = known(&probe) {
        notes.push(format!("pre-tokenizer {name}, known by its probe"));
        return Ok((*name).to_owned());
    }
    if cuts_words(tokenizer) {
        notes.push(format!("pre-tokenizer {WORDS}, as words are cut into pieces"));
        return Ok(WORDS.to_owned());
    }
    let steps = steps(tokenizer.get("pre_tokenizer").unwrap_or(&Json::Null))
        .map_err(|what| ConvertError::UnknownPre { probe: probe.clone(), what })?;
    let whole = tokenizer.get("model").and_then(|m| m.get("ignore_merges")).and_then(Json::as_bool).unwrap_or(false);
    let shape = SHAPES.iter().find(|(s, w, _)| *w == whole && s.iter().eq(&steps));
    match shape {
        Some((.., name)) => {
            notes.push(format!("pre-tokenizer {name}, by its regular expressions"));
            Ok((*name).to_owned())
        }
        None => Err(ConvertError::UnknownPre {
            probe,
            what: format!("its steps are {}{}", steps.join(", then "), if whole { ", ignoring merges" } else { "" }),
        }),
    }
}

/// The steps by name: `gpt-2`, `bytes` and `digits`, or a regular expression.
fn steps(pre: &Json) -> Result<Vec<String>, String> {
    let text = |key: &str| pre.get(key).and_then(Json::as_str);
    let flag = |key: &str, default| pre.get(key).and_then(Json::as_bool).unwrap_or(default);
    match text("type") {
        Some("Sequence") => {
            let list = pre.get("pretokenizers").and_then(Json::as_array);
            let all = list.into_iter().flatten().map(steps).collect::<Result<Vec<_>, _>>()?;
            Ok(all.concat())
        }
        Some("ByteLevel") if flag("add_prefix_space", true) => {
            Err("its ByteLevel adds a space before every text".into())
        }
        Some("ByteLevel") => Ok(vec![if flag("use_regex", true) { "gpt-2" } else { "bytes" }.to_owned()]),
        Some("Digits") if flag("individual_digits", false) => Ok(vec!["digits".into()]),
        Some("Split") if text("behavior") == Some("Isolated") && !flag("invert", false) => {
            let pattern = pre.get("pattern").and_then(|p| p.get("Regex")).and_then(Json::as_str);
            Ok(vec![pattern.ok_or("a Split has no regular expression")?.to_owned()])
        }
        Some(other) => Err(format!("its step {other} has no counterpart")),
        None => Err("there is none".into()),
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_probe_is_the_text_that_the_hashes_are_of() {
        let hash: String = Sha256::digest(PROBE).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hash, "a36179c1e2b1cfcfbfad1dc779addad2ffc778201e4cf0d538bddeafa2c526da");
    }

    #[test]
    fn of_two_names_for_a_probe_the_later_counts() {
        let olmo = "b6dc8df998e1cfbdc4eac8243701a65afe638679230920b50d6f17d81c098166";
        assert_eq!(known(olmo), Some("olmo"));
        assert_eq!(known("0"), None);
    }

    #[test]
    fn steps_are_named() {
        let json = |s: &str| steps(&serde_json::from_str(s).unwrap());
        assert_eq!(json(r#"{"type":"ByteLevel","add_prefix_space":false}"#).unwrap(), ["gpt-2"]);
        let two = r#"{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
            {"type":"ByteLevel","add_prefix_space":false,"use_regex":true}]}"#;
        assert_eq!(json(two).unwrap(), ["digits", "gpt-2"]);
        assert!(json(r#"{"type":"Whitespace"}"#).unwrap_err().contains("Whitespace"));
        assert!(json("null").is_err());
    }
}
