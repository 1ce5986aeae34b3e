//! State that all connections share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::hosts::Hosts;
use super::keys::Keys;
use super::unread::Unread;
use crate::api::ApiError;
use crate::args::{Args, LogFormat};
use crate::service::{Meters, Service};

/// State that all connections share.
pub struct State {
    service: OnceLock<Arc<Service>>,
    draining: AtomicBool,
    /// Who may ask.
    pub keys: Keys,
    /// Under which names.
    pub hosts: Hosts,
    /// Web pages of other origins that may.
    pub origins: Vec<String>,
    /// Bytes of a body.
    pub max_body: usize,
    /// Room for answers that were not read yet.
    pub unread: Unread,
    /// True if different keys share the cache.
    pub shared_cache: bool,
    /// Routes that can be switched off or on.
    pub slots: bool,
    /// See `slots`.
    pub metrics: bool,
    /// True if the metrics need no key.
    pub metrics_public: bool,
    /// True if the page is served.
    pub page: bool,
    /// Format of the log lines, one for each request.
    pub log: LogFormat,
    /// Counts answers while there is no model.
    pub early: Meters,
    /// Names requests that have no id.
    pub requests: AtomicU64,
    /// Seconds since 1970.
    pub started: f64,
    scraped: Mutex<[u64; 4]>,
}

impl State {
    /// A server without its model; `local` when it listens on a loopback address.
    pub fn new(args: &Args, local: bool, keys: Keys) -> State {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        State {
            service: OnceLock::new(),
            draining: AtomicBool::new(false),
            keys,
            hosts: Hosts::new(local, &args.allowed_hosts),
            origins: args.cors_origins.clone(),
            max_body: args.max_body,
            unread: Unread::new(args.max_unread),
            shared_cache: args.shared_prefix_cache,
            slots: !args.no_slots,
            metrics: args.metrics,
            metrics_public: args.metrics_public,
            page: !args.no_ui,
            log: args.log_format,
            early: Meters::default(),
            requests: AtomicU64::new(0),
            started: since.unwrap_or_default().as_secs_f64(),
            scraped: Mutex::default(),
        }
    }

    /// Puts the model in its place.
    pub fn set_service(&self, service: Service) {
        let _ = self.service.set(Arc::new(service));
    }

    /// The model.
    ///
    /// # Errors
    /// It is being loaded.
    pub fn service(&self) -> Result<&Arc<Service>, ApiError> {
        self.service.get().ok_or_else(|| ApiError::unavailable("Loading model", 5))
    }

    /// Counts an answer.
    pub fn count(&self, code: u16) {
        match self.service.get() {
            Some(service) => service.meters.response(code),
            None => self.early.response(code),
        }
    }

    /// From now on the server says that it is not ready.
    pub fn begin_to_drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// True if it is draining.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// How much counters grew since this was last asked.
    pub fn since_last_scrape(&self, now: [u64; 4]) -> [u64; 4] {
        let mut last = self.scraped.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *last, now);
        std::array::from_fn(|i| now[i].saturating_sub(before[i]))
    }
}
