//! Checks that every request passes before its route, and headers that every answer gets.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::{Request, State as Extract};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Response, Uri};
use axum::middleware::Next;
use axum::response::IntoResponse;

use super::keys::Key;
use super::log::Entry;
use super::reply;
use super::state::State;
use crate::error::{ApiError, Dialect};

/// On every answer: nothing from other hosts is loaded, nothing is framed, types are what they say.
const HEADERS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Client of a request, for the routes.
#[derive(Clone)]
pub struct Known {
    /// The name of the key's holder; empty without keys.
    pub tenant: String,
    /// The key.
    pub key: Option<Arc<Key>>,
    /// The request in the log.
    pub entry: Arc<Entry>,
}

impl Known {
    /// True if a model of this name may be asked for.
    pub fn may_ask_for(&self, model: &str) -> bool {
        self.key.as_ref().is_none_or(|key| key.may_ask_for(model))
    }

    /// Counts a request for texts or vectors until its answer is sent.
    ///
    /// # Errors
    /// The key's holder has as many as may be, or had too many tokens lately.
    pub fn enter(&self) -> Result<(), ApiError> {
        if let Some(key) = &self.key {
            self.entry.begin(key.enter()?);
        }
        Ok(())
    }
}

/// Looks at a request before its route is known, so that no spelling of a path goes around it.
pub async fn guard(Extract(state): Extract<Arc<State>>, mut request: Request, next: Next) -> Response<Body> {
    let key = key_of(&state, request.headers());
    let tenant = key.as_ref().map_or(String::new(), |key| key.party());
    let id = request_id(&state, request.headers());
    let entry = Arc::new(Entry::new(
        state.log,
        id,
        request.method().to_string(),
        request.uri().path().chars().take(200).collect(),
        tenant.clone(),
    ));
    let origin = request.headers().get(header::ORIGIN).cloned();
    let dialect = Dialect::of_path(request.uri().path());
    let response = match check(&state, &request) {
        Err(refused) => refused.into_response(),
        Ok(()) if request.method() == Method::OPTIONS && allowed(&state, origin.as_ref()) => {
            preflight(request.headers())
        }
        Ok(()) => {
            request.extensions_mut().insert(Known { tenant, key, entry: entry.clone() });
            let response = next.run(request).await;
            state.unread.hold(response).await
        }
    };
    let mut response = reply::in_dialect(response, dialect);
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    if let Ok(id) = HeaderValue::from_str(&entry.id) {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(origin) = origin.filter(|o| allowed(&state, Some(o))) {
        // Never with credentials: keys travel in a header that a page must set itself.
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("x-request-id, retry-after"));
        headers.insert("cross-origin-resource-policy", HeaderValue::from_static("cross-origin"));
    }
    let code = response.status().as_u16();
    entry.answered(code);
    state.count(code);
    response
}

/// Lets a request pass that shows a key, where there are keys.
pub async fn key(Extract(state): Extract<Arc<State>>, request: Request, next: Next) -> Response<Body> {
    let shown = request.extensions().get::<Known>().is_some_and(|known| known.key.is_some());
    if !state.keys.is_empty() && !shown {
        return ApiError::new(401, "authentication_error", "Invalid API Key").into_response();
    }
    next.run(request).await
}

fn key_of(state: &State, headers: &HeaderMap) -> Option<Arc<Key>> {
    let text = |name: HeaderName| headers.get(name).and_then(|v| v.to_str().ok());
    let bearer = text(header::AUTHORIZATION).and_then(|v| {
        let (scheme, key) = v.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    let key = bearer.or_else(|| text(HeaderName::from_static("x-api-key")))?;
    state.keys.find(key)
}

fn request_id(state: &State, headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|v| v.to_str().ok());
    let plain = |id: &&str| id.len() <= 128 && !id.is_empty() && id.bytes().all(|b| b.is_ascii_graphic());
    match given.filter(plain) {
        Some(id) => id.to_owned(),
        None => format!("r{}", state.requests.fetch_add(1, Ordering::Relaxed)),
    }
}

fn check(state: &State, request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    let host = host(headers)?;
    // A target may be a whole address; then both must fit.
    let authority = request.uri().authority().map(|a| a.as_str());
    for host in [Some(host), authority].into_iter().flatten() {
        match state.hosts.admit(host) {
            Some(true) => {}
            Some(false) => {
                return Err(ApiError::new(
                    403,
                    "permission_error",
                    "this server does not answer to that host; see --allowed-hosts",
                ));
            }
            None => return Err(ApiError::invalid("the Host header is no host")),
        }
    }
    if let Some(coding) = headers.get(header::CONTENT_ENCODING)
        && !coding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        let message = "send the body as it is, without Content-Encoding";
        return Err(ApiError::new(415, "invalid_request_error", message));
    }
    let safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !safe && crosses(state, headers, host) {
        let message = "a page of another origin may not do that; see --cors-origins";
        return Err(ApiError::new(403, "permission_error", message));
    }
    Ok(())
}

fn host(headers: &HeaderMap) -> Result<&str, ApiError> {
    let mut all = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (all.next(), all.next()) else {
        return Err(ApiError::invalid("give one Host header"));
    };
    host.to_str().map_err(|_| ApiError::invalid("the Host header is no host"))
}

/// True if a browser says that a page of another origin sent this.
fn crosses(state: &State, headers: &HeaderMap, host: &str) -> bool {
    let origin = headers.get(header::ORIGIN);
    if allowed(state, origin) {
        return false;
    }
    if let Some(site) = headers.get("sec-fetch-site") {
        return !matches!(site.as_bytes(), b"same-origin" | b"none");
    }
    // Browsers without that header, and programs, which send no origin.
    let Some(origin) = origin else {
        return false;
    };
    let of = origin.to_str().ok().and_then(|o| o.split_once("://"));
    of.is_none_or(|(_, from)| !from.eq_ignore_ascii_case(host))
}

/// True if `origin` is on the list of the operator.
fn allowed(state: &State, origin: Option<&HeaderValue>) -> bool {
    let Some(origin) = origin else {
        return false;
    };
    let listed = |o: &String| match o.as_str() {
        "*" => true,
        "localhost" => is_local(origin),
        listed => listed.as_bytes() == origin.as_bytes(),
    };
    state.origins.iter().any(listed)
}

/// True if a page was served by this machine, on whatever port.
fn is_local(origin: &HeaderValue) -> bool {
    let uri = origin.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
    uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"))
    })
}

/// Headers that a page of a listed origin may send, and beginnings of those that the clients of OpenAI and Anthropic
/// add.
const SENT: &[&str] = &[
    "authorization",
    "content-type",
    "x-api-key",
    "x-request-id",
    "x-request-timeout-ms",
    "x-session-id",
    "idempotency-key",
];
const SENT_BY_CLIENTS: &[&str] = &["x-stainless-", "anthropic-", "openai-"];

/// Answers a browser that asks whether a page may send these headers.
fn preflight(asked: &HeaderMap) -> Response<Body> {
    let mut response = reply::with_type(200, "text/plain", Body::empty());
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    let asked = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let asked = asked.split(',').map(|name| name.trim().to_ascii_lowercase());
    let further = asked.filter(|name| SENT_BY_CLIENTS.iter().any(|start| name.starts_with(start)));
    let names = SENT.iter().map(|name| (*name).to_owned()).chain(further).collect::<Vec<_>>().join(", ");
    if let Ok(names) = HeaderValue::from_str(&names) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names);
    }
    response
}
