//! A GPU in a build without the feature `cuda`: there is none.

use std::convert::Infallible;

/// A GPU, and how much of a model it runs. No value has this type.
#[derive(Clone, Debug)]
pub struct Offload {
    /// Number of layers, counted from the last one.
    pub layers: usize,
    device: Infallible,
}

impl Offload {
    /// The first of the blocks that the GPU runs.
    pub fn first(&self, _: usize) -> usize {
        match self.device {}
    }
}
