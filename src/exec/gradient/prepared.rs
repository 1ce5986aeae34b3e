//! A program whose gradients are taken.

use super::linear::Gradients;
use super::real::Real;
use super::steps::{Steps, lacking};
use super::weights::{Target, Weights};
use crate::exec::processor::{Processor, Ropes};
use crate::kernels::Isa;
use crate::program::{Operation, Program};

/// A program and its weights as plain numbers.
pub struct Gradient<T> {
    pub(super) steps: Steps,
    pub(super) weights: Weights<T>,
    pub(super) ropes: Ropes,
    pub(super) isa: Isa,
}

/// Checks that all operations of `program` have derivatives.
///
/// # Errors
/// Those that have none, by name.
pub fn check(program: &Program) -> Result<(), String> {
    let mut lacking: Vec<String> = program.operations().iter().filter_map(|o| lacking(&o.op)).collect();
    lacking.sort_unstable();
    lacking.dedup();
    if lacking.is_empty() { Ok(()) } else { Err(format!("there is no derivative of {}", lacking.join(", "))) }
}

impl<T: Real> Gradient<T> {
    /// Decodes the weights of `program`, which have to be where the file has them.
    ///
    /// # Errors
    /// Operations without a derivative; tensors without plain weights.
    pub fn new(program: &Program, processor: &Processor) -> Result<Gradient<T>, String> {
        check(program)?;
        let steps = Steps::of(program);
        let weights = Weights::decode(program, processor, &steps.operations, &steps.blocks)?;
        Ok(Gradient { steps, weights, ropes: processor.ropes.clone(), isa: processor.isa })
    }

    /// The matrices whose gradients are taken, in the order of their first products.
    pub fn targets(&self) -> &[Target] {
        &self.weights.targets
    }

    /// The weights of a target, where there is one of this number.
    pub fn weights_mut(&mut self, target: usize) -> Option<&mut [T]> {
        self.weights.of_target(target)
    }

    /// The operations that are carried out: those of the program without its fusions.
    pub fn operations(&self) -> &[Operation] {
        &self.steps.operations
    }

    /// Number of logits of a position.
    pub fn n_vocab(&self) -> usize {
        self.steps.columns[self.steps.logits.0]
    }

    /// Zeros to fold gradients into.
    pub fn zeros(&self, fold: fn(T, T) -> T) -> Gradients<T> {
        Gradients { sums: self.targets().iter().map(|t| vec![T::default(); t.weights()]).collect(), fold }
    }
}
