//! `/v1/models`: the model that is served, once for each of its widths, or those of a folder.

use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

use crate::models::{Catalog, Entry};
use crate::service::Service;

/// Returns the model at a width, under the name `id`.
fn described(service: &Service, id: &str, bits: Option<u8>) -> Value {
    let (names, about, model) = (&service.names, &service.about, service.engine.model());
    let config = model.weights().config();
    json!({
        "id": id,
        "aliases": names.names,
        "tags": service.tags,
        "object": "model",
        "created": about.created,
        "owned_by": "llamacpp",
        "meta": {
            "vocab_type": model.metadata().get_str("tokenizer.ggml.model").ok().flatten(),
            "n_vocab": config.n_vocab,
            "n_ctx": service.engine.options().n_ctx(),
            "n_ctx_train": config.n_ctx_train,
            "n_embd": config.n_embd,
            "n_params": about.card.n_params,
            "size": about.card.size,
            "bits": bits.or(service.engine.options().bits),
        },
    })
}

/// Returns the answer to `/v1/models/{id}`; `None` where no model has that name.
pub fn one(service: &Service, id: &str) -> Option<Value> {
    let names = &service.names;
    let listed = names.ids().find(|(known, _)| known == id);
    let alias = names.names.iter().find(|known| *known == id).map(|known| (known.clone(), None));
    listed.or(alias).map(|(id, bits)| described(service, &id, bits))
}

/// The answer to `/v1/models`.
pub fn list(service: &Service) -> Value {
    let names = &service.names;
    let about = &service.about;
    let data: Vec<Value> = names.ids().map(|(id, bits)| described(service, &id, bits)).collect();
    let models = json!([{
        "name": names.id(),
        "model": names.id(),
        "type": "model",
        "digest": about.sha256,
        "size": about.card.size.to_string(),
        "capabilities": [if about.card.completes { "completion" } else { "embedding" }],
        "details": {"format": "gguf", "family": about.card.family},
    }]);
    json!({"models": models, "object": "list", "data": data})
}

/// The answer to `/v1/models` for these models of a folder, of which `loaded` are loaded, which has those of them that
/// are under all of their names.
pub fn list_of_folder(catalog: &Catalog, entries: &[Entry], loaded: &[&Service]) -> Value {
    let data = entries.iter().flat_map(|entry| {
        let service = loaded.iter().find(|service| service.names.id() == entry.name);
        let status = json!({"value": if service.is_some() { "loaded" } else { "unloaded" }});
        let mut models = match service {
            Some(service) => service.names.ids().map(|(id, bits)| described(service, &id, bits)).collect(),
            None => vec![of_file(catalog, entry)],
        };
        models.iter_mut().for_each(|model| model["status"] = status.clone());
        models
    });
    json!({"object": "list", "data": data.collect::<Vec<Value>>()})
}

/// A model of a folder that is not loaded.
fn of_file(catalog: &Catalog, entry: &Entry) -> Value {
    let created = entry.modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let n_params = catalog.card(entry).map(|card| card.n_params);
    json!({
        "id": entry.name,
        "aliases": [entry.name],
        "tags": [],
        "object": "model",
        "created": created,
        "owned_by": "llamacpp",
        "meta": {"n_params": n_params, "size": entry.size},
    })
}
