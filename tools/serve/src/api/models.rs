//! `/v1/models`: the model that is served, once for each of its widths.

use serde_json::{Value, json};

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
            "n_params": about.n_params,
            "size": about.size,
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
    let model = service.engine.model();
    let data: Vec<Value> = names.ids().map(|(id, bits)| described(service, &id, bits)).collect();
    let models = json!([{
        "name": names.id(),
        "model": names.id(),
        "type": "model",
        "digest": about.sha256,
        "size": about.size.to_string(),
        "capabilities": ["completion"],
        "details": {"format": "gguf", "family": model.metadata().get_str("general.architecture").ok().flatten()},
    }]);
    json!({"models": models, "object": "list", "data": data})
}
