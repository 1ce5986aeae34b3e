//! Files and tensors beside `config.json` that say something of the model: the kind of pooling of an embedding model, tokens that never
//! come, and tensors whose numbers become keys of the file.

use serde_json::Value as JsonValue;

use super::dense::Dense;
use super::error::ConvertError;
use super::folder::Folder;
use super::ngrams::Ngrams;

/// Their contents.
#[derive(Debug)]
pub(super) struct Beside {
    /// The pooling of `modules.json`.
    pub pooling: Option<u32>,
    /// The tokens that `generation_config.json` suppresses.
    pub suppressed: Option<Vec<i32>>,
    /// Numbers of the embeddings of n-grams.
    pub ngrams: Option<Ngrams>,
    /// Projections of vectors that are converted.
    pub dense: Vec<Dense>,
}

impl Beside {
    /// Reads the files of a folder, of which `dense` are converted.
    pub fn read(folder: &Folder, dense: Vec<Dense>) -> Result<Beside, ConvertError> {
        Ok(Beside { pooling: pooling(folder)?, suppressed: suppressed(folder)?, ngrams: Ngrams::read(folder)?, dense })
    }
}

fn suppressed(folder: &Folder) -> Result<Option<Vec<i32>>, ConvertError> {
    let generation = folder.json("generation_config.json")?.unwrap_or(JsonValue::Null);
    let Some(stated) = generation.get("suppress_tokens").filter(|v| !v.is_null()) else {
        return Ok(None);
    };
    let id = |v: &JsonValue| v.as_i64().and_then(|id| i32::try_from(id).ok());
    let ids = stated.as_array().and_then(|all| all.iter().map(id).collect::<Option<Vec<i32>>>());
    let wrong = || ConvertError::Config(format!("'generation_config.json' has suppress_tokens {stated}, expected ids"));
    ids.map(Some).ok_or_else(wrong)
}

/// How vectors of a text's tokens become one, where `modules.json` names a folder that says it
/// (`TextModel._try_set_pooling_type` of the reference).
fn pooling(folder: &Folder) -> Result<Option<u32>, ConvertError> {
    let modules = folder.json("modules.json")?;
    let modules = modules.as_ref().and_then(JsonValue::as_array).into_iter().flatten();
    let text = |m: &JsonValue, key: &str| m.get(key).and_then(JsonValue::as_str).map(str::to_owned);
    let found = modules.into_iter().find(|m| text(m, "type").is_some_and(|t| t.ends_with("Pooling")));
    // a folder beside config.json, and no way out of it
    let Some(path) = found.and_then(|m| text(m, "path")).filter(|p| !p.contains(['/', '\\']) && p != "..") else {
        return Ok(None);
    };
    let config = folder.json(&format!("{path}/config.json"))?.unwrap_or(JsonValue::Null);
    let says = |key: &str| config.get(key).and_then(JsonValue::as_bool) == Some(true);
    let mode = text(&config, "pooling_mode").unwrap_or_default();
    let kinds = [
        ("pooling_mode_mean_tokens", "mean", 1),
        ("pooling_mode_cls_token", "cls", 2),
        ("pooling_mode_lasttoken", "lasttoken", 3),
    ];
    let found = kinds.iter().find(|(key, ..)| says(key)).or_else(|| kinds.iter().find(|(_, name, _)| *name == mode));
    match found {
        Some((.., number)) => Ok(Some(*number)),
        None => Err(ConvertError::Config(format!(
            "'{path}/config.json' names no pooling that a file can have: the mean, the first token or the last one"
        ))),
    }
}
