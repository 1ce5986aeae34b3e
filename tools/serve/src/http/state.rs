//! State that all connections share.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::hosts::Hosts;
use super::intake::Intake;
use super::keys::Keys;
use super::unread::Unread;
use crate::args::{Args, LogFormat};
use crate::models::Models;
use crate::service::Work;

/// State that all connections share.
pub struct State {
    /// The models that may be asked for.
    pub models: Models,
    /// The places for work that takes a processor.
    pub work: Work,
    draining: AtomicBool,
    /// Keys of clients that may send requests.
    pub keys: Keys,
    /// Names of hosts by which the server may be called.
    pub hosts: Hosts,
    /// Origins of web pages that may send requests.
    pub origins: Vec<String>,
    /// Bytes of a body.
    pub max_body: usize,
    /// Room for bodies that are read.
    pub intake: Intake,
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
    /// Names requests that have no id.
    pub requests: AtomicU64,
    /// Seconds since 1970.
    pub started: f64,
    responses: Mutex<BTreeMap<u16, u64>>,
    scraped: Mutex<HashMap<String, [u64; 4]>>,
}

impl State {
    /// A server of these models; `local` when it listens on a loopback address.
    pub fn new(args: &Args, local: bool, keys: Keys, models: Models, work: Work) -> State {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        State {
            models,
            work,
            draining: AtomicBool::new(false),
            keys,
            hosts: Hosts::new(local, &args.allowed_hosts),
            origins: args.cors_origins.clone(),
            max_body: args.max_body,
            intake: Intake::new(args.max_bodies, args.queue_timeout),
            unread: Unread::new(args.max_unread),
            shared_cache: args.shared_prefix_cache,
            slots: !args.no_slots,
            metrics: args.metrics,
            metrics_public: args.metrics_public,
            page: !args.no_ui,
            log: args.log_format,
            requests: AtomicU64::new(0),
            started: since.unwrap_or_default().as_secs_f64(),
            responses: Mutex::default(),
            scraped: Mutex::default(),
        }
    }

    /// Counts an answer.
    pub fn count(&self, code: u16) {
        let mut responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner);
        *responses.entry(code).or_default() += 1;
    }

    /// Answers by status.
    pub fn responses(&self) -> BTreeMap<u16, u64> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on the server says that it is not ready.
    pub fn begin_to_drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// True if it is draining.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// How much counters of a model grew since this was last asked. Those of one that was loaded anew begin again.
    pub fn since_last_scrape(&self, model: &str, now: [u64; 4]) -> [u64; 4] {
        let mut last = self.scraped.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.insert(model.to_owned(), now).unwrap_or_default();
        std::array::from_fn(|i| now[i].saturating_sub(before[i]))
    }
}
