//! Answers as HTTP carries them.

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use serde_json::Value;

use crate::error::{ApiError, Dialect};

/// An answer of JSON, in one line.
pub fn json(status: u16, value: &Value) -> Response<Body> {
    with_type(status, "application/json; charset=utf-8", line(value))
}

/// A value in one line.
fn line(value: &Value) -> String {
    let mut text = value.to_string();
    text.push('\n');
    text
}

/// An answer of any type.
pub fn with_type(status: u16, kind: &'static str, text: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(text.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let mut response = json(self.status, &self.body(Dialect::OpenAi));
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        // A server that is not ready, and a body that was not read to its end: the connection is of no more use.
        if matches!(self.status, 503 | 413 | 408) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // Whoever knows the path writes it in the form that its clients look for.
        response.extensions_mut().insert(self);
        response
    }
}

/// The same answer, where it is an error in the form of this API.
pub fn in_dialect(mut response: Response<Body>, dialect: Dialect) -> Response<Body> {
    match response.extensions_mut().remove::<ApiError>() {
        Some(error) if dialect != Dialect::OpenAi => {
            *response.body_mut() = line(&error.body(dialect)).into();
            response
        }
        _ => response,
    }
}
