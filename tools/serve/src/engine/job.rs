//! What goes from the rest of the server to the engine's thread.

use std::time::Instant;

use tokio::sync::mpsc as channel;
use trine::generate::Chooser;
use trine::{CancelToken, Model, SamplerKind, SamplerOptions};

use super::request::{Event, Refused, Request};

/// What the engine's thread is told.
pub(super) enum Command {
    /// A request that was admitted to the queue.
    New(Box<Job>),
    /// Something changed; look.
    Wake,
}

/// A request with the way back to its client.
pub(super) struct Job {
    pub request: Request,
    pub chooser: Chooser,
    pub events: channel::Sender<Event>,
    pub cancel: CancelToken,
    pub admitted: Instant,
}

/// What chooses the tokens of a request, after the prompt and what is resumed.
///
/// # Errors
/// Sampler options that no chain can follow; tokens to resume that the grammar does not allow, or with a sampler that
/// cannot take up a text in the middle.
pub(super) fn chooser(r: &Request, model: &Model) -> Result<Chooser, Refused> {
    let mut options = r.sampler.clone();
    if !r.resume.is_empty() && !options.replays() {
        let step = unreplayable(&options);
        return Err(Refused::Invalid(format!(
            "resume_tokens: {step} chooses by probabilities of the earlier tokens, which are not known here; send the prompt alone, and the text begins again with the same tokens"
        )));
    }
    let banned = |bias: &&(u32, f32)| bias.1 == f32::NEG_INFINITY;
    let banned = r.logit_bias.iter().filter(banned).map(|(id, _)| *id);
    options.banned.extend(banned);
    let chooser = Chooser::new(model, options, r.ignore_eos, r.grammar.as_ref());
    let mut chooser = chooser.map_err(|e| Refused::Invalid(e.to_string()))?;
    if r.odds && r.logprobs.is_some() {
        chooser.keep_odds();
    }
    r.prompt.iter().for_each(|&id| chooser.read(id));
    for &id in &r.resume {
        let replayed = chooser.replay(id);
        replayed.map_err(|e| Refused::Invalid(format!("resume_tokens: {e}")))?;
    }
    Ok(chooser)
}

/// The field that [cannot be replayed](SamplerOptions::replays).
fn unreplayable(o: &SamplerOptions) -> &'static str {
    match (o.mirostat, o.samplers.contains(&SamplerKind::AdaptiveP)) {
        (Some(_), _) => "'mirostat'",
        (None, true) => "'adaptive_p'",
        (None, false) => "'xtc_probability'",
    }
}
