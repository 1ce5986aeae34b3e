//! Answers as HTTP carries them.

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use serde_json::Value;

use crate::api::ApiError;

/// An answer of JSON, in one line.
pub fn json(status: u16, value: &Value) -> Response<Body> {
    let mut text = value.to_string();
    text.push('\n');
    with_type(status, "application/json; charset=utf-8", text)
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
        let mut response = json(self.status, &self.body());
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        // A server that is not ready, and a body that was not read to its end: the connection is of no more use.
        if matches!(self.status, 503 | 413 | 408) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
