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
/// The most time in which nothing of a body comes that others may wait for.
const MOST_SILENCE: Duration = Duration::from_secs(5);

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
    let said = said.exact().map_or(most, |bytes| bytes as usize);
    let read = tokio::time::timeout(MOST_TIME, read_slowly(body, most, said, intake));
    read.await.unwrap_or_else(|_| Err(late(format!("the body did not come within {} s", MOST_TIME.as_secs()))))
}

fn late(message: String) -> ApiError {
    ApiError::new(408, "invalid_request_error", message)
}

fn too_large(most: usize) -> ApiError {
    let message = format!("the body has more than {most} bytes, which is what --max-body allows");
    ApiError::new(413, "invalid_request_error", message)
}

/// Reads a body that is `said` bytes long, or as many as it may have if nobody said that. Its room is taken when as much of
/// it is here as others do not wait for: who announces much and sends nothing has none.
async fn read_slowly(mut body: Body, most: usize, said: usize, intake: &Intake) -> Result<Taken, ApiError> {
    let (mut bytes, mut room) = (Vec::new(), None);
    loop {
        let patience = if room.is_some() { MOST_SILENCE } else { MOST_TIME };
        let frame = tokio::time::timeout(patience, poll_fn(|cx| Pin::new(&mut body).poll_frame(cx))).await;
        let frame = frame.map_err(|_| late(format!("nothing of the body came for {} s", patience.as_secs())))?;
        let Some(frame) = frame else {
            return Ok(Taken { bytes, _room: room });
        };
        let frame = frame.map_err(|_| ApiError::invalid("the body ended early"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let here = bytes.len() + data.len();
        if here > most {
            return Err(too_large(most));
        }
        if room.is_none() && Weight::of_body(here) == Weight::Heavy {
            room = Some(intake.coming(said).await?);
        }
        bytes.extend_from_slice(&data);
    }
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
