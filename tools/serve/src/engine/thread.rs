//! The engine's thread.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::{Builder, JoinHandle};

use trine::Model;

use super::counters::Counters;
use super::handle::Command;
use super::options::Options;
use super::queue::Admission;

/// Starts it.
pub(super) fn start(
    model: &Model,
    options: &Options,
    admission: &Arc<Admission>,
    counters: &Arc<Counters>,
    inbox: Receiver<Command>,
) -> anyhow::Result<JoinHandle<()>> {
    let _ = (model, options, admission, counters);
    Ok(Builder::new().name("engine".into()).spawn(move || while inbox.recv().is_ok() {})?)
}
