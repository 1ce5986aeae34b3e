//! A forward pass: rows of several sequences on their way through the blocks.

use std::ops::Range;
use std::sync::Arc;

use super::Inner;
use crate::cancel::CancelToken;
use crate::kernels::{Floats, Isa};
use crate::kv;
use crate::ops;
use crate::ops::attention::{Attention, Heads, ScoreRules, Window, whole};
use crate::ops::matmul::Activations;
use crate::ops::observe::ActivationObserver;
use crate::ops::rope::{Rope, Table};

/// Which of a model's position embeddings a layer uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RopeKind {
    /// That of layers that see everything.
    Global,
    /// That of layers with a sliding window.
    Window,
}

/// What the caller of a pass decides.
#[derive(Clone, Default)]
pub struct PassOptions {
    /// Bits of any-precision weights; 0 where there are none.
    pub bits: u8,
    /// Positions that the contexts may hold, which decides between two sets of RoPE factors.
    pub n_ctx: usize,
    /// Sees what is multiplied with the weights.
    pub observer: Option<Arc<dyn ActivationObserver>>,
    /// Ends the pass between two layers.
    pub cancel: Option<CancelToken>,
}

/// What a block needs of the forward pass it is part of.
pub struct Pass<'a, 's> {
    model: &'a Inner,
    parts: &'a mut [kv::Rows<'s>],
    /// Of the global and the window layers.
    ropes: &'a [Rope; 2],
    /// Of these.
    tables: [Table; 2],
    /// Of the rows.
    positions: Vec<usize>,
    options: &'a PassOptions,
    /// Residual streams that were kept for later blocks, `[tokens][n_embd]` each.
    pub(super) kept: Vec<Vec<f32>>,
}

impl<'a, 's> Pass<'a, 's> {
    /// A pass over the rows of `parts`, which follow each other.
    pub(super) fn new(model: &'a Inner, parts: &'a mut [kv::Rows<'s>], options: &'a PassOptions) -> Pass<'a, 's> {
        let positions: Vec<usize> = parts.iter().flat_map(|p| p.positions()).collect();
        let table = |rope: &Rope| rope.table(&positions);
        let ropes = model.ropes(options.n_ctx);
        Pass { tables: ropes.each_ref().map(table), ropes, positions, model, parts, options, kept: Vec::new() }
    }

    /// Rows of `columns` values, to be multiplied with weights.
    pub fn activations_of<'x>(&self, x: &'x [f32], columns: usize) -> Activations<'x> {
        let acts = Activations::new(x, columns, self.isa());
        acts.at_width(self.options.bits).observed_by(self.options.observer.clone())
    }

    /// Activations of the residual width, of all rows or of some.
    pub fn activations<'x>(&self, x: &'x [f32]) -> Activations<'x> {
        self.activations_of(x, self.model.config.n_embd)
    }

    /// Activations of any width, of all rows.
    pub fn rows<'x>(&self, x: &'x [f32]) -> Activations<'x> {
        self.activations_of(x, x.len() / self.positions.len())
    }

    /// RoPE on all heads of `x`, of all rows.
    pub fn rotate(&self, x: &mut [f32], kind: RopeKind) {
        self.rotate_heads(x, kind, self.model.config.head_dim);
    }

    /// The same on heads of `head_dim` elements.
    pub fn rotate_heads(&self, x: &mut [f32], kind: RopeKind, head_dim: usize) {
        let width = x.len() / self.positions.len();
        let (rope, table) = (&self.ropes[kind as usize], &self.tables[kind as usize]);
        rope.apply(self.isa(), x, width, head_dim, table);
    }

    /// Multiplies every row of `x` by what `factor` gives for its position.
    pub fn scale_by_position(&self, x: &mut [f32], factor: impl Fn(usize) -> f32) {
        let width = x.len() / self.positions.len();
        for (row, &position) in x.chunks_exact_mut(width).zip(&self.positions) {
            ops::scale(row, factor(position));
        }
    }

    /// Puts keys and values of this pass into the pages of its sequences.
    pub fn store(&mut self, layer: usize, k: &[f32], v: &[f32]) {
        kv::store(self.isa(), layer, self.parts, k, v);
    }

    /// Calls `f` for every sequence of the pass: with its rows, and with the numbers `state` of its recurrent state,
    /// which it takes to the last of them.
    pub fn recur(&mut self, state: Range<usize>, mut f: impl FnMut(Range<usize>, &mut [f32])) {
        for part in self.parts.iter_mut().filter(|p| !p.rows.is_empty()) {
            f(part.rows.clone(), &mut part.seq.state_mut()[state.clone()]);
        }
    }

    /// Attention of this pass's queries over the sequences' cells of `layer`.
    pub fn attend(
        &self,
        layer: usize,
        q: &[f32],
        scale: f32,
        window: Option<Window>,
        rules: Option<&ScoreRules>,
    ) -> Floats {
        Attention { parts: self.parts, layer, n_head: self.model.config.n_head, scale, window, rules, isa: self.isa() }
            .run(q)
    }

    /// Attention of this pass's rows, queries, keys and values, over all of their sequences' rows in this pass.
    pub fn attend_whole(&self, qkv: [&[f32]; 3], scale: f32) -> Floats {
        let c = &self.model.config;
        let heads = Heads { queries: c.n_head, keys: c.n_head_kv, size: c.head_dim };
        let sequences: Vec<_> = self.parts.iter().map(|part| part.rows.clone()).collect();
        whole(&sequences, qkv, heads, scale)
    }

    /// Instruction set of the model.
    pub fn isa(&self) -> Isa {
        self.model.isa
    }

    /// Whether the caller has asked for the end of the pass.
    pub(super) fn is_cancelled(&self) -> bool {
        let cancel = self.options.cancel.as_ref();
        cancel.is_some_and(CancelToken::is_cancelled)
    }
}
