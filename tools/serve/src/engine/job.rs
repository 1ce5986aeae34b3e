//! Messages from the rest of the server to the engine's thread.

use std::time::Instant;

use tokio::sync::mpsc as channel;
use trine::generate::TextMachine;
use trine::{CancelToken, GenerateOptions, Model};

use super::request::{Event, Refused, Request};
use super::slots::SlotCommand;

/// Commands to the engine's thread.
pub(super) enum Command {
    /// A request that was admitted to the queue.
    New(Box<Job>),
    /// Something about a place.
    Slot(SlotCommand),
    /// Something changed; look.
    Wake,
}

/// A request with its text and the way back to its client.
pub(super) struct Job {
    pub request: Request,
    pub text: TextMachine,
    pub events: channel::Sender<Event>,
    pub cancel: CancelToken,
    pub admitted: Instant,
}

/// The text of a request, behind the prompt and what is resumed.
///
/// # Errors
/// Sampler options that no chain can follow; tokens to resume that the grammar does not allow, or with a sampler that
/// cannot take up a text in the middle.
pub(super) fn text(r: &Request, model: &Model) -> Result<TextMachine, Refused> {
    let options = GenerateOptions {
        max_tokens: r.max_tokens,
        sampler: r.sampler.clone(),
        grammar: r.grammar.clone(),
        stop: r.stop.clone(),
        shown: r.shown.clone(),
        ignore_eos: r.ignore_eos,
        shift: r.shift,
        logprobs: r.logprobs,
        odds: r.odds,
        ..GenerateOptions::default()
    };
    let text = TextMachine::new(model, r.prompt.clone(), &options);
    let mut text = text.map_err(|e| Refused::Invalid(e.to_string()))?;
    text.resume(&r.resume).map_err(|e| Refused::Invalid(format!("resume_tokens: {e}")))?;
    if r.prompt_logprobs {
        text.keep_prompt_logprobs();
    }
    Ok(text)
}
