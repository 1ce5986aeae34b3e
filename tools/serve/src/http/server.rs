//! A server from its first connection to its last.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use trine::isolate::Isolate;

use super::accept::accept;
use super::keys::Keys;
use super::lines;
use super::listen::Listener;
use super::routes::router;
use super::state::State;
use super::tls::{Files, Tls};
use crate::args::{Args, LogFormat};
use crate::engine::Handle;
use crate::models::{Catalog, Folder, Loaded, Models};
use crate::service::{Service, Work};

/// How long connections get to send what they have after the engine has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// A server that accepts connections.
pub struct Server {
    state: Arc<State>,
    urls: Vec<String>,
    tls: Option<Arc<Tls>>,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
    loading: Option<oneshot::Receiver<Result<std::thread::JoinHandle<()>>>>,
    engine: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Begins to listen, and to load the model: requests are told to wait meanwhile. `isolate` renders chat templates,
    /// which come with models and which nobody has to trust.
    ///
    /// # Errors
    /// The address cannot be had; the keys, or the certificate, cannot be read.
    pub async fn start(args: &Args, isolate: Arc<dyn Isolate>) -> Result<Server> {
        args.check()?;
        let keys = Keys::gather(args)?;
        let tls = Files::of(args)?.map(Tls::new).transpose()?.map(Arc::new);
        let listeners = Listener::bind(args, !keys.is_empty(), tls.as_ref()).await?;
        let urls = listeners.iter().map(Listener::url).collect();
        let local = listeners.iter().all(Listener::is_local);
        let work = Work::default();
        let models = match &args.models {
            Some(folder) => {
                let catalog = Catalog::open(folder)?;
                let tell = match args.log_format {
                    LogFormat::None => drop,
                    LogFormat::Text | LogFormat::Json => lines::write,
                };
                Models::Folder(Box::new(Folder::start(catalog, args, isolate.clone(), &work, tell)?))
            }
            None => Models::One(OnceLock::new()),
        };
        let state = Arc::new(State::new(args, local, keys, models, work.clone()));
        let (stop, stopped) = watch::channel(false);
        let router = router(&state);
        let accepting = tokio::spawn(accept(listeners, router, args.max_connections, args.stall_timeout, stopped));
        let mut server = Server { state: state.clone(), urls, tls, stop, accepting, loading: None, engine: None };
        if args.models.is_some() {
            return Ok(server);
        }
        let (loaded, loading) = oneshot::channel();
        let (args, at) = (args.clone(), state.clone());
        let thread = std::thread::Builder::new().name("load".into());
        let load = move || {
            let result = Service::load(&args, args.engine(), isolate, work).map(|(service, engine)| {
                if let Models::One(place) = &at.models {
                    let _ = place.set(Arc::new(service));
                }
                engine
            });
            // Without a receiver the server has ended already.
            let _ = loaded.send(result);
        };
        thread.spawn(load).context("cannot start a thread")?;
        server.loading = Some(loading);
        Ok(server)
    }

    /// The addresses as clients write them, in the order of the options.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Waits until the model is loaded.
    ///
    /// # Errors
    /// The model cannot be used.
    pub async fn ready(&mut self) -> Result<()> {
        if let Some(loading) = self.loading.take() {
            let loaded = loading.await.map_err(|_| anyhow!("loading the model failed"))?;
            self.engine = Some(loaded?);
        }
        Ok(())
    }

    /// The engine of the model, or of the first one that is loaded.
    pub fn engine(&self) -> Option<Handle> {
        self.state.models.loaded().first().map(|loaded| loaded.service.engine.clone())
    }

    /// The message when the model is loaded.
    pub fn greeting(&self) -> String {
        let urls = self.urls.join(", ");
        if let Some(folder) = self.state.models.folder() {
            let n = folder.catalog.entries().len();
            return format!("'{}' is ready at {urls} ({n} models)", folder.catalog.folder().display());
        }
        let Some(Loaded { service, .. }) = self.state.models.loaded().pop() else {
            return urls;
        };
        let options = service.engine.options();
        format!(
            "{} is ready at {urls} ({} texts at once, {} tokens each)",
            service.names.id(),
            options.parallel,
            options.n_ctx()
        )
    }

    /// Reads the file of keys again, and returns what is to be said about it.
    pub fn read_keys_again(&self) -> String {
        match self.state.keys.read_again() {
            Ok(n) => format!("rserve: the keys were read again, {n} are known"),
            Err(e) => format!("rserve: error: the keys stay as they were: {e:#}"),
        }
    }

    /// Reads the certificate again, and returns what is to be said about it.
    pub fn read_certificate_again(&self) -> Option<String> {
        Some(match self.tls.as_ref()?.read_again() {
            Ok(()) => "rserve: the certificate was read again".to_owned(),
            Err(e) => format!("rserve: error: the certificate stays as it was: {e:#}"),
        })
    }

    /// True if an engine has ended without being asked to.
    pub fn has_failed(&self) -> bool {
        let failed = self.engine.as_ref().is_some_and(std::thread::JoinHandle::is_finished);
        failed || self.state.models.folder().is_some_and(Folder::has_failed)
    }

    /// Ends: says at once that it is not ready, takes requests for `delay` more, lets running texts go on for `most`,
    /// then ends them and all connections.
    pub async fn drain(self, delay: Duration, most: Duration) {
        self.state.begin_to_drain();
        tokio::time::sleep(delay).await;
        if let Some(folder) = self.state.models.folder() {
            folder.close();
        }
        let engines: Vec<Handle> = self.state.models.loaded().into_iter().map(|l| l.service.engine.clone()).collect();
        engines.iter().for_each(Handle::drain);
        let end = Instant::now() + most;
        for engine in engines {
            let waiting = engine.clone();
            let left = end.saturating_duration_since(Instant::now());
            // It asks again and again, so it has a thread for that.
            let idle = tokio::task::spawn_blocking(move || waiting.wait_until_idle(left));
            let _ = idle.await;
            engine.stop();
        }
        let _ = self.stop.send(true);
        let _ = tokio::time::timeout(LAST_WORDS, self.accepting).await;
        let _ = tokio::task::spawn_blocking(lines::finish).await;
        if let Some(engine) = self.engine {
            let _ = tokio::task::spawn_blocking(move || engine.join()).await;
        }
    }
}
