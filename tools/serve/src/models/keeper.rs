//! Loads models in the order of those that wait for them, and unloads what is not used.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use tokio::sync::{mpsc, oneshot};
use trine::isolate::Isolate;

use super::catalog::Entry;
use super::lease::Lease;
use super::loaded::Places;
use super::place::LoadedModel;
use crate::args::{Args, KeepAlive};
use crate::engine::{self, Options};
use crate::error::ApiError;
use crate::service::{Service, Work};

/// A request that waits for a model.
pub(super) struct Want {
    pub entry: Entry,
    pub keep: KeepAlive,
    /// When it is told that there was no room.
    pub until: Instant,
    pub to: oneshot::Sender<Result<Lease, ApiError>>,
}

/// Share of the memory for models that keys and values of one may take where nothing is said.
const ROOM: u64 = 4;
/// Seconds after which those may come again for whom there was no room.
const RETRY: u64 = 5;

/// The only one that loads and unloads.
pub(super) struct Keeper {
    places: Arc<Places>,
    args: Args,
    /// Bytes for all models together.
    budget: u64,
    /// Most bytes of a model's keys and values.
    room: usize,
    isolate: Arc<dyn Isolate>,
    work: Work,
    tell: fn(String),
}

impl Keeper {
    /// A keeper that has loaded nothing yet.
    ///
    /// # Errors
    /// How much memory there is for models is not said and not known.
    pub fn new(
        args: &Args,
        isolate: Arc<dyn Isolate>,
        work: &Work,
        places: &Arc<Places>,
        tell: fn(String),
    ) -> Result<Keeper> {
        // What is free at the start, but for a quarter. What is free later depends on which models are loaded, and
        // must not decide how long texts may be.
        let usual = || engine::available_memory().map(|free| free / 4 * 3);
        let budget =
            args.models_memory.or_else(usual).context("--models-memory: the system does not say how much there is")?;
        Ok(Keeper {
            places: places.clone(),
            args: args.clone(),
            budget: budget as u64,
            room: args.kv_memory.unwrap_or(budget / ROOM as usize),
            isolate,
            work: work.clone(),
            tell,
        })
    }

    /// Serves those that wait, until there can be no more of them.
    pub async fn run(self, mut inbox: mpsc::Receiver<Want>) {
        loop {
            tokio::select! {
                want = inbox.recv() => match want {
                    Some(want) => self.serve(want).await,
                    None => return,
                },
                () = self.places.changed.notified() => {}
                () = self.until_one_expires() => {}
            }
            self.unload_expired().await;
        }
    }

    async fn serve(&self, mut want: Want) {
        // Whoever waited before may have gone.
        if want.to.is_closed() {
            return;
        }
        let answer = match self.places.lease(&want.entry.name, want.keep) {
            Some(lease) => Ok(lease),
            None => self.load(&mut want).await,
        };
        // Nobody takes it: then the lease ends here.
        let _ = want.to.send(answer);
    }

    async fn load(&self, want: &mut Want) -> Result<Lease, ApiError> {
        let name = want.entry.name.clone();
        let needed = want.entry.size.saturating_add(self.room as u64);
        if needed > self.budget {
            let budget = self.budget;
            return Err(ApiError::server(format!(
                "the model '{name}' may take {needed} bytes, more than --models-memory {budget}"
            )));
        }
        self.make_room(needed, want).await?;
        let began = Instant::now();
        let mut args = self.args.clone();
        args.model.model.clone_from(&want.entry.path);
        (args.alias, args.strict_model) = (vec![name.clone()], true);
        let options = Options { kv_default: Some(self.room), ..args.engine() };
        let (isolate, work) = (self.isolate.clone(), self.work.clone());
        let load = tokio::task::spawn_blocking(move || Service::load(&args, options, isolate, work));
        let failed = |why: String| {
            (self.tell)(format!("rserve: cannot load '{name}': {why}"));
            ApiError::server(format!("the model '{name}' cannot be loaded: {why}"))
        };
        let (service, engine) = match load.await {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(e)) => return Err(failed(format!("{e:#}"))),
            Err(_) => return Err(failed("the server made a mistake".to_owned())),
        };
        let memory = want.entry.size + service.engine.options().kv_memory.unwrap_or_default() as u64;
        let place = LoadedModel::new(service, engine, memory, want.keep, self.places.changed.clone());
        self.places.add(name.clone(), Arc::new(place));
        (self.tell)(format!("rserve: loaded '{name}' in {:.1} s", began.elapsed().as_secs_f64()));
        self.places.lease(&name, want.keep).ok_or_else(|| failed("it is gone".to_owned()))
    }

    /// Unloads models until there is room for `needed` bytes: those that nobody uses before those in use, and those not
    /// asked for for the longest time first. One in use gets no further requests, and its texts are waited for.
    async fn make_room(&self, needed: u64, want: &mut Want) -> Result<(), ApiError> {
        while self.places.memory().saturating_add(needed) > self.budget {
            let Some((name, place)) = self.places.all().into_iter().min_by_key(|(_, place)| place.rank()) else {
                return Ok(());
            };
            place.set_leaving(true);
            if !self.is_idle_in_time(&place, want).await {
                place.set_leaving(false);
                return Err(ApiError::unavailable("the models that are loaded are all in use, try again later", RETRY));
            }
            self.unload(name, place).await;
        }
        Ok(())
    }

    /// Waits until nobody uses a model; false where the one that waits has gone before, or its time is over.
    async fn is_idle_in_time(&self, place: &LoadedModel, want: &mut Want) -> bool {
        while !place.is_idle() {
            tokio::select! {
                () = self.places.changed.notified() => {}
                () = want.to.closed() => return false,
                () = tokio::time::sleep_until(want.until.into()) => return false,
            }
        }
        true
    }

    async fn until_one_expires(&self) {
        let first = self.places.all().iter().filter_map(|(_, place)| place.expires()).min();
        match first {
            Some(moment) => tokio::time::sleep_until(moment.into()).await,
            None => std::future::pending().await,
        }
    }

    async fn unload_expired(&self) {
        for (name, place) in self.places.all() {
            if place.expires().is_none_or(|moment| moment > Instant::now()) {
                continue;
            }
            place.set_leaving(true);
            // Somebody may have asked for it in this moment.
            match place.is_idle() {
                true => self.unload(name, place).await,
                false => place.set_leaving(false),
            }
        }
    }

    async fn unload(&self, name: String, place: Arc<LoadedModel>) {
        self.places.remove(&name);
        // Giving memory back takes a while. Nobody is left to be told of a panic.
        let _ = tokio::task::spawn_blocking(move || place.unload()).await;
        (self.tell)(format!("rserve: unloaded '{name}'"));
    }
}
