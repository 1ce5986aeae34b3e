//! A model in use.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::loaded::Place;
use crate::args::KeepAlive;
use crate::service::Service;

/// A model in use: until this is dropped it stays loaded.
pub struct Lease {
    service: Arc<Service>,
    /// Time that the request waited for it.
    pub loading: Duration,
    place: Option<(Arc<Place>, KeepAlive)>,
}

impl Lease {
    /// A lease of a model that stays loaded anyway.
    pub fn of_all(service: Arc<Service>) -> Lease {
        Lease { service, loading: Duration::ZERO, place: None }
    }

    /// A lease of the model at `place`, which has counted it already.
    pub(super) fn of(place: Arc<Place>, keep: KeepAlive) -> Lease {
        Lease { service: place.service.clone(), loading: Duration::ZERO, place: Some((place, keep)) }
    }
}

impl Deref for Lease {
    type Target = Arc<Service>;

    fn deref(&self) -> &Arc<Service> {
        &self.service
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((place, keep)) = self.place.take() {
            place.give_back(keep);
        }
    }
}
