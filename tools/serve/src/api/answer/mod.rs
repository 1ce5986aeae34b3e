//! The shape of an answer, by the route that was asked.

pub mod anthropic;
pub mod chat;
pub mod items;
pub mod native;
pub mod ollama;
pub mod probabilities;
pub mod reply;
pub mod responses;
pub mod shapes;
pub mod text;

use serde_json::Value;

use super::Route;
use crate::engine::Event;
use crate::error::ApiError;
use reply::Reply;

/// Takes the next event of a choice, and returns what a stream sends for it.
///
/// # Errors
/// The text ended by a fault, or because the server ends.
pub fn take(reply: &mut Reply, index: usize, event: Event) -> Result<Vec<Value>, ApiError> {
    let part = reply.take(index, event)?;
    let Some(part) = part.filter(|_| reply.asked.stream) else {
        return Ok(Vec::new());
    };
    Ok(match reply.asked.route {
        Route::Native | Route::Infill => native::parts(reply, index, part),
        Route::Text => text::parts(reply, index, part),
        Route::Chat => chat::parts(reply, index, part),
        Route::Responses => responses::parts(reply, part),
        Route::Messages => anthropic::parts(reply, part),
        Route::OllamaChat | Route::OllamaGenerate => ollama::parts(reply, part),
    })
}

/// The whole answer, once all texts have ended.
pub fn whole(reply: &Reply) -> Value {
    match reply.asked.route {
        Route::Native | Route::Infill => native::whole(reply),
        Route::Text => text::whole(reply),
        Route::Chat => chat::whole(reply),
        Route::Responses => responses::whole(reply),
        Route::Messages => anthropic::whole(reply),
        Route::OllamaChat | Route::OllamaGenerate => ollama::whole(reply),
    }
}

/// The events of a stream after all texts have ended.
pub fn tail(reply: &Reply) -> Vec<Value> {
    match reply.asked.route {
        Route::Text => text::tail(reply),
        Route::Chat => chat::tail(reply),
        Route::Native
        | Route::Infill
        | Route::Responses
        | Route::Messages
        | Route::OllamaChat
        | Route::OllamaGenerate => Vec::new(),
    }
}
