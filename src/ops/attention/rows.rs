//! The inputs of an attention, and the memory that its tasks work in.

use std::ops::Range;

use super::scores::{Reach, ScoreRules, Window};
use crate::kernels::Isa;
use crate::kv::{self, HeadPage, LayerLayout};
use crate::pool;

/// Arguments of attention that all rows of a call share.
pub struct Attention<'a, 's> {
    /// The sequences of the pass; its keys and values are already stored.
    pub parts: &'a [kv::SequenceRows<'s>],
    /// The layer.
    pub layer: usize,
    /// Query heads; a multiple of the KV heads.
    pub n_head: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Cells a query sees, its own included; `None` for all before it.
    pub window: Option<Window>,
    /// The last cell that a query sees.
    pub reach: Reach,
    /// Further rules for the scores; `None` where there are none, which is faster than empty rules.
    pub rules: Option<&'a ScoreRules>,
    /// Instruction set.
    pub isa: Isa,
}

/// Tasks per thread, so that no thread waits long for the last one.
const TASKS: usize = 3;

/// Cells whose probabilities are turned into coefficients at a time.
pub(super) const CHUNK: usize = 128;

#[derive(Default)]
pub(super) struct Scratch {
    pub(super) coefs: Vec<f64>,
    pub(super) scores: Vec<f32>,
    pub(super) probabilities: Vec<f64>,
    pub(super) sums: Vec<f64>,
}

/// `len` elements of a buffer that grows as needed, from a line of the cache on.
pub(super) fn aligned<T: Copy + Default>(buffer: &mut Vec<T>, len: usize) -> &mut [T] {
    let spare = 64 / size_of::<T>();
    if buffer.len() < len + spare {
        buffer.resize(len + spare, T::default());
    }
    let at = buffer.as_ptr().align_offset(64).min(spare);
    &mut buffer[at..at + len]
}

/// Rows of a KV head, `all` of them, in as many parts as give each thread its tasks.
pub(super) fn even(layout: &LayerLayout, all: usize) -> usize {
    all.div_ceil((TASKS * pool::threads()).div_ceil(layout.n_head))
}

/// Tokens of one sequence, and the cells they attend to with one KV head.
pub(super) struct HeadRows<'a, 's> {
    pub(super) part: &'a kv::SequenceRows<'s>,
    pub(super) layer: usize,
    pub(super) kv_head: usize,
    /// Counted from the first of the part.
    pub(super) tokens: Range<usize>,
    /// Rows per token.
    pub(super) shared: usize,
    /// Cells that some row sees, from a tile's start on, so that groups of four keep their place.
    pub(super) cells: Range<usize>,
}

impl<'a> HeadRows<'a, '_> {
    /// Layout of the layer in the pages of the sequence.
    pub(super) fn layout(&self) -> LayerLayout {
        self.part.seq.layout().layer(self.layer)
    }

    /// The page that holds a tile, and the tile's number there.
    pub(super) fn tile(&self, tile: usize) -> (HeadPage<'a>, usize) {
        self.part.seq.tile(self.layer, self.kv_head, tile)
    }
}
