//! Launches that a device's queue has recorded, started as one.

use std::ffi::c_uint;
use std::ptr;
use std::sync::Arc;

use super::DriverError;
use super::library::Handle;
use super::open::{Open, Range};

/// A record is in the way of no other thread.
const OF_THREAD: c_uint = 1;

/// Launches that are ready to be started as one. The memory that they use stays as long as this does.
#[derive(Debug)]
pub struct Graph {
    home: Arc<Open>,
    ready: Handle,
    /// The kernel that it starts last.
    pub(super) last: String,
    _memory: Vec<Arc<Range>>,
}

// SAFETY: the handle is used with the driver's functions alone, which may be called from any thread once the context was
// made the thread's own; `Open::enter` does that before every call.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `launch` gives to the queue, all of which uses no memory but `memory`.
    ///
    /// # Errors
    /// A driver without graphs, what cannot be recorded, and the errors of `launch`. The queue does not record after it.
    pub(super) fn record(
        home: &Arc<Open>,
        memory: Vec<Arc<Range>>,
        launch: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<Graph, DriverError> {
        let driver = home.enter()?;
        // SAFETY: the queue is there as long as `home`.
        unsafe { driver.begin_capture(home.stream, OF_THREAD)? };
        let launched = launch();
        let mut graph = ptr::null_mut();
        // SAFETY: the queue records, and there is room for one handle.
        let ended = unsafe { driver.end_capture(home.stream, &mut graph) };
        let mut ready = ptr::null_mut();
        let made = launched.and(ended).and_then(|()| {
            // SAFETY: the graph is one that the driver gave, and there is room for one handle.
            unsafe { driver.instantiate(&mut ready, graph, 0) }
        });
        if !graph.is_null() {
            // SAFETY: the graph is one that the driver gave, and nobody has it after this. Its answer has no consequence.
            let _ = unsafe { driver.give_back_graph(graph) };
        }
        made.map(|()| Graph { home: home.clone(), ready, last: String::new(), _memory: memory })
    }

    /// Starts the launches.
    ///
    /// # Errors
    /// Something that was started before has failed.
    pub(super) fn start(&self) -> Result<(), DriverError> {
        // SAFETY: both handles are there as long as `self`, and so is the memory that the launches use.
        unsafe { self.home.enter()?.launch_graph(self.ready, self.home.stream) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(driver) = self.home.enter() {
            // SAFETY: the handle is one that the driver gave, and nobody has it after this. An error means that the device
            // has failed before, which the next call tells.
            let _ = unsafe { driver.give_back_ready(self.ready) };
        }
    }
}
