//! Projections of vectors, which sentence-transformers has as modules in folders of their own beside the model's.

use serde_json::Value as JsonValue;

use super::error::ConvertError;
use super::folder::Folder;

/// A projection.
#[derive(Clone, Debug)]
pub(super) struct Dense {
    /// Its folder below that of the model.
    pub path: String,
    /// Its name in the file.
    pub name: &'static str,
    /// The widths of its input and its output.
    pub widths: [u32; 2],
}

/// The projections that `modules.json` lists and whose weights are there (`EmbeddingGemma` of the reference).
pub(super) fn modules(folder: &Folder) -> Result<Vec<Dense>, ConvertError> {
    let listed = folder.json("modules.json")?;
    let text = |m: &JsonValue, key: &str| m.get(key).and_then(JsonValue::as_str).map(str::to_owned);
    let mut found = Vec::new();
    for module in listed.as_ref().and_then(JsonValue::as_array).into_iter().flatten() {
        // a folder beside config.json, and no way out of it
        let path = text(module, "path").filter(|p| !p.is_empty() && !p.contains(['/', '\\']) && p != "..");
        let (Some(path), true) = (path, text(module, "type").is_some_and(|t| t.ends_with("Dense"))) else {
            continue;
        };
        if !folder.path.join(&path).join(super::folder::WEIGHTS).is_file() {
            continue;
        }
        let file = format!("{path}/config.json");
        let config = folder.json(&file)?.unwrap_or(JsonValue::Null);
        let width = |key: &str| {
            let n = config.get(key).and_then(JsonValue::as_u64).and_then(|n| u32::try_from(n).ok());
            n.ok_or_else(|| ConvertError::Json {
                path: folder.path.join(&file),
                why: format!("it has no number '{key}'"),
            })
        };
        let name = if path == "2_Dense" { "dense_2" } else { "dense_3" };
        found.push(Dense { name, widths: [width("in_features")?, width("out_features")?], path });
    }
    Ok(found)
}
