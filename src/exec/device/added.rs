//! Factors of adapters.

use crate::program::{LowRank, Scales};

/// A part of an adapter, as far as its factor is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Added {
    adapter: LowRank,
    rank: usize,
}

impl Added {
    pub fn new(adapter: LowRank, rank: usize) -> Added {
        Added { adapter, rank }
    }

    /// Factor on what it adds by the factors of all adapters; `None` where that is nothing.
    pub fn factor(&self, scales: Option<&Scales>) -> Option<f32> {
        self.adapter.factor(scales, self.rank)
    }

    /// True if the factors of both are always the same.
    pub fn is_like(&self, other: &Added) -> bool {
        let key = |added: &Added| {
            let LowRank { a: _, b: _, adapter, alpha, scale } = added.adapter;
            (adapter, alpha.to_bits(), scale.to_bits(), added.rank)
        };
        key(self) == key(other)
    }
}
