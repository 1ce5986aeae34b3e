//! Grammars that another process compiles first: what they take cannot be known before.

use std::time::Duration;

use llguidance::api::TopLevelGrammar;

use super::error::GrammarError;
use crate::isolate::{Isolate, Job, Limits};

/// The limits of compiling a grammar. Those of real requests take some hundredths of a second.
const LIMITS: Limits = Limits { time: Duration::from_secs(2), memory: 384 << 20 };

/// Fails if `source` cannot be compiled within the limits.
pub(super) fn check(other: &dyn Isolate, source: &TopLevelGrammar) -> Result<(), GrammarError> {
    let request = serde_json::to_vec(source).map_err(|e| GrammarError::Refused(e.to_string()))?;
    let given_up = |why| GrammarError::Refused(format!("compiling it was given up: {why}"));
    let reply = other.run(Job::Grammar, &request, LIMITS).map_err(given_up)?;
    match &*String::from_utf8_lossy(&reply) {
        "" => Ok(()),
        why => Err(GrammarError::Refused(why.to_owned())),
    }
}
