//! Reading the bodies of requests.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use serde_json::Value;

use super::intake::{Held, Intake};
use crate::api::ApiError;
use crate::service::Weight;

/// The most time that a client gets for its body.
const MOST_TIME: Duration = Duration::from_secs(30);

/// A body.
pub struct Taken {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Room for them.
    _room: Option<Held>,
}

/// The bytes of a body, for which there is room.
///
/// # Errors
/// There are more than `most`; they do not come in time, or not at all; there was no room in time.
pub async fn read(body: Body, most: usize, intake: &Intake) -> Result<Taken, ApiError> {
    let said = body.size_hint();
    if said.lower() > most as u64 {
        return Err(too_large(most));
    }
    let room = intake.coming(said.lower() as usize).await?;
    let read = tokio::time::timeout(MOST_TIME, read_slowly(body, most, intake, room));
    read.await.unwrap_or_else(|_| {
        let message = format!("the body did not come within {} s", MOST_TIME.as_secs());
        Err(ApiError::new(408, "invalid_request_error", message))
    })
}

fn too_large(most: usize) -> ApiError {
    let message = format!("the body has more than {most} bytes, which is what --max-body allows");
    ApiError::new(413, "invalid_request_error", message)
}

async fn read_slowly(mut body: Body, most: usize, intake: &Intake, mut room: Option<Held>) -> Result<Taken, ApiError> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|_| ApiError::invalid("the body ended early"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > most {
            return Err(too_large(most));
        }
        if room.is_none() && Weight::of_body(bytes.len() + data.len()) == Weight::Heavy {
            // Nobody said how long it is.
            room = intake.coming(most).await?;
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Taken { bytes, _room: room })
}

/// The body as JSON.
///
/// # Errors
/// The body is no JSON.
pub fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    if bytes.is_empty() {
        return Err(ApiError::invalid("the body is empty; send a JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|e| {
        // The message without what it quotes: error texts never hold parts of a prompt.
        let (line, column) = (e.line(), e.column());
        let what = match e.classify() {
            serde_json::error::Category::Eof => "it ends early",
            _ => "it is not valid",
        };
        ApiError::invalid(format!("the body is no JSON: {what} at line {line}, column {column}"))
    })
}
