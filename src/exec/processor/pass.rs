//! A pass over some operations of a program, and how they find and leave its values.

use super::positions::Positions;
use super::values::Values;
use super::weights::{PassOptions, Processor};
use crate::kernels::{Floats, Isa};
use crate::kv;
use crate::ops::rows::copy;
use crate::program::Program;

/// A pass over some operations.
pub struct Pass<'a, 's, 'p> {
    pub processor: &'a Processor,
    pub program: &'a Program,
    pub options: &'a PassOptions,
    pub tokens: &'a [u32],
    pub positions: Positions<'a>,
    pub parts: &'p mut [kv::SequenceRows<'s>],
    pub values: Values,
}

impl Pass<'_, '_, '_> {
    /// Instruction set of the kernels.
    pub fn isa(&self) -> Isa {
        self.processor.isa
    }

    /// The first input of operation number `at`, to be written over: its own memory where nobody reads it later.
    pub fn own(&mut self, at: usize) -> Floats {
        let inputs = &self.program.operations()[at].inputs;
        let (x, others) = (inputs[0], &inputs[1..]);
        match self.program.plan().ends(x, at) && !others.contains(&x) {
            true => self.values.take(x),
            false => copy(self.values.get(x)),
        }
    }

    /// Input number `i` of operation number `at`.
    pub fn input(&self, at: usize, i: usize) -> &[f32] {
        self.values.get(self.program.operations()[at].inputs[i])
    }

    /// An operation that writes over its first input.
    pub fn in_place(&mut self, at: usize, f: impl FnOnce(&mut [f32], &Self)) {
        let mut x = self.own(at);
        f(&mut x, self);
        self.one(at, x);
    }

    /// Keeps the only output of operation number `at`.
    pub fn one(&mut self, at: usize, y: Floats) {
        self.finish(at, [y]);
    }

    /// Keeps the outputs of operation number `at`, and lets inputs go that nobody reads later.
    pub fn finish(&mut self, at: usize, ys: impl IntoIterator<Item = Floats>) {
        let outputs = &self.program.operations()[at].outputs;
        outputs.iter().zip(ys).for_each(|(&value, y)| self.values.set(value, y));
        self.release(at);
    }

    /// Lets values go that operation number `at` reads last.
    pub fn release(&mut self, at: usize) {
        self.program.plan().ending(at).iter().for_each(|&value| self.values.release(value));
    }
}
