//! Work that takes time, done while this thread hears Ctrl-C.
//!
//! Python runs handlers of signals in its main thread, and there only between two of its own steps. So the work goes to
//! another thread, without the interpreter's lock, and this one asks again and again whether there was a signal.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use trine::CancelToken;

/// How often signals are looked for.
const TICK: Duration = Duration::from_millis(20);

/// Stack of the thread, as large as that of a main thread.
const STACK: usize = 8 << 20;

/// The end of the work, which the thread says by letting go of its sender.
struct End(Mutex<Receiver<()>>);

impl End {
    /// True if the work has ended within a tick.
    fn has_come(&self, py: Python<'_>) -> bool {
        let ended = py.detach(|| {
            let receiver = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(TICK)
        });
        !matches!(ended, Err(RecvTimeoutError::Timeout))
    }
}

fn named() -> thread::Builder {
    thread::Builder::new().name("trine".to_owned()).stack_size(STACK)
}

fn broken() -> PyErr {
    PyRuntimeError::new_err("trine broke off; this is a mistake in trine, please report it")
}

/// Does `work`, which ends early when `cancel` says so: at Ctrl-C, or at whatever else a handler of signals raises.
///
/// # Errors
/// The exception of a handler, when the work has ended.
pub fn interruptible<T: Send>(py: Python<'_>, cancel: &CancelToken, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    thread::scope(|scope| {
        let (ends, end) = channel();
        let end = End(Mutex::new(end));
        let worker = named().spawn_scoped(scope, move || {
            let _ends: std::sync::mpsc::Sender<()> = ends;
            work()
        })?;
        let mut heard = Ok(());
        while !end.has_come(py) {
            if heard.is_ok() {
                heard = py.check_signals();
                if heard.is_err() {
                    cancel.cancel();
                }
            }
        }
        let done = py.detach(|| worker.join());
        heard?;
        done.map_err(|_| broken())
    })
}

/// Does `work`, which cannot be told to end: at Ctrl-C this thread goes on without it, and its result is dropped.
///
/// # Errors
/// The exception that a handler of signals raised.
pub fn abandonable<T: Send + 'static>(py: Python<'_>, work: impl FnOnce() -> T + Send + 'static) -> PyResult<T> {
    let (ends, end) = channel();
    let end = End(Mutex::new(end));
    let worker = named().spawn(move || {
        let _ends: std::sync::mpsc::Sender<()> = ends;
        work()
    })?;
    while !end.has_come(py) {
        py.check_signals()?;
    }
    py.detach(|| worker.join()).map_err(|_| broken())
}
