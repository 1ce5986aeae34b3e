//! Answers of the tokenizers crate about a `tokenizer.json`.
//!
//! The crate was not written for hostile files: some make it panic, and normalizers that lengthen a text over and over
//! take any amount of memory. So it is asked once, for everything, within limits and where the caller wishes in
//! another process.

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use tokenizers::Tokenizer;

use super::super::error::ConvertError;
use super::keys::wrong;
use super::pre::PROBE;
use crate::isolate::{Failure, Isolate, Job, Limits, within};

const FILE: &str = "tokenizer.json";

/// Its answer.
pub(super) struct Answer {
    /// Each of the given tokens, encoded and decoded by the tokenizer.
    pub texts: Vec<String>,
    /// SHA-256 of the ids of [`PROBE`], written as Python writes a list.
    pub probe: Option<String>,
}

/// Asks the tokenizer `file` about `tokens`, and for its probe.
pub(super) fn ask(
    elsewhere: Option<&dyn Isolate>,
    file: &[u8],
    tokens: &[&str],
    probe: bool,
) -> Result<Answer, ConvertError> {
    let mut request = json!({ "tokens": tokens, "probe": probe }).to_string().into_bytes();
    request.push(b'\n');
    request.extend_from_slice(file);
    let limits = Limits::of(request.len());
    let stopped = |why: Failure| wrong(FILE, format!("its tokenizer was stopped: {why}"));
    let reply = match elsewhere {
        Some(other) => other.run(Job::Tokenizer, &request, limits).map_err(stopped)?,
        None => answer(&request),
    };
    let reply: Json = serde_json::from_slice(&reply).unwrap_or(Json::Null);
    let text = |key: &str| reply.get(key).and_then(Json::as_str).map(str::to_owned);
    if let Some(why) = text("error") {
        return Err(wrong(FILE, why));
    }
    let texts = reply.get("texts").and_then(Json::as_array);
    let texts = texts.map(|all| all.iter().filter_map(|t| Some(t.as_str()?.to_owned())).collect());
    match texts {
        Some(texts) => Ok(Answer { texts, probe: text("probe") }),
        None => Err(stopped(Failure::Broken("there is no answer".to_owned()))),
    }
}

/// The answer to a request of [`Job::Tokenizer`], in the process that may fail.
pub fn answer(request: &[u8]) -> Vec<u8> {
    let owned = request.to_vec();
    let reply = match within(Limits::of(request.len()), move || look(&owned)) {
        Ok(Ok(reply)) => reply,
        Ok(Err(why)) => json!({ "error": why }),
        Err(failure) => json!({ "error": format!("its tokenizer was stopped: {failure}") }),
    };
    reply.to_string().into_bytes()
}

fn look(request: &[u8]) -> Result<Json, String> {
    let line = request.iter().position(|&b| b == b'\n').unwrap_or(request.len());
    let (asked, file) = (&request[..line], request.get(line + 1..).unwrap_or_default());
    let asked: Json = serde_json::from_slice(asked).map_err(|e| e.to_string())?;
    // Read as text, for which the library brings a compiled reader: `from_bytes` is generic and would compile all of it
    // again here.
    let tokenizer: Tokenizer = std::str::from_utf8(file)
        .map_err(|e| format!("is no tokenizer: {e}"))?
        .parse()
        .map_err(|e| format!("is no tokenizer: {e}"))?;
    let mut texts = Vec::new();
    let tokens = asked.get("tokens").and_then(Json::as_array);
    for token in tokens.into_iter().flatten().filter_map(Json::as_str) {
        let round_trip = tokenizer.encode(token, false).and_then(|e| tokenizer.decode(e.get_ids(), false));
        let text = round_trip.map_err(|e| format!("cannot encode its own token '{token}': {e}"))?;
        texts.push(text);
    }
    let mut reply = json!({ "texts": texts });
    if asked.get("probe").and_then(Json::as_bool) == Some(true) {
        let encoding = tokenizer.encode(PROBE, true).map_err(|e| format!("cannot encode a text: {e}"))?;
        let hash = Sha256::digest(format!("{:?}", encoding.get_ids()));
        let hash: String = hash.iter().map(|b| format!("{b:02x}")).collect();
        reply["probe"] = Json::String(hash);
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tokenizer_that_panics_is_an_error() {
        let panics = r#"{"model":{"type":"BPE","continuing_subword_prefix":"@@@@","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}"#;
        for file in [panics, "{", "[]"] {
            let asked = ask(None, file.as_bytes(), &["a"], true);
            assert!(asked.is_err(), "{file}");
        }
        let plain = r#"{"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}"#;
        let answer = ask(None, plain.as_bytes(), &["a"], true).expect("an answer");
        assert_eq!(answer.texts, ["a"]);
        assert!(answer.probe.is_some());
    }
}
