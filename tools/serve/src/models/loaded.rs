//! The models of a folder that are loaded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use tokio::sync::Notify;

use super::lease::Lease;
use super::place::LoadedModel;
use crate::args::KeepAlive;
use crate::service::Service;

/// A loaded model, for those that only look.
#[derive(Clone)]
pub struct Loaded {
    /// The model.
    pub service: Arc<Service>,
    /// When it is unloaded where nobody asks for it; `None`: when its memory is needed.
    pub expires: Option<SystemTime>,
}

impl Loaded {
    /// A model that is never unloaded.
    pub fn for_ever(service: Arc<Service>) -> Loaded {
        Loaded { service, expires: None }
    }
}

/// The models of a folder that are loaded, by their names.
#[derive(Default)]
pub(super) struct Places {
    places: Mutex<BTreeMap<String, Arc<LoadedModel>>>,
    /// Told whenever a lease ends.
    pub changed: Arc<Notify>,
}

impl Places {
    /// A lease of a model, where it is loaded and does not leave.
    pub fn lease(&self, name: &str, keep: KeepAlive) -> Option<Lease> {
        let place = self.lock().get(name).cloned()?;
        place.take().then(|| Lease::of(place, keep))
    }

    /// All loaded models, by name.
    pub fn all(&self) -> Vec<(String, Arc<LoadedModel>)> {
        self.lock().iter().map(|(name, place)| (name.clone(), place.clone())).collect()
    }

    /// Adds a model that was loaded.
    pub fn add(&self, name: String, place: Arc<LoadedModel>) {
        self.lock().insert(name, place);
    }

    /// Takes a model away, which its leases keep.
    pub fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Bytes that all take.
    pub fn memory(&self) -> u64 {
        self.lock().values().map(|place| place.memory).sum()
    }

    /// True if an engine has ended without being asked to.
    pub fn have_failed(&self) -> bool {
        self.lock().values().any(|place| place.has_failed())
    }

    /// The state for those that only look.
    pub fn shown(&self) -> Vec<Loaded> {
        let now = (Instant::now(), SystemTime::now());
        let shown = |place: &Arc<LoadedModel>| {
            let expires = place.left(now.0).and_then(|left| now.1.checked_add(left));
            Loaded { service: place.service.clone(), expires }
        };
        self.lock().values().map(shown).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<LoadedModel>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
