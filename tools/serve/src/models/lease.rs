//! A model in use.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::place::LoadedModel;
use crate::args::KeepAlive;
use crate::error::ApiError;
use crate::service::Service;

/// Says for a model's name whether it may be asked for.
pub type May<'a> = &'a (dyn Fn(&str) -> bool + Send + Sync);

/// The error of a model that may not be asked for.
pub(super) fn forbidden(name: &str) -> ApiError {
    ApiError::new(403, "permission_error", format!("this key is not for the model '{name}'"))
}

/// A model in use: until this is dropped it stays loaded.
pub struct Lease {
    service: Arc<Service>,
    /// Time that the request waited for it.
    pub loading: Duration,
    place: Option<(Arc<LoadedModel>, KeepAlive)>,
}

impl Lease {
    /// A lease of a model that stays loaded anyway.
    pub fn of_all(service: Arc<Service>) -> Lease {
        Lease { service, loading: Duration::ZERO, place: None }
    }

    /// A lease of the model at `place`, which has counted it already.
    pub(super) fn of(place: Arc<LoadedModel>, keep: KeepAlive) -> Lease {
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
