//! Places in a device's queue that others wait for.

use std::ffi::c_uint;
use std::ptr;
use std::sync::Arc;

use super::DriverError;
use super::library::Handle;
use super::open::Open;

/// An event without a time.
const PLAIN: c_uint = 2;

/// A place in the queue of a device; nothing where all before it has been waited for.
#[derive(Debug, Default)]
pub struct Mark(Option<Event>);

#[derive(Debug)]
struct Event {
    home: Arc<Open>,
    handle: Handle,
}

// SAFETY: the handle is used with the driver's functions alone, which may be called from any thread; `Open::enter` makes
// the context the thread's own before calls that need it.
unsafe impl Send for Event {}

impl Mark {
    /// Sets the mark behind all that a queue was given. Where the driver has no events, the caller waits for it.
    ///
    /// # Errors
    /// Something that was started has failed.
    pub(super) fn set(&mut self, home: &Arc<Open>) -> Result<(), DriverError> {
        if self.record(home).is_ok() {
            return Ok(());
        }
        self.0 = None;
        // SAFETY: the queue is there as long as `home`.
        unsafe { home.enter()?.wait(home.stream) }
    }

    fn record(&mut self, home: &Arc<Open>) -> Result<(), DriverError> {
        let driver = home.enter()?;
        let event = match &mut self.0 {
            Some(event) if Arc::ptr_eq(&event.home, home) => event,
            slot => {
                let mut handle = ptr::null_mut();
                // SAFETY: there is room for one handle.
                unsafe { driver.event(&mut handle, PLAIN)? };
                slot.insert(Event { home: home.clone(), handle })
            }
        };
        // SAFETY: both handles are there as long as `home` and the event, and of the same context.
        unsafe { driver.record_event(event.handle, home.stream) }
    }

    /// Lets what a queue is given from now on wait for the mark.
    ///
    /// # Errors
    /// Something that was started has failed.
    pub(super) fn before(&self, other: &Open) -> Result<(), DriverError> {
        let Some(Event { home, handle }) = &self.0 else { return Ok(()) };
        // SAFETY: the queue is there as long as `other`, the event as long as `self`; a queue may wait for events of other
        // contexts.
        let done = unsafe { other.enter()?.wait_for(other.stream, *handle, 0) };
        if done.is_ok() {
            return Ok(());
        }
        // SAFETY: the queue is there as long as `home`.
        unsafe { home.enter()?.wait(home.stream) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(driver) = self.home.enter() {
            // SAFETY: the handle is one that the driver gave, and nobody has it after this. Its answer has no consequence.
            let _ = unsafe { driver.end_event(self.handle) };
        }
    }
}
