//! Thoughts of a model in a request: whether they are kept apart from the answer.

use trine::chat::{ThoughtMarks, Thoughts};

use super::fields::Fields;
use crate::error::ApiError;
use crate::service::Service;

/// Tokens at the end of a prompt that may hold the first mark.
const LAST: usize = 12;

/// The reader that a request with this prompt asks for: where the template of the model knows thoughts, they are taken out
/// unless `reasoning_format`, of the request or else of the server, is "none".
///
/// # Errors
/// There is no such format.
pub fn asked(f: &Fields<'_>, prompt: &[u32], service: &Service) -> Result<Thoughts, ApiError> {
    const NAME: &str = "reasoning_format";
    match f.text(NAME)? {
        Some("none") => Ok(Thoughts::default()),
        None if !service.limits.thoughts => Ok(Thoughts::default()),
        None | Some("auto" | "deepseek") => Ok(marks(service).map_or_else(Thoughts::default, |marks| {
            let last = &prompt[prompt.len().saturating_sub(LAST)..];
            Thoughts::after(marks, &service.text_of(last))
        })),
        Some(_) => Err(ApiError::field(NAME, "must be \"none\", \"auto\" or \"deepseek\"")),
    }
}

/// The marks that the template of the model tells, if it knows thoughts.
pub fn marks(service: &Service) -> Option<&'static ThoughtMarks> {
    ThoughtMarks::of(service.template().ok()?.source())
}

/// The control tokens that marks of thoughts are made of.
pub fn tokens(service: &Service) -> Vec<u32> {
    let Some(marks) = marks(service) else {
        return Vec::new();
    };
    service.controls().iter().filter(|(_, name)| marks.write(name)).map(|(id, _)| *id).collect()
}
