//! `/slots`: the places for running texts, and their last texts in files.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, Query, State as Extract};
use axum::http::{HeaderMap, Response};
use serde_json::{Value, json};
use trine::step::Setting;

use super::asked::Asked;
use super::generate::caller;
use super::guard::Known;
use super::reply;
use super::state::State;
use crate::api::request::fields::Fields;
use crate::api::request::{adapters, cache};
use crate::api::{ApiError, props};
use crate::models::Loaded;
use crate::service::{Moved, Place, SavedSlots, Service, Weight};

type Answer = Result<Response<Body>, ApiError>;

/// Shows what runs.
pub async fn show(Extract(state): Extract<Arc<State>>, Query(query): Query<HashMap<String, String>>) -> Answer {
    state.models.check_ready()?;
    if !state.slots {
        return Err(ApiError::not_here("This server does not show its slots: it runs with --no-slots"));
    }
    let wanted = query.get("fail_on_no_slot").is_some_and(|n| n == "1");
    let asked = |loaded: &Loaded| query.get("model").is_none_or(|name| loaded.service.names.id() == name);
    let loaded: Vec<Loaded> = state.models.loaded().into_iter().filter(asked).collect();
    let mut busy = loaded.iter().flat_map(|loaded| loaded.service.engine.slots());
    if wanted && !loaded.is_empty() && busy.all(|slot| slot.busy) {
        return Err(ApiError::unavailable("no slot available", 1));
    }
    let slots: Vec<Value> = loaded.iter().flat_map(|loaded| props::slots(&loaded.service)).collect();
    Ok(reply::json(200, &slots.into()))
}

/// Saves, restores or erases the last text of a place.
pub async fn act(
    Extract(state): Extract<Arc<State>>,
    Extension(known): Extension<Known>,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let request = Asked::read_or_empty(&state, body).await?;
    let lease = request.lease(&state, &known).await?;
    let caller = caller(&state, &known, &headers)?;
    let action = query.get("action").cloned().unwrap_or_default();
    let work = move |service: &Arc<Service>| {
        let f = Fields::of(&request.body)?;
        let parallel = service.engine.options().parallel;
        let slot = id.parse().ok().filter(|slot| *slot < parallel);
        let slot =
            slot.ok_or_else(|| ApiError::invalid(format!("Invalid slot ID: there are 0 to {}", parallel - 1)))?;
        let bits = f.integer("bits", 1..=8)?.map(|bits| bits as u8);
        let salt = cache(&f, &caller)?.unwrap_or_default();
        let bits = bits.or(service.engine.options().bits).unwrap_or(0);
        let setting = Setting { bits, adapters: adapters(&f, service)? };
        let place = Place { slot, salt: &salt, setting };
        let engine = &service.engine;
        let saved = saved(service)?;
        let name = f.text("filename")?;
        let name = || name.ok_or_else(|| ApiError::field("filename", "is missing"));
        let answer = match action.as_str() {
            "save" => {
                let name = name()?;
                let Moved { tokens, bytes, time } = saved.save(engine, &place, name)?;
                let timings = json!({"save_ms": time.as_secs_f64() * 1e3});
                json!({"id_slot": slot, "filename": name, "n_saved": tokens, "n_written": bytes, "timings": timings})
            }
            "restore" => {
                let name = name()?;
                let Moved { tokens, bytes, time } = saved.restore(engine, &place, name)?;
                let timings = json!({"restore_ms": time.as_secs_f64() * 1e3});
                json!({"id_slot": slot, "filename": name, "n_restored": tokens, "n_read": bytes, "timings": timings})
            }
            "erase" => json!({"id_slot": slot, "n_erased": engine.erase_slot(slot, &salt)}),
            _ => return Err(ApiError::invalid("Invalid action: save, restore or erase")),
        };
        Ok(reply::json(200, &answer))
    };
    lease.blocking(Weight::Light, work).await
}

/// Where texts of places are kept.
///
/// # Errors
/// Nowhere; the model's states cannot be cut to where texts part, or its texts attend to another one beside them, so that
/// nothing of them is found again.
fn saved(service: &Service) -> Result<&SavedSlots, ApiError> {
    let weights = service.engine.model().weights();
    if weights.encoder().is_some() {
        return Err(ApiError::not_here(
            "an encoder reads the prompts of this model, and its texts are not kept for later ones",
        ));
    }
    if weights.is_recurrent() {
        return Err(ApiError::not_here("this model has a recurrent state, and its texts are not kept for later ones"));
    }
    let none = || ApiError::not_here("This server does not support slots action. Start it with `--slot-save-path`");
    service.saved.as_ref().ok_or_else(none)
}
