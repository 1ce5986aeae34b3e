//! `/props` and `/slots`.

use serde_json::{Value, json};

use super::answer::shapes;
use crate::args::Args;
use crate::engine::Request;
use crate::service::Service;

/// Properties and abilities of the server.
pub fn props(service: &Service, slots: bool, metrics: bool) -> Value {
    let model = service.engine.model();
    let tokenizer = model.tokenizer();
    let special = |id: Option<u32>| service.text_of(id.as_slice());
    let mut defaults = Request::new(Vec::new());
    defaults.sampler.clone_from(&service.limits.sampler);
    // The highest stands for a random one.
    defaults.sampler.seed = u32::try_from(service.limits.seed).unwrap_or(u32::MAX);
    let params = shapes::settings(service, &defaults, false);
    json!({
        "default_generation_settings": {"params": params, "n_ctx": service.engine.options().n_ctx()},
        "total_slots": service.engine.options().parallel,
        "model_alias": service.names.id(),
        "model_path": service.about.file,
        "modalities": {"vision": false, "audio": false},
        "endpoint_slots": slots,
        "endpoint_props": false,
        "endpoint_metrics": metrics,
        "chat_template": service.template_source.as_deref().unwrap_or_default(),
        "chat_template_caps": {},
        "bos_token": special(tokenizer.bos()),
        "eos_token": special(tokenizer.eos()),
        "build_info": service.about.fingerprint,
        "is_sleeping": false,
        "trine": {"widths": service.names.widths, "bits": service.engine.options().bits, "sha256": service.about.sha256},
    })
}

/// The same of a server that serves the models of a folder, of which `loaded` are loaded; those of a model are asked for
/// by its name.
pub fn of_folder(args: &Args, loaded: &[&Service], slots: bool, metrics: bool) -> Value {
    let names: Vec<&str> = loaded.iter().map(|service| service.names.id()).collect();
    json!({
        "role": "router",
        "total_slots": args.parallel,
        "endpoint_slots": slots,
        "endpoint_props": false,
        "endpoint_metrics": metrics,
        "build_info": concat!("b", env!("CARGO_PKG_VERSION")),
        "trine": {"loaded": names},
    })
}

/// The adapters of a model, their numbers, and their factors where a request names none.
pub fn adapters(service: &Service) -> Value {
    let weights = service.engine.model().weights();
    let adapters = weights.added_files().iter().zip(weights.adapter_scales().iter()).enumerate();
    let adapters = adapters.map(|(id, (path, scale))| {
        let path = path.file_name().unwrap_or_default().to_string_lossy();
        json!({"id": id, "path": path, "scale": scale, "task_name": "", "prompt_prefix": ""})
    });
    adapters.collect()
}

/// The places for running texts.
pub fn slots(service: &Service) -> Vec<Value> {
    let n_ctx = service.engine.options().n_ctx();
    let slots = service.engine.slots().into_iter().enumerate();
    let slots = slots.map(|(i, slot)| {
        let left = slot.left.map_or(-1, |n| n as i64);
        json!({
            "id": i,
            "model": service.names.id(),
            "n_ctx": n_ctx,
            "speculative": service.engine.options().drafts.is_some(),
            "is_processing": slot.busy,
            "next_token": [{
                "has_next_token": slot.busy,
                "has_new_line": false,
                "n_remain": if slot.busy { left } else { -1 },
                "n_decoded": slot.generated,
            }],
        })
    });
    slots.collect()
}
