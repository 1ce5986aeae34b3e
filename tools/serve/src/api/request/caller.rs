//! Who asks, apart from what the body says.

use std::time::Duration;

use super::fields::Fields;
use crate::error::ApiError;
use crate::service::{LONGEST_NAME, Service};

/// Longest salt in bytes.
const SALT: usize = 256;

/// Client of a request, as far as headers and the key tell.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Stands before the salt of the cache, so that the holders of different keys share nothing.
    pub tenant: String,
    /// The holder of the key, who takes turns with the others.
    pub party: String,
    /// Priority: requests with a higher one get their places first.
    pub priority: i32,
    /// The most time it gives the request.
    pub deadline: Option<Duration>,
}

impl Caller {
    /// Deadline of its request: the shorter of its own and the server's.
    pub fn deadline_within(&self, service: &Service) -> Option<Duration> {
        let both = [self.deadline, service.limits.request_timeout];
        both.into_iter().flatten().min()
    }
}

/// Which prompts a request shares keys and values with: those of the same caller with the same `cache_salt`; `None`:
/// none, with `"cache_prompt": false`.
///
/// # Errors
/// Fields of a wrong type.
pub fn cache(f: &Fields<'_>, caller: &Caller) -> Result<Option<String>, ApiError> {
    let salt = f.short_text("cache_salt", SALT)?.unwrap_or_default();
    let shared = f.flag("cache_prompt")?.unwrap_or(true);
    Ok(shared.then(|| format!("{}\0{salt}", caller.tenant)))
}

/// The name of the model in the answer, and the bits of an any-precision model that are asked for, where any are: the
/// fields `model` and `bits`.
///
/// # Errors
/// Fields of a wrong type; another model's name, where that matters; two that contradict one another.
pub fn named(f: &Fields<'_>, service: &Service) -> Result<(String, Option<u8>), ApiError> {
    let bits = f.integer("bits", 1..=8)?.map(|b| b as u8);
    service.names.resolve(f.short_text("model", LONGEST_NAME)?, bits)
}
