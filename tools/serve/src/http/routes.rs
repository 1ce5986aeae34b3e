//! Which path leads where, and which need a key.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Path, Query, State as Extract};
use axum::http::{HeaderMap, HeaderValue, Response};
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::asked::Asked;
use super::embed::{self, Wanted};
use super::guard::{self, Known};
use super::state::State;
use super::{generate, metrics, page, reply, slots};
use crate::api::embeddings::Shape;
use crate::api::{ApiError, Route, models, ollama, props, tokens};
use crate::models::{Catalog, Entry, Lease};
use crate::service::{Service, Weight};

type Shared = Extract<Arc<State>>;
type Of = Extension<Known>;
type Answer = Result<Response<Body>, ApiError>;

/// Routes of llama-server and OpenAI that are not here.
const ELSEWHERE: &[&str] = &[
    "/v1/audio/{*rest}",
    "/v1/images/{*rest}",
    "/v1/moderations",
    "/v1/files",
    "/v1/files/{*rest}",
    "/v1/batches",
    "/v1/batches/{*rest}",
    "/v1/fine_tuning/{*rest}",
    "/v1/vector_stores",
    "/v1/assistants",
    "/v1/threads",
    "/v1/realtime",
    "/v1/responses/{id}",
    "/v1/messages/batches",
    "/models/load",
    "/models/unload",
];

/// Routes of Ollama that are not here, and what does it instead.
const ELSEWHERE_OF_OLLAMA: &[(&str, &str)] = &[
    ("/api/pull", "rserve downloads nothing: fetch a GGUF file, and start rserve with it"),
    ("/api/push", "rserve uploads nothing"),
    ("/api/create", "rserve makes no models: rquantize and rconvert do"),
    ("/api/copy", "rserve changes no files: give a model another name with --alias"),
    ("/api/delete", "rserve changes no files: delete the file yourself"),
    ("/api/blobs/{digest}", "rserve takes no files: rconvert and rquantize make models of them"),
];

/// All routes.
pub fn router(state: &Arc<State>) -> Router {
    let mut open = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(health))
        .route("/health", get(health))
        .route("/v1/health", get(health));
    if state.page {
        open = open
            .route("/", get(|headers: HeaderMap| async move { page::INDEX.respond(&headers) }))
            .route("/style.css", get(|headers: HeaderMap| async move { page::STYLE.respond(&headers) }))
            .route("/app.js", get(|headers: HeaderMap| async move { page::SCRIPT.respond(&headers) }));
    }
    let mut keyed = Router::new()
        .route("/openapi.json", get(|headers: HeaderMap| async move { page::OPENAPI.respond(&headers) }))
        .route("/v1/models", get(list))
        .route("/models", get(list))
        .route("/v1/models/{id}", get(one_model))
        .route("/api/version", get(|| async { reply::json(200, &ollama::version()) }))
        .route("/api/tags", get(tags))
        .route("/api/ps", get(running))
        .route("/api/show", post(show))
        .route("/props", get(show_props).post(not_here))
        .route("/lora-adapters", get(show_adapters).post(set_adapters))
        .route("/slots", get(slots::show))
        .route("/slots/{id}", post(slots::act))
        .route("/tokenizer_info", get(show_tokenizer))
        .route("/tokenize", post(|s: Shared, k: Of, b: Body| convert(s, k, b, tokens::tokenize)))
        .route("/detokenize", post(|s: Shared, k: Of, b: Body| convert(s, k, b, tokens::detokenize)))
        .route("/apply-template", post(|s: Shared, k: Of, b: Body| convert(s, k, b, tokens::apply_template)))
        .route("/v1/chat/completions/input_tokens", post(|s: Shared, k: Of, b: Body| convert(s, k, b, tokens::count)))
        .route("/chat/completions/input_tokens", post(|s: Shared, k: Of, b: Body| convert(s, k, b, tokens::count)))
        .route("/v1/responses/input_tokens", post(|s: Shared, k: Of, b: Body| convert(s, k, b, tokens::count_response)))
        .route("/v1/messages/count_tokens", post(|s: Shared, k: Of, b: Body| convert(s, k, b, tokens::count_messages)));
    for (path, route) in [
        ("/completion", Route::Native),
        ("/completions", Route::Native),
        ("/infill", Route::Infill),
        ("/v1/completions", Route::Text),
        ("/v1/chat/completions", Route::Chat),
        ("/chat/completions", Route::Chat),
        ("/v1/responses", Route::Responses),
        ("/v1/messages", Route::Messages),
        ("/api/chat", Route::OllamaChat),
        ("/api/generate", Route::OllamaGenerate),
    ] {
        let handler = move |s: Shared, Extension(known): Of, headers: HeaderMap, body: Body| async move {
            generate::generate(&s, route, known, &headers, body).await
        };
        keyed = keyed.route(path, post(handler));
    }
    for (path, wanted) in [
        ("/v1/embeddings", Wanted::Vectors(Shape::OpenAi)),
        ("/embeddings", Wanted::Vectors(Shape::Native)),
        ("/embedding", Wanted::Vectors(Shape::Native)),
        ("/api/embed", Wanted::Vectors(Shape::Ollama)),
        ("/api/embeddings", Wanted::Vectors(Shape::OllamaOne)),
        ("/v1/rerank", Wanted::Ranks),
        ("/v1/reranking", Wanted::Ranks),
        ("/rerank", Wanted::Ranks),
        ("/reranking", Wanted::Ranks),
    ] {
        let handler = move |s: Shared, Extension(known): Of, headers: HeaderMap, body: Body| async move {
            embed::embed(&s, wanted, known, &headers, body).await
        };
        keyed = keyed.route(path, post(handler));
    }
    for path in ELSEWHERE {
        keyed = keyed.route(path, get(not_here).post(not_here));
    }
    for (path, instead) in ELSEWHERE_OF_OLLAMA {
        let refuse = move || async move { ApiError::not_here(*instead) };
        keyed = keyed.route(path, get(refuse).post(refuse).delete(refuse));
    }
    if state.metrics_public {
        open = open.route("/metrics", get(show_metrics));
    } else {
        keyed = keyed.route("/metrics", get(show_metrics));
    }
    let keyed = keyed.route_layer(from_fn_with_state(state.clone(), guard::key));
    open.merge(keyed)
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(state.clone(), guard::guard))
        .with_state(state.clone())
}

