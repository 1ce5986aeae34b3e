//! Files that are part of the program: the three of the page, and the description of the routes.

use std::borrow::Cow;
use std::sync::LazyLock;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use axum::http::{Response, StatusCode};
use sha2::{Digest, Sha256};
use trine_tools::text;

use super::reply::with_type;
use crate::api::openapi;

/// A file that is part of the program.
pub struct File {
    kind: &'static str,
    text: Cow<'static, str>,
    etag: String,
}

impl File {
    fn new(kind: &'static str, text: impl Into<Cow<'static, str>>) -> File {
        let text = text.into();
        let hash = text::hex(&Sha256::digest(text.as_bytes()));
        File { kind, text, etag: format!("\"{}\"", &hash[..16]) }
    }

    /// The file, unless the browser has it.
    pub fn respond(&self, headers: &HeaderMap) -> Response<Body> {
        let known = headers.get(IF_NONE_MATCH).is_some_and(|v| v.as_bytes() == self.etag.as_bytes());
        let mut response = match known {
            true => with_type(StatusCode::NOT_MODIFIED.as_u16(), self.kind, Body::empty()),
            false => with_type(StatusCode::OK.as_u16(), self.kind, self.text.clone()),
        };
        let headers = response.headers_mut();
        if let Ok(etag) = HeaderValue::from_str(&self.etag) {
            headers.insert(ETAG, etag);
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }
}

/// `/`
pub static INDEX: LazyLock<File> =
    LazyLock::new(|| File::new("text/html; charset=utf-8", include_str!("../../assets/index.html")));
/// `/style.css`
pub static STYLE: LazyLock<File> =
    LazyLock::new(|| File::new("text/css; charset=utf-8", include_str!("../../assets/style.css")));
/// `/app.js`
pub static SCRIPT: LazyLock<File> =
    LazyLock::new(|| File::new("text/javascript; charset=utf-8", include_str!("../../assets/app.js")));
/// `/openapi.json`
pub static OPENAPI: LazyLock<File> =
    LazyLock::new(|| File::new("application/json; charset=utf-8", openapi::document()));
