//! A server from its first connection to its last.

use std::sync::Arc;
use std::time::Duration;

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
use crate::args::Args;
use crate::engine::Handle;
use crate::service::Service;

/// How long connections get to send what they have after the engine has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// A server that accepts connections.
pub struct Server {
    state: Arc<State>,
    urls: Vec<String>,
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
    /// The address cannot be had, the keys cannot be read.
    pub async fn start(args: &Args, isolate: Arc<dyn Isolate>) -> Result<Server> {
        args.check()?;
        let keys = Keys::gather(args)?;
        let listeners = Listener::bind(args, !keys.is_empty()).await?;
        let urls = listeners.iter().map(Listener::url).collect();
        let local = listeners.iter().all(Listener::is_local);
        let state = Arc::new(State::new(args, local, keys));
        let (stop, stopped) = watch::channel(false);
        let router = router(&state);
        let accepting = tokio::spawn(accept(listeners, router, args.max_connections, args.stall_timeout, stopped));
        let (loaded, loading) = oneshot::channel();
        let (args, at) = (args.clone(), state.clone());
        let thread = std::thread::Builder::new().name("load".into());
        let load = move || {
            let result = Service::load(&args, isolate).map(|(service, engine)| {
                at.set_service(service);
                engine
            });
            // Without a receiver the server has ended already.
            let _ = loaded.send(result);
        };
        thread.spawn(load).context("cannot start a thread")?;
        Ok(Server { state, urls, stop, accepting, loading: Some(loading), engine: None })
    }

    /// The addresses as clients write them, in the order of the options.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Waits until the model is loaded.
    ///
    /// # Errors
    /// It cannot be used.
    pub async fn ready(&mut self) -> Result<()> {
        if let Some(loading) = self.loading.take() {
            let loaded = loading.await.map_err(|_| anyhow!("loading the model failed"))?;
            self.engine = Some(loaded?);
        }
        Ok(())
    }

    /// The engine, once the model is loaded.
    pub fn engine(&self) -> Option<&Handle> {
        self.state.service().ok().map(|s| &s.engine)
    }

    /// The message when the model is loaded.
    pub fn greeting(&self) -> String {
        let Ok(service) = self.state.service() else {
            return self.urls.join(", ");
        };
        let options = service.engine.options();
        format!(
            "{} is ready at {} ({} texts at once, {} tokens each)",
            service.names.id(),
            self.urls.join(", "),
            options.parallel,
            options.n_ctx()
        )
    }

    /// True if the engine has ended without being asked to.
    pub fn has_failed(&self) -> bool {
        self.engine.as_ref().is_some_and(std::thread::JoinHandle::is_finished)
    }

    /// Ends: says at once that it is not ready, takes requests for `delay` more, lets running texts go on for `most`,
    /// then ends them and all connections.
    pub async fn drain(self, delay: Duration, most: Duration) {
        self.state.begin_to_drain();
        tokio::time::sleep(delay).await;
        if let Some(engine) = self.engine().cloned() {
            engine.drain();
            let waiting = engine.clone();
            // It asks again and again, so it has a thread for that.
            let idle = tokio::task::spawn_blocking(move || waiting.wait_until_idle(most));
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
