//! The functions that a device provides so that planned launches can run on it: allocate memory, fill it, start
//! kernels, return results. A driver implements it, and so does the emulator of the tests.
//!
//! A device does one thing after the other, in the order of the calls: a kernel sees what earlier calls have written,
//! and [`Device::download`] waits for all of them. Several devices work at the same time; [`Device::mark`] and
//! [`Device::after`] say what one of them does behind the work of another. Which kernel, grid and arguments come next is
//! said by plans, which know no device.

use std::error::Error;

use crate::plan::Launch;

/// An argument of a kernel.
#[derive(Debug)]
pub enum Argument<'a, B> {
    /// The address of a byte of a buffer, counted from its start.
    Address(&'a B, usize),
    /// 32 bits without or with a sign.
    U32(u32),
    /// A number in single precision.
    F32(f32),
}

// Derived ones would ask the same of buffers, of which arguments have but a reference.
impl<B> Clone for Argument<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Argument<'_, B> {}

/// The start of a kernel: its grid and its arguments.
pub type Start<'a, B> = (&'a Launch, Vec<Argument<'a, B>>);

/// A GPU, or what stands for one.
pub trait Device {
    /// A range of its memory, at least 256 bytes aligned. Dropping it gives the memory back.
    type Buffer: Send + Sync;
    /// Recorded starts of kernels. Their buffers stay where they are while it is there.
    type Graph: Send;
    /// A place in a device's work, for other devices to wait for; nothing where it was not set.
    type Mark: Default + Send;
    /// Why something could not be done, in one line.
    type Error: Error + Send + Sync + 'static;

    /// Number of its multiprocessors; 0 where it does not say.
    fn multiprocessors(&self) -> usize;

    /// Bytes of memory that can still be had.
    ///
    /// # Errors
    /// The device does not say.
    fn free_memory(&self) -> Result<u64, Self::Error>;

    /// Memory that holds `bytes` and that no kernel writes: weights and tables.
    ///
    /// # Errors
    /// There is no memory left.
    fn constant(&mut self, bytes: &[u8]) -> Result<Self::Buffer, Self::Error>;

    /// `bytes` bytes of memory, one or more, with anything in them: kernels or [`Device::upload`] write them before
    /// they are read.
    ///
    /// # Errors
    /// There is no memory left.
    fn allocate(&mut self, bytes: usize) -> Result<Self::Buffer, Self::Error>;

    /// Writes `bytes` into a buffer of [`Device::allocate`] from byte `at` on.
    ///
    /// # Errors
    /// They end behind its end, or the device has failed.
    fn upload(&mut self, to: &mut Self::Buffer, at: usize, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Copies `bytes` bytes of a buffer of [`Device::allocate`] from byte `from` on to those from byte `to` on, which
    /// are others.
    ///
    /// # Errors
    /// They end behind its end or overlap, or the device has failed.
    fn copy(&mut self, within: &mut Self::Buffer, from: usize, to: usize, bytes: usize) -> Result<(), Self::Error>;

    /// Starts a kernel with arguments in its order, each as large as the kernel's own.
    ///
    /// Kernels read and write no byte beyond what the plans of this crate hand them. That is a promise of the plans: a
    /// driver cannot check it, the emulator does so byte by byte.
    ///
    /// # Errors
    /// The device has no such kernel or not what it takes, or something that was started before has failed.
    fn launch(&mut self, launch: &Launch, arguments: &[Argument<'_, Self::Buffer>]) -> Result<(), Self::Error>;

    /// Records starts of kernels, each of which has been started before, so that all of them can be started at once;
    /// `None` where the device cannot. Nothing runs.
    fn record(&mut self, starts: &[Start<'_, Self::Buffer>]) -> Option<Self::Graph>;

    /// Starts the kernels of a graph in their order, as [`Device::launch`] does one by one.
    ///
    /// # Errors
    /// Something that was started before has failed.
    fn replay(&mut self, graph: &Self::Graph) -> Result<(), Self::Error>;

    /// Waits for all that was started, and reads from byte `at` of a buffer on until `bytes` are full.
    ///
    /// # Errors
    /// They end behind the buffer's end, or something that was started has failed.
    fn download(&mut self, from: &Self::Buffer, at: usize, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Sets a mark behind all that was started.
    ///
    /// # Errors
    /// Something that was started has failed.
    fn mark(&mut self, mark: &mut Self::Mark) -> Result<(), Self::Error>;

    /// Lets everything that is started from now on wait for a mark of another device. The caller does not wait.
    ///
    /// # Errors
    /// Something that was started has failed.
    fn after(&mut self, mark: &Self::Mark) -> Result<(), Self::Error>;

    /// Copies `bytes` bytes of a buffer, counted from its byte, to a buffer of [`Device::allocate`] of another device of
    /// the same kind, from a byte on, behind all that this device has started. Marks put the other device's work in order.
    ///
    /// # Errors
    /// They end behind the end of a buffer, or a device has failed.
    fn send(
        &mut self,
        from: (&Self::Buffer, usize),
        bytes: usize,
        other: &mut Self,
        to: (&mut Self::Buffer, usize),
    ) -> Result<(), Self::Error>;

    /// Waits for all that was started.
    ///
    /// # Errors
    /// Something that was started has failed.
    fn wait(&mut self) -> Result<(), Self::Error>;
}
