//! `/props` and `/slots`.

use serde_json::{Value, json};

use super::answer::shapes;
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

/// The places for running texts.
pub fn slots(service: &Service) -> Value {
    let n_ctx = service.engine.options().n_ctx();
    let slots = service.engine.slots().into_iter().enumerate();
    let slots = slots.map(|(i, slot)| {
        let left = slot.left.map_or(-1, |n| n as i64);
        json!({
            "id": i,
            "n_ctx": n_ctx,
            "speculative": service.engine.options().draft_bits.is_some(),
            "is_processing": slot.busy,
            "next_token": [{
                "has_next_token": slot.busy,
                "has_new_line": false,
                "n_remain": if slot.busy { left } else { -1 },
                "n_decoded": slot.generated,
            }],
        })
    });
    slots.collect::<Vec<_>>().into()
}
