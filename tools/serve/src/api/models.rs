//! `/v1/models`: the model that is served, once for each of its widths.

use serde_json::{Value, json};

use crate::service::Service;

/// The answer to `/v1/models`.
pub fn list(service: &Service) -> Value {
    let names = &service.names;
    let about = &service.about;
    let model = service.engine.model();
    let config = model.weights().config();
    let vocabulary = model.metadata().get_str("tokenizer.ggml.model").ok().flatten();
    let data: Vec<Value> = names
        .ids()
        .map(|(id, bits)| {
            json!({
                "id": id,
                "aliases": names.names,
                "tags": service.tags,
                "object": "model",
                "created": about.created,
                "owned_by": "llamacpp",
                "meta": {
                    "vocab_type": vocabulary,
                    "n_vocab": config.n_vocab,
                    "n_ctx": service.engine.options().n_ctx(),
                    "n_ctx_train": config.n_ctx_train,
                    "n_embd": config.n_embd,
                    "n_params": about.n_params,
                    "size": about.size,
                    "bits": bits.or(service.engine.options().bits),
                },
            })
        })
        .collect();
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
