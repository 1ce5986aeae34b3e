//! A device's context and queue, and the memory that was taken there.

use std::sync::Arc;

use super::DriverError;
use super::library::{Address, Device, Driver, Handle};

/// The handles that buffers and the context share.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) driver: Driver,
    pub(super) number: Device,
    pub(super) context: Handle,
    /// Null until it was made.
    pub(super) stream: Handle,
}

// SAFETY: the handles are used with the driver's functions alone, which may be called from any thread once the context
// was made the thread's own; `Open::enter` does that before every call.
unsafe impl Send for Open {}
// SAFETY: as above; the driver's functions may be called by several threads at the same time.
unsafe impl Sync for Open {}

impl Open {
    /// The driver, with the context as the one of the calling thread.
    pub(super) fn enter(&self) -> Result<&Driver, DriverError> {
        // SAFETY: the context is held until `self` goes.
        unsafe { self.driver.enter(self.context)? };
        Ok(&self.driver)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // What the driver answers to one who leaves has no consequence.
        if let (Ok(driver), false) = (self.enter(), self.stream.is_null()) {
            // SAFETY: the queue was made by `Context::open`, and nothing uses it after this.
            let _ = unsafe { driver.end_stream(self.stream) };
        }
        // SAFETY: `Context::open` took hold of the device's context, once.
        let _ = unsafe { self.driver.release(self.number) };
    }
}

/// A range of a device's memory, given back when nobody refers to it.
#[derive(Debug)]
pub(super) struct Range {
    home: Arc<Open>,
    address: Address,
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Ok(driver) = self.home.enter() {
            // SAFETY: the address is one that `Memory::new` was given, and nobody has it after this. An error means that
            // the device has failed before, which the next call tells.
            let _ = unsafe { driver.give_back(self.address) };
        }
    }
}

/// A buffer in a device's memory.
#[derive(Debug)]
pub struct Memory {
    range: Arc<Range>,
    bytes: usize,
}

impl Memory {
    /// Memory that the driver has given, and that nobody else gives back.
    pub(super) fn new(home: Arc<Open>, address: Address, bytes: usize) -> Memory {
        Memory { range: Arc::new(Range { home, address }), bytes }
    }

    /// The range, which stays as long as somebody has this.
    pub(super) fn range(&self) -> Arc<Range> {
        self.range.clone()
    }

    /// The address of `count` bytes from `at` on.
    ///
    /// # Errors
    /// The bytes reach past the end of the buffer.
    pub(super) fn part(&self, at: usize, count: usize) -> Result<Address, DriverError> {
        match at.checked_add(count) {
            Some(end) if end <= self.bytes => Ok(self.range.address + at as u64),
            _ => Err(DriverError::Use(format!("{count} bytes from {at} on of a buffer of {}", self.bytes))),
        }
    }
}
