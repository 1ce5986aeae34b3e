//! The part of a pass that a GPU runs, in a build without the feature `cuda`: none.

use std::convert::Infallible;
use std::marker::PhantomData;

use crate::kv::{self, PagePool};
use crate::model::Model;

/// The GPU of an engine, which has none.
#[derive(Clone, Default)]
pub(super) struct OnDevice(());

/// The GPU of an engine while a step uses it. No value has this type.
pub(super) struct Running<'a>(Infallible, PhantomData<&'a ()>);

/// A pass behind the blocks that the processor runs.
#[allow(dead_code, reason = "nobody reads it")]
pub(super) struct Behind<'a> {
    pub tokens: &'a [u32],
    pub rows: &'a [f32],
    pub n_ctx: usize,
}

impl OnDevice {
    /// # Errors
    /// None.
    pub fn running(&self, _: &Model, _: &PagePool, _: usize) -> Result<Option<Running<'_>>, String> {
        Ok(None)
    }
}

impl Running<'_> {
    pub fn rows(&mut self) -> usize {
        match self.0 {}
    }

    /// # Errors
    /// None.
    pub fn pass(&mut self, _: &Model, _: &Behind<'_>, _: &[kv::SequenceRows<'_>]) -> Result<(), String> {
        match self.0 {}
    }

    /// # Errors
    /// None.
    pub fn logits(&mut self, _: &Model, _: &[usize], _: &mut dyn FnMut(usize, &[f32])) -> Result<(), String> {
        match self.0 {}
    }

    /// # Errors
    /// None.
    pub fn stream(&mut self) -> Result<Vec<f32>, String> {
        match self.0 {}
    }
}
