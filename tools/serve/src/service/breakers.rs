//! The breakers of DRY, of which the latest are cached: the whole vocabulary is searched for them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use trine::{DryBreakers, Model};

/// Lists that are kept. A text that stands in most tokens makes a list of some megabytes.
const KEPT: usize = 4;

/// The latest lists of texts with what they are in tokens, the latest first.
#[derive(Debug, Default)]
pub(super) struct Breakers {
    kept: Mutex<VecDeque<(Vec<String>, DryBreakers)>>,
}

impl Breakers {
    /// `texts` in tokens of `model`.
    pub fn of(&self, model: &Model, texts: &[String]) -> DryBreakers {
        if let Some(known) = self.known(texts) {
            return known;
        }
        let breakers = model.dry_breakers(texts);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front((texts.to_vec(), breakers.clone()));
        kept.truncate(KEPT);
        breakers
    }

    /// Returns the breakers of texts that were asked for lately; they become the latest.
    fn known(&self, texts: &[String]) -> Option<DryBreakers> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| known == texts)?;
        let (texts, breakers) = kept.remove(at)?;
        kept.push_front((texts, breakers.clone()));
        Some(breakers)
    }
}
