//! A GPU in a build without the feature `cuda`: there is none.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::ops::Range;

use super::behind::Behind;
use super::processor::Processor;
use crate::kv::{CacheTypes, PagePool, SequenceRows};
use crate::program::Program;

/// Why a GPU does not run its part of a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// This build has no GPUs.
    #[error("trine was built without GPUs (feature cuda)")]
    LeftOut,
}

/// How several GPUs share the layers that they run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Sharing {
    /// Each runs some of them.
    #[default]
    Layers,
    /// Each has some rows of every matrix.
    Rows,
}

/// A GPU, and how much of a model it runs. No value has this type.
#[derive(Clone, Debug)]
pub struct Offload {
    /// Number of layers, counted from the last one.
    pub layers: usize,
    /// The widths of any-precision weights that it has.
    pub widths: Vec<u8>,
    device: Infallible,
}

/// Sizes of passes for which there is memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Tokens of a pass.
    pub tokens: usize,
    /// Rows whose logits are computed together.
    pub wanted: usize,
    /// Positions of a sequence.
    pub context: usize,
    /// Positions of a page.
    pub page: usize,
    /// Pages.
    pub pages: usize,
    /// Slots for states of sequences.
    pub slots: usize,
}

/// How a program is recorded.
#[derive(Clone, Debug)]
pub struct Recording<'a> {
    /// Limits of a pass.
    pub limits: Limits,
    /// The blocks.
    pub blocks: Range<usize>,
    /// The types of keys and values.
    pub cache: CacheTypes,
    /// Keys and values that are rotated.
    pub turned: [bool; 2],
    /// The names of the matrices that the file calls pruned.
    pub halves: Option<&'a BTreeSet<String>>,
    /// The widths of any-precision weights.
    pub widths: &'a [u8],
}

/// The last blocks of a model on a GPU. No value has this type.
pub struct Offloaded(Infallible);

/// The GPU of an engine, which has none.
#[derive(Clone, Default)]
pub struct OnDevice(());

/// The GPU of an engine while a step uses it. No value has this type.
pub struct Running<'a>(Infallible, PhantomData<&'a ()>);

/// A GPU. No value has this type.
#[derive(Clone, Debug)]
pub struct Gpu(Infallible);

/// Checks that a GPU has a kernel for each operation.
///
/// # Errors
/// There is no GPU.
pub fn check(_: &Processor, _: &Program, _: Recording<'_>) -> Result<(), DeviceError> {
    Err(DeviceError::LeftOut)
}

impl Offload {
    /// The first of the blocks that the GPU runs.
    pub fn first(&self, _: usize) -> usize {
        match self.device {}
    }

    /// Checks that GPUs have a kernel for each operation.
    ///
    /// # Errors
    /// None.
    pub fn check(&self, _: &Processor, _: &Program, _: Recording<'_>) -> Result<(), DeviceError> {
        match self.device {}
    }

    /// Starts the blocks that the GPU runs.
    ///
    /// # Errors
    /// None.
    pub fn start(&self, _: &Processor, _: &Program, _: Recording<'_>) -> Result<Offloaded, DeviceError> {
        match self.device {}
    }
}

impl OnDevice {
    /// Nothing is kept elsewhere.
    pub fn keeps(&self, _: &PagePool) {}

    /// The GPU of an engine: none.
    ///
    /// # Errors
    /// None.
    pub fn running(
        &self,
        _: &PagePool,
        _: [usize; 2],
        _: impl FnOnce(Limits) -> Option<Result<Offloaded, DeviceError>>,
    ) -> Result<Option<Running<'_>>, DeviceError> {
        Ok(None)
    }
}

impl Running<'_> {
    /// The most rows of a pass.
    pub fn rows(&mut self) -> usize {
        match self.0 {}
    }

    /// The most sequences of a pass.
    pub fn sequences(&mut self) -> usize {
        match self.0 {}
    }

    /// Runs the model's last blocks.
    ///
    /// # Errors
    /// None.
    pub fn pass(&mut self, _: &Behind<'_>, _: &mut [SequenceRows<'_>]) -> Result<(), DeviceError> {
        match self.0 {}
    }

    /// Calls a sink with logits.
    ///
    /// # Errors
    /// None.
    pub fn logits(&mut self, _: &[usize], _: &mut dyn FnMut(usize, &mut [f32])) -> Result<(), DeviceError> {
        match self.0 {}
    }

    /// The rows that the last pass has left.
    ///
    /// # Errors
    /// None.
    pub fn stream(&mut self) -> Result<Vec<f32>, DeviceError> {
        match self.0 {}
    }
}
