//! The threads that pack, quantize and convert: rayon's, as many as `-t` says.

use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow};

/// Starts them, once. Without `wanted` there are as many as this process has processors; the environment variable that
/// rayon knows has no say.
///
/// # Errors
/// The system starts no more threads.
pub fn start(wanted: Option<usize>) -> Result<()> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    let started = STARTED.get_or_init(|| {
        let threads = count(wanted);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let built = pool.build_global();
        built.map_err(|e| format!("cannot start {threads} threads: {e}"))
    });
    started.clone().map_err(|e| anyhow!(e))
}

/// As many threads as are wanted, but not more than this process has processors.
pub fn count(wanted: Option<usize>) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    wanted.unwrap_or(processors).clamp(1, processors)
}

/// A thread of its own beside those.
///
/// # Errors
/// The system starts no more threads.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<std::thread::JoinHandle<T>> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).context("cannot start a thread")
}
