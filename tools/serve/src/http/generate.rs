//! The routes that generate texts.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Response};
use axum::response::IntoResponse;

use super::events::Events;
use super::guard::Known;
use super::state::State;
use super::{asked, reply, stream};
use crate::api::request::{Asked, Caller, Unread, ollama};
use crate::api::{ApiError, Dialect, Reply, Route, answer as shape};
use crate::args::KeepAlive;
use crate::engine::Event;
use crate::service::{Service, Weight};

/// How long a stream waits for its first token before it begins, so that an error until then has a status of its own.
const FIRST: Duration = Duration::from_secs(10);

/// Answers a request for texts.
pub async fn generate(state: &State, route: Route, known: Known, headers: &HeaderMap, body: Body) -> Response<Body> {
    match answer(state, route, known, headers, body).await {
        Ok(response) => response,
        Err(e) => e.into_response(),
    }
}

async fn answer(
    state: &State,
    route: Route,
    known: Known,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response<Body>, ApiError> {
    let caller = caller(state, &known, headers)?;
    let request = asked::Asked::read(state, body).await?;
    if route.dialect() == Dialect::Ollama && ollama::asks_for_nothing(&request.body, route == Route::OllamaChat)? {
        return without_text(state, route, &request, &known).await;
    }
    known.enter()?;
    let lease = request.lease(state, &known).await?;
    let service: &Arc<Service> = &lease;
    let (asked, text) = loop {
        let (body, caller) = (request.body.clone(), caller.clone());
        let read = service.blocking(request.weight, move |service| match Asked::read(route, service, &body, &caller) {
            Ok(asked) => {
                let Some(first) = asked.requests.first() else {
                    return Err(ApiError::field("prompt", "there is nothing in it"));
                };
                let text = service.engine.submit(first.clone())?;
                Ok(Ok((asked, text)))
            }
            Err(Unread::Form(form)) => Ok(Err(form)),
            Err(Unread::Refused(e)) => Err(e),
        });
        match read.await? {
            Ok(read) => break read,
            Err(form) => service.compile(form).await?,
        }
    };
    drop(request);
    let mut events = Events::of(service, text, &asked.requests[1..]);
    let mut reply = Reply::new(service, asked)?;
    reply.loading = lease.loading;
    let entry = known.entry;
    if reply.asked.stream {
        let begun = first(&mut reply, &mut events, &entry).await?;
        return Ok(stream::respond(reply, events, begun, entry, lease));
    }
    while !reply.is_done() {
        let event = events.next().await;
        stream::take(&mut reply, event, &entry)?;
    }
    // Probabilities of thousands of tokens take their time.
    let work = service.blocking(Weight::Light, move |_| Ok(reply::json(200, &shape::whole(&reply))));
    work.await
}

/// Answers a request of Ollama's that asks for no text: it loads a model, or with `"keep_alive": 0` unloads one of several.
async fn without_text(
    state: &State,
    route: Route,
    request: &asked::Asked,
    known: &Known,
) -> Result<Response<Body>, ApiError> {
    let name = request.model.as_deref();
    let unloads = request.keep == Some(KeepAlive::For(Duration::ZERO));
    let (name, reason) = match state.models.folder().filter(|_| unloads) {
        Some(folder) => {
            let model = folder.find(name, &|name| known.may_ask_for(name)).await?.name;
            folder.unload(&model);
            (name.map_or(model, str::to_owned), "unload")
        }
        None => (request.lease(state, known).await?.names.resolve(name, None)?.0, "load"),
    };
    Ok(reply::json(200, &shape::ollama::without_text(route, &name, reason)))
}

/// The client of a request. Holders of different keys share nothing in the cache, unless the server was told otherwise.
///
/// # Errors
/// A header that makes no sense.
pub fn caller(state: &State, known: &Known, headers: &HeaderMap) -> Result<Caller, ApiError> {
    Ok(Caller {
        tenant: match state.keys.are_several() && !state.shared_cache {
            true => known.tenant.clone(),
            false => String::new(),
        },
        party: known.tenant.clone(),
        priority: known.key.as_ref().map_or(0, |key| key.limits().priority),
        deadline: deadline(headers)?,
    })
}

/// The events of a stream up to its first token, or for as long as it may be waited for.
async fn first(
    reply: &mut Reply,
    events: &mut Events,
    entry: &Arc<super::log::Entry>,
) -> Result<Vec<serde_json::Value>, ApiError> {
    let mut begun = Vec::new();
    let until = tokio::time::Instant::now() + reply.asked.ping.unwrap_or(FIRST).min(FIRST);
    while let Ok(event) = tokio::time::timeout_at(until, events.next()).await {
        let reading = matches!(event, Some((_, Event::Prompt(_) | Event::PromptLogprobs(_))));
        begun.extend(stream::take(reply, event, entry)?);
        if !reading || reply.asked.return_progress {
            break;
        }
    }
    Ok(begun)
}

/// The time that a proxy or client gives the request.
fn deadline(headers: &HeaderMap) -> Result<Option<Duration>, ApiError> {
    let Some(value) = headers.get("x-request-timeout-ms") else {
        return Ok(None);
    };
    let ms = value.to_str().ok().and_then(|v| v.parse::<u64>().ok());
    match ms.filter(|ms| (1..=86_400_000).contains(ms)) {
        Some(ms) => Ok(Some(Duration::from_millis(ms))),
        None => Err(ApiError::invalid("X-Request-Timeout-Ms must be from 1 to 86400000")),
    }
}
