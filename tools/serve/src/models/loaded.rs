//! The models of a folder that are loaded, and who uses them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;

use super::lease::Lease;
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

/// A loaded model.
pub(super) struct Place {
    pub service: Arc<Service>,
    /// Bytes of its weights, and most bytes of its keys and values.
    pub memory: u64,
    engine: Mutex<Option<JoinHandle<()>>>,
    usage: Mutex<Usage>,
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct Usage {
    leases: usize,
    /// True if nobody gets a lease any more: its memory is needed.
    leaves: bool,
    last: Instant,
    keep: KeepAlive,
}

impl Place {
    /// A model that was loaded just now and is not in use; `changed` is told whenever a lease ends.
    pub fn new(service: Service, engine: JoinHandle<()>, memory: u64, keep: KeepAlive, changed: Arc<Notify>) -> Place {
        Place {
            service: Arc::new(service),
            memory,
            engine: Mutex::new(Some(engine)),
            usage: Mutex::new(Usage { leases: 0, leaves: false, last: Instant::now(), keep }),
            changed,
        }
    }

    /// Counts one more use; false where the model is about to leave.
    fn take(&self) -> bool {
        let mut usage = self.usage();
        usage.leases += usize::from(!usage.leaves);
        !usage.leaves
    }

    /// Counts a use out again, after which the model stays as `keep` says.
    pub fn give_back(&self, keep: KeepAlive) {
        let mut usage = self.usage();
        usage.leases -= 1;
        (usage.last, usage.keep) = (Instant::now(), keep);
        drop(usage);
        self.changed.notify_one();
    }

    /// When nobody used it any more and how many do, in the order in which models have to leave.
    pub fn rank(&self) -> (bool, Instant) {
        let usage = self.usage();
        (usage.leases > 0, usage.last)
    }

    /// Says that nobody gets a lease any more, or takes that back.
    pub fn set_leaving(&self, leaves: bool) {
        self.usage().leaves = leaves;
    }

    /// True if nobody uses it.
    pub fn is_idle(&self) -> bool {
        self.usage().leases == 0
    }

    /// The moment at which it has been idle for long enough; `None` while it is in use, and where it stays.
    pub fn expires(&self) -> Option<Instant> {
        let usage = self.usage();
        match usage.keep {
            KeepAlive::For(time) if usage.leases == 0 => usage.last.checked_add(time),
            KeepAlive::For(_) | KeepAlive::Always => None,
        }
    }

    /// True if its engine has ended without being asked to.
    fn has_failed(&self) -> bool {
        self.engine().as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Ends its engine and waits for that. Its memory is free when the last reference is dropped.
    pub fn unload(&self) {
        self.service.engine.stop();
        if let Some(engine) = self.engine().take() {
            // A panic of the engine has been told already.
            let _ = engine.join();
        }
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn engine(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The models of a folder that are loaded, by their names.
#[derive(Default)]
pub(super) struct Places {
    places: Mutex<BTreeMap<String, Arc<Place>>>,
    /// Told whenever a lease ends.
    pub changed: Arc<Notify>,
}

impl Places {
    /// A lease of a model, where it is loaded and does not leave.
    pub fn lease(&self, name: &str, keep: KeepAlive) -> Option<Lease> {
        let place = self.lock().get(name).cloned()?;
        place.take().then(|| Lease::of(place, keep))
    }

    /// All of them.
    pub fn all(&self) -> Vec<(String, Arc<Place>)> {
        self.lock().iter().map(|(name, place)| (name.clone(), place.clone())).collect()
    }

    /// Adds a model that was loaded.
    pub fn add(&self, name: String, place: Arc<Place>) {
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

    /// What those see that only look.
    pub fn shown(&self) -> Vec<Loaded> {
        let now = (Instant::now(), SystemTime::now());
        let shown = |place: &Arc<Place>| {
            let usage = place.usage();
            let left = match usage.keep {
                KeepAlive::Always => None,
                // The time begins when nobody uses it any more.
                KeepAlive::For(time) if usage.leases > 0 => Some(time),
                KeepAlive::For(time) => Some(time.saturating_sub(now.0.saturating_duration_since(usage.last))),
            };
            Loaded { service: place.service.clone(), expires: left.and_then(|left: Duration| now.1.checked_add(left)) }
        };
        self.lock().values().map(shown).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Place>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
