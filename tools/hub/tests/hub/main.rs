//! Fetching from a hub on this machine, whatever goes wrong with it.
#![allow(missing_docs)]

mod breaks;
#[cfg(unix)]
mod caches;
mod kit;
mod refusals;
mod tls;