async fn not_found() -> ApiError {
    ApiError::new(404, "not_found_error", "File Not Found")
}

async fn wrong_method() -> ApiError {
    ApiError::new(405, "invalid_request_error", "Method Not Allowed")
}

async fn not_here() -> ApiError {
    ApiError::not_here("rserve does not have this route")
}

/// The process runs.
async fn livez() -> Response<Body> {
    reply::json(200, &json!({"status": "ok"}))
}

/// The model is loaded, and new requests are welcome.
async fn health(state: Shared) -> Answer {
    state.models.check_ready()?;
    if state.is_draining() {
        return Ok(reply::json(503, &json!({"status": "draining"})));
    }
    Ok(reply::json(200, &json!({"status": "ok"})))
}

async fn list(state: Shared, Extension(known): Of) -> Answer {
    Ok(reply::json(200, &listed(&state, &known).await?))
}

async fn one_model(state: Shared, Extension(known): Of, Path(id): Path<String>) -> Answer {
    let model = match state.models.folder() {
        None => models::one(&*lease(&state, &known, None).await?, &id),
        Some(_) => {
            let list = listed(&state, &known).await?;
            list["data"].as_array().and_then(|models| models.iter().find(|model| model["id"] == *id)).cloned()
        }
    };
    let unknown = || ApiError::new(404, "not_found_error", "there is no such model; GET /v1/models lists the names");
    Ok(reply::json(200, &model.ok_or_else(unknown)?))
}

/// The model that a question without a body is about.
async fn lease(state: &State, known: &Known, name: Option<&str>) -> Result<Lease, ApiError> {
    state.models.lease(name, None, &|name| known.may_ask_for(name)).await
}

/// The models that may be asked for.
async fn listed(state: &State, known: &Known) -> Result<Value, ApiError> {
    let Some(folder) = state.models.folder() else {
        return Ok(models::list(&*lease(state, known, None).await?));
    };
    let (catalog, loaded, known) = (folder.catalog.clone(), folder.loaded(), known.clone());
    let work = move || {
        let loaded: Vec<&Service> = loaded.iter().map(|loaded| &*loaded.service).collect();
        Ok(models::list_of_folder(&catalog, &entries(&catalog, &known), &loaded))
    };
    state.work.run(Weight::Light, work).await
}

