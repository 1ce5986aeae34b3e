//! A key, and the requests of its holder.

use std::sync::Arc;
use std::time::Instant;

use sha2::{Digest, Sha256};
use trine_tools::text;

use super::limits::Limits;
use super::usage::Usage;
use crate::api::ApiError;

/// A key, as a digest: how long a comparison takes tells nothing of it, not even its length.
#[derive(Clone, Debug)]
pub struct Key {
    /// The name of its holder in the log, where it has one.
    pub(super) name: Option<String>,
    pub(super) digest: [u8; 32],
    pub(super) limits: Limits,
    /// Its use so far, which the same key keeps when the file is read again.
    pub(super) usage: Arc<Usage>,
}

impl Key {
    /// A key of which nothing was done yet.
    pub(super) fn new(name: Option<String>, digest: [u8; 32], limits: Limits) -> Key {
        Key { name, digest, limits, usage: Arc::default() }
    }

    /// A key without a name and without limits.
    pub(super) fn plain(key: &str) -> Key {
        Key::new(None, Sha256::digest(key).into(), Limits::default())
    }

    /// The name of its holder, or the beginning of its digest.
    pub fn party(&self) -> String {
        self.name.clone().unwrap_or_else(|| text::hex(&self.digest[..4]))
    }

    /// Its limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// True if its holder may ask for a model of this name.
    pub fn may_ask_for(&self, model: &str) -> bool {
        self.limits.models.is_empty() || self.limits.models.iter().any(|may| may == model)
    }

    /// Counts one more request.
    ///
    /// # Errors
    /// Its holder has as many, or had too many tokens lately.
    pub fn enter(self: &Arc<Key>) -> Result<Turn, ApiError> {
        self.usage.enter(&self.limits, Instant::now())?;
        Ok(Turn { key: self.clone() })
    }
}

/// A request of a key's holder, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    key: Arc<Key>,
}

impl Turn {
    /// Counts tokens.
    pub fn spend(&self, tokens: usize) {
        self.key.usage.spend(&self.key.limits, tokens, Instant::now());
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.key.usage.leave();
    }
}
