//! The `general.*` keys: what the model is called, by whom, under which licence.

use serde_json::Value as Json;
use trine_formats::gguf::{Array, Metadata, StrArray, Value};

use super::card::Card;
use super::error::ConvertError;
use super::folder::Folder;
use super::name::{self, Parts};
use super::row::Size;

/// Keys of `generation_config.json` and what they are called in GGUF; the last says whether it is whole.
const SAMPLING: &[(&[&str], &str, bool)] = &[
    (&["top_k"], "top_k", true),
    (&["top_p"], "top_p", false),
    (&["min_p"], "min_p", false),
    (&["xtc_probability"], "xtc_probability", false),
    (&["xtc_threshold"], "xtc_threshold", false),
    (&["temperature"], "temp", false),
    (&["penalty_last_n"], "penalty_last_n", true),
    (&["penalty_repeat", "repetition_penalty"], "penalty_repeat", false),
    (&["mirostat"], "mirostat", true),
    (&["mirostat_tau"], "mirostat_tau", false),
    (&["mirostat_eta"], "mirostat_eta", false),
];

/// Sets the keys that follow the architecture.
pub(super) fn write(
    meta: &mut Metadata,
    folder: &Folder,
    config: &Json,
    size: &Size,
    model_name: Option<&str>,
) -> Result<(), ConvertError> {
    let parameters = size.all;
    meta.set("general.type", Value::str("model"));
    // a file that cannot be read as JSON is no reason to refuse the weights
    if let Ok(Some(generation)) = folder.json("generation_config.json") {
        sampling(meta, &generation);
    }
    let readme = folder.read("README.md")?.unwrap_or_default();
    let card = Card::parse(&String::from_utf8_lossy(&readme));
    let path = std::path::absolute(&folder.path).unwrap_or_else(|_| folder.path.clone());
    let folder_name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let stated = config.get("_name_or_path").and_then(Json::as_str);
    let stated = stated.filter(|s| !s.is_empty() && s.matches('/').count() <= 1);
    let sources: Vec<Parts> = stated
        .into_iter()
        .chain(Some(folder_name.as_str()).filter(|n| !n.is_empty()))
        .map(|id| name::parts(id, parameters))
        .collect();
    let from_names = |pick: fn(&Parts) -> Option<&String>| sources.iter().find_map(pick).map(String::as_str);
    let either = |keys: &[&str], pick: fn(&Parts) -> Option<&String>| {
        card.first(keys).or_else(|| from_names(pick)).map(str::to_owned)
    };
    let title = sources.first().map(|p| name::title(&p.name));
    let general_name = model_name
        .or(card.first(&["name", "model_name"]))
        .map(str::to_owned)
        .or(title.filter(|t| !t.is_empty()))
        .unwrap_or_else(|| "model".into());
    let computed = (parameters > 0).then(|| name::size_class(size));
    let keys = [
        ("name", Some(general_name)),
        ("author", card.first(&["author", "model_author", "model_creator"]).map(str::to_owned)),
        ("version", either(&["version", "model_version"], |p| p.version.as_ref())),
        ("organization", either(&["organization", "model_organization"], |p| p.organization.as_ref())),
        ("finetune", either(&["finetune", "model_finetune"], |p| p.finetune.as_ref())),
        ("basename", either(&["basename", "model_basename", "model_type"], |p| p.basename.as_ref())),
        ("description", card.first(&["description", "model_description"]).map(str::to_owned)),
        ("size_label", either(&["size_label", "model_size_label"], |p| p.size_label.as_ref()).or(computed)),
        ("license", Some(card.list("license").join(",")).filter(|l| !l.is_empty())),
        ("license.name", card.first(&["license_name"]).map(str::to_owned)),
        ("license.link", card.first(&["license_link"]).map(str::to_owned)),
        ("source.url", card.first(&["url", "model_url"]).map(str::to_owned)),
        ("source.doi", card.first(&["doi", "model_doi"]).map(str::to_owned)),
        ("source.uuid", card.first(&["uuid", "model_uuid"]).map(str::to_owned)),
        ("source.repo_url", card.first(&["repo_url", "model_repo_url"]).map(str::to_owned)),
    ];
    for (key, value) in keys {
        if let Some(value) = value {
            meta.set(&format!("general.{key}"), Value::str(&value));
        }
    }
    related(meta, "base_model", &card, &["base_model", "base_models", "base_model_sources"], parameters);
    related(meta, "dataset", &card, &["datasets", "dataset", "dataset_sources"], parameters);
    let lists = [("tags", ["tags", "pipeline_tag"]), ("languages", ["languages", "language"])];
    for (key, from) in lists {
        let all: StrArray = from.iter().flat_map(|k| card.list(k)).collect();
        if !all.is_empty() {
            meta.set(&format!("general.{key}"), Value::Array(Array::Str(all)));
        }
    }
    Ok(())
}

fn sampling(meta: &mut Metadata, generation: &Json) {
    for (keys, gguf, whole) in SAMPLING {
        let value = keys.iter().find_map(|k| generation.get(*k).filter(|v| !v.is_null()));
        let value = value.and_then(|v| {
            if *whole {
                v.as_i64().and_then(|n| i32::try_from(n).ok()).map(Value::I32)
            } else {
                v.as_f64().map(|x| Value::F32(x as f32))
            }
        });
        if let Some(value) = value {
            meta.set(&format!("general.sampling.{gguf}"), value);
        }
    }
}

/// Models or data sets that this one was made from, as ids or addresses.
fn related(meta: &mut Metadata, what: &str, card: &Card, keys: &[&str], parameters: u64) {
    const HUB: &str = "huggingface.co/";
    let Some(ids) = keys.iter().map(|k| card.list(k)).find(|l| !l.is_empty()) else {
        return;
    };
    meta.set(&format!("general.{what}.count"), Value::U32(ids.len() as u32));
    for (i, id) in ids.iter().enumerate() {
        let mut set = |key: &str, value: &str| {
            meta.set(&format!("general.{what}.{i}.{key}"), Value::str(value));
        };
        let address = ["http://", "https://", "ssh://"].iter().any(|s| id.starts_with(s));
        let hub_id = id.split_once(HUB).map(|(_, rest)| rest).filter(|r| r.matches('/').count() == 1);
        let parts = if address { hub_id } else { Some(id.as_str()) }.map(|i| name::parts(i, parameters));
        let mut repository = address.then(|| id.clone());
        if let Some(p) = parts {
            set("name", &name::title(&p.name));
            if let Some(version) = &p.version {
                set("version", version);
            }
            if let Some(organization) = &p.organization {
                set("organization", &name::title(organization));
                repository.get_or_insert_with(|| format!("https://{HUB}{organization}/{}", p.name));
            }
        }
        if let Some(repository) = repository {
            set("repo_url", &repository);
        }
    }
}