/// The models of a folder that may be asked for.
fn entries(catalog: &Catalog, known: &Known) -> Vec<Entry> {
    catalog.entries().into_iter().filter(|entry| known.may_ask_for(&entry.name)).collect()
}

async fn tags(state: Shared, Extension(known): Of) -> Answer {
    let tags = match state.models.folder() {
        None => ollama::tags(&*lease(&state, &known, None).await?),
        Some(folder) => {
            let catalog = folder.catalog.clone();
            state
                .work
                .run(Weight::Light, move || Ok(ollama::tags_of_folder(&catalog, &entries(&catalog, &known))))
                .await?
        }
    };
    Ok(reply::json(200, &json!({ "models": tags })))
}

async fn running(state: Shared, Extension(known): Of) -> Answer {
    state.models.check_ready()?;
    let of_folder = state.models.folder().is_some();
    let mut loaded = state.models.loaded();
    loaded.retain(|loaded| known.may_ask_for(loaded.service.names.id()));
    let running: Vec<Value> = loaded.iter().map(|l| ollama::running(l, of_folder)).collect();
    Ok(reply::json(200, &json!({ "models": running })))
}

async fn show(state: Shared, Extension(known): Of, body: Body) -> Answer {
    let request = Asked::read(&state, body).await?;
    let shown = match state.models.folder() {
        None => ollama::shown(&*request.lease(&state, &known).await?, &request.body)?,
        Some(folder) => {
            let may = |name: &str| known.may_ask_for(name);
            let (entry, args) = (folder.find(request.model.as_deref(), &may).await?, folder.args.clone());
            state.work.run(Weight::Light, move || ollama::shown_of_folder(&args, &entry)).await?
        }
    };
    Ok(reply::json(200, &shown))
}

/// The model that a question without a body is about.
type About = Query<HashMap<String, String>>;

async fn show_props(state: Shared, Extension(known): Of, Query(query): About) -> Answer {
    let name = query.get("model").map(String::as_str);
    let props = match state.models.folder().filter(|_| name.is_none()) {
        Some(folder) => {
            let loaded = folder.loaded();
            let loaded: Vec<&Service> = loaded.iter().map(|loaded| &*loaded.service).collect();
            props::of_folder(&folder.args, &loaded, state.slots, state.metrics)
        }
        None => props::props(&*lease(&state, &known, name).await?, state.slots, state.metrics),
    };
    Ok(reply::json(200, &props))
}

async fn show_adapters(state: Shared, Extension(known): Of, Query(query): About) -> Answer {
    let lease = lease(&state, &known, query.get("model").map(String::as_str)).await?;
    Ok(reply::json(200, &props::adapters(&lease)))
}

/// One client would change the texts of all others.
async fn set_adapters() -> ApiError {
    ApiError::not_here("factors of adapters are not changed for everybody: give each request its own in 'lora'")
}

async fn show_tokenizer(state: Shared, Extension(known): Of, Query(query): About) -> Answer {
    let lease = lease(&state, &known, query.get("model").map(String::as_str)).await?;
    Ok(reply::json(200, &tokens::about(&lease)))
}

async fn show_metrics(state: Shared) -> Answer {
    state.models.check_ready()?;
    if !state.metrics {
        return Err(ApiError::not_here("This server does not show metrics: start it with --metrics"));
    }
    let text = metrics::page(&state);
    let mut response = reply::with_type(200, "text/plain; version=0.0.4; charset=utf-8", text);
    if let Ok(started) = HeaderValue::from_str(&state.started.to_string()) {
        response.headers_mut().insert("process-start-time-unix", started);
    }
    Ok(response)
}

/// A route that turns one JSON object into another.
async fn convert(
    state: Shared,
    known: Of,
    body: Body,
    work: fn(&Service, &Value) -> Result<Value, ApiError>,
) -> Response<Body> {
    let answer = async {
        let request = Asked::read(&state, body).await?;
        let lease = request.lease(&state, &known).await?;
        let body = request.body;
        let value = lease.blocking(request.weight, move |service| Ok(reply::json(200, &work(service, &body)?)));
        value.await
    };
    answer.await.unwrap_or_else(ApiError::into_response)
}
