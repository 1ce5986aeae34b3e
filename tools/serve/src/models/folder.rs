//! A folder of models, which are loaded when they are asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use trine::isolate::Isolate;

use super::catalog::{Catalog, Entry};
use super::keeper::{Keeper, Want};
use super::lease::{Lease, May, forbidden};
use super::loaded::{Loaded, Places};
use crate::args::{Args, KeepAlive};
use crate::error::ApiError;
use crate::service::{Weight, Work};

/// Seconds after which those may come again for whom there was no model in time.
const RETRY: u64 = 5;

/// A folder of models.
pub struct Folder {
    /// The files in it.
    pub catalog: Arc<Catalog>,
    /// The options that all of its models follow.
    pub args: Args,
    places: Arc<Places>,
    queue: mpsc::Sender<Want>,
    closed: AtomicBool,
    work: Work,
}

impl Folder {
    /// The models of `catalog`, loaded as `args` say by a task of its own, which says with `tell` what it does.
    ///
    /// # Errors
    /// How much memory there is for models is not said and not known.
    pub fn start(
        catalog: Catalog,
        args: &Args,
        isolate: Arc<dyn Isolate>,
        work: &Work,
        tell: fn(String),
    ) -> Result<Folder> {
        let places = Arc::<Places>::default();
        let (queue, inbox) = mpsc::channel(args.engine().max_queue);
        let keeper = Keeper::new(args, isolate, work, &places, tell)?;
        tokio::spawn(keeper.run(inbox));
        Ok(Folder {
            catalog: Arc::new(catalog),
            args: args.clone(),
            places,
            queue,
            closed: AtomicBool::new(false),
            work: work.clone(),
        })
    }

    /// See [`Models::lease`](super::Models::lease).
    ///
    /// # Errors
    /// As there.
    pub async fn lease(&self, name: Option<&str>, keep: Option<KeepAlive>, may: May<'_>) -> Result<Lease, ApiError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(ApiError::unavailable("the server is shutting down", 1));
        }
        let entry = self.find(name, may).await?;
        let keep = keep.unwrap_or(self.args.model_idle);
        if let Some(lease) = self.places.lease(&entry.name, keep) {
            return Ok(lease);
        }
        let (since, wait) = (Instant::now(), self.args.queue_timeout);
        let (to, answer) = oneshot::channel();
        let late = || {
            let seconds = wait.as_secs();
            ApiError::unavailable(format!("the model was not loaded within {seconds} s, try again later"), RETRY)
        };
        let until = since.checked_add(wait).ok_or_else(late)?;
        self.queue.try_send(Want { entry, keep, until, to }).map_err(|e| match e {
            TrySendError::Full(_) => ApiError::busy("too many requests wait for models to be loaded", RETRY),
            TrySendError::Closed(_) => ApiError::unavailable("the server is shutting down", 1),
        })?;
        let answer = tokio::time::timeout(wait, answer).await.map_err(|_| late())?;
        let mut lease = answer.map_err(|_| ApiError::unavailable("the server is shutting down", 1))??;
        lease.loading = since.elapsed();
        Ok(lease)
    }

    /// The model that `name` means.
    ///
    /// # Errors
    /// There is none; it may not be asked for.
    pub async fn find(&self, name: Option<&str>, may: May<'_>) -> Result<Entry, ApiError> {
        let (catalog, name) = (self.catalog.clone(), name.map(str::to_owned));
        let entry = self.work.run(Weight::Light, move || catalog.find(name.as_deref())).await?;
        if may(&entry.name) { Ok(entry) } else { Err(forbidden(&entry.name)) }
    }

    /// Unloads a model as soon as nobody uses it; true if it is loaded.
    pub fn unload(&self, name: &str) -> bool {
        let lease = self.places.lease(name, KeepAlive::For(Duration::ZERO));
        lease.is_some()
    }

    /// Gives no further leases.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// The models that are loaded.
    pub fn loaded(&self) -> Vec<Loaded> {
        self.places.shown()
    }

    /// True if an engine has ended without being asked to.
    pub fn has_failed(&self) -> bool {
        self.places.have_failed()
    }
}
