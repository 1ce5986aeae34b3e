//! Which model answers a request: the one that is served, or one of a folder, which is loaded when it is asked for.
//!
//! A request holds a [`Lease`] of its model until its answer is sent; a model is unloaded when nobody holds one, never
//! before. Which models are loaded says nothing about an answer: each has an engine, a cache and a room for keys and
//! values of its own, whose size does not depend on the others.

mod catalog;
mod folder;
mod keeper;
mod lease;
mod loaded;
mod place;

use std::sync::{Arc, OnceLock};

use crate::args::KeepAlive;
use crate::error::ApiError;
use crate::service::Service;
use lease::forbidden;

pub use catalog::{Catalog, Entry, header};
pub use folder::Folder;
pub use lease::{Lease, May};
pub use loaded::Loaded;

/// The models that may be asked for.
pub enum Models {
    /// A single model, from its loading on.
    One(OnceLock<Arc<Service>>),
    /// The models of a folder.
    Folder(Box<Folder>),
}

impl Models {
    /// The model of a request that names `name`, of those that it `may` ask for, and after which it is to stay loaded as
    /// `keep` says. One of a folder is loaded before, in the order of those that wait for it.
    ///
    /// # Errors
    /// There is none of that name; it may not be asked for; it cannot be loaded, or not in time.
    pub async fn lease(&self, name: Option<&str>, keep: Option<KeepAlive>, may: May<'_>) -> Result<Lease, ApiError> {
        match self {
            Models::One(_) => {
                let service = self.one()?;
                let names = &service.names;
                match names.names.iter().any(|name| may(name)) {
                    true => Ok(Lease::of_all(service)),
                    false => Err(forbidden(names.id())),
                }
            }
            Models::Folder(folder) => folder.lease(name, keep, may).await,
        }
    }

    /// The only model, of which requests need not say the name.
    ///
    /// # Errors
    /// It is being loaded; there are several.
    fn one(&self) -> Result<Arc<Service>, ApiError> {
        match self {
            Models::One(service) => service.get().cloned().ok_or_else(|| ApiError::unavailable("Loading model", 5)),
            Models::Folder(_) => Err(ApiError::field("model", "is required: GET /v1/models lists the names")),
        }
    }

    /// Refuses requests until models can be asked for.
    ///
    /// # Errors
    /// The only model is being loaded.
    pub fn check_ready(&self) -> Result<(), ApiError> {
        match self {
            Models::One(_) => self.one().map(drop),
            Models::Folder(_) => Ok(()),
        }
    }

    /// The models that are loaded, the only one or those of a folder in the order of their names.
    pub fn loaded(&self) -> Vec<Loaded> {
        match self {
            Models::One(service) => service.get().cloned().map(Loaded::for_ever).into_iter().collect(),
            Models::Folder(folder) => folder.loaded(),
        }
    }

    /// The folder, where there is one.
    pub fn folder(&self) -> Option<&Folder> {
        match self {
            Models::One(_) => None,
            Models::Folder(folder) => Some(folder),
        }
    }
}
