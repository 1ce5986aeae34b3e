//! The positions of a pass's rows, and what depends on nothing else: position embeddings and factors.

use std::cell::OnceCell;

use crate::kernels::Isa;
use crate::kv;
use crate::ops;
use crate::ops::rope::{Rope, Table, Turn};
use crate::program::{RopeKind, Temperature};

/// The positions of a pass's rows.
pub struct Positions<'a> {
    /// By row.
    pub all: Vec<usize>,
    /// RoPE of the global and the window layers.
    ropes: &'a [Rope; 2],
    /// Angle tables of these two, each computed by the first operation that reads it.
    tables: [OnceCell<Table>; 2],
}

impl<'a> Positions<'a> {
    /// Positions of the rows of `parts`, which follow each other.
    pub fn new(parts: &[kv::SequenceRows<'_>], ropes: &'a [Rope; 2]) -> Positions<'a> {
        let all = parts.iter().flat_map(|p| p.positions()).collect();
        Positions { all, ropes, tables: Default::default() }
    }

    /// Positions of no rows, for operations that do not read any.
    pub fn none(ropes: &'a [Rope; 2]) -> Positions<'a> {
        Positions { all: Vec::new(), ropes, tables: Default::default() }
    }

    /// RoPE on all heads of `x`, of all rows.
    pub fn rotate(&self, isa: Isa, x: &mut [f32], kind: RopeKind, head: usize) {
        let width = x.len() / self.all.len();
        let rope = &self.ropes[kind as usize];
        let table = self.tables[kind as usize].get_or_init(|| rope.table(&self.all));
        rope.apply(isa, x, width, head, table);
    }

    /// Another rotation of all heads of `x`, of all rows.
    pub fn turn(&self, isa: Isa, x: &mut [f32], kind: RopeKind, turn: Turn) {
        let width = x.len() / self.all.len();
        let rope = &self.ropes[kind as usize];
        rope.apply(isa, x, width, turn.head, &turn.table(rope, &self.all));
    }

    /// Multiplies every row of `x` by the factor of its position.
    pub fn scale(&self, x: &mut [f32], factor: &Temperature) {
        let width = x.len() / self.all.len();
        for (row, &position) in x.chunks_exact_mut(width).zip(&self.all) {
            ops::scale(row, factor.at(position));
        }
    }
}
