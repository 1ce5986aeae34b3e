//! Where the gradients of weights go.

use std::collections::HashMap;

use super::linear::{self, Gradients};
use super::real::Real;
use super::weights::{Place, Weights};
use crate::kernels::Isa;

/// Takes the gradients of weights.
pub struct Collector<'a, T> {
    weights: &'a Weights<T>,
    isa: Isa,
    into: &'a mut Gradients<T>,
    /// Those of weights with several products, which are folded when all are added up.
    shared: HashMap<Place, Vec<T>>,
}

impl<'a, T: Real> Collector<'a, T> {
    pub fn new(weights: &'a Weights<T>, isa: Isa, into: &'a mut Gradients<T>) -> Collector<'a, T> {
        Collector { weights, isa, into, shared: HashMap::new() }
    }

    /// Adds the gradient of the product of `x` with the weights of a place, from that at its result.
    pub fn add(&mut self, place: &Place, x: &[T], dy: &[T]) {
        let columns = self.weights.columns(place);
        match self.weights.target(place) {
            Some((target, 1)) => {
                let sums = &mut self.into.sums[target][place.rows.start * columns..place.rows.end * columns];
                linear::at_weights(self.isa, x, columns, dy, sums, self.into.fold);
            }
            Some(_) => {
                let none = || vec![T::default(); place.rows.len() * columns];
                let sums = self.shared.entry(place.clone()).or_insert_with(none);
                linear::at_weights(self.isa, x, columns, dy, sums, |sum, g| sum + g);
            }
            None => {}
        }
    }

    /// Folds what was added up.
    pub fn finish(self) {
        for (place, gradient) in self.shared {
            let columns = self.weights.columns(&place);
            if let Some((target, _)) = self.weights.target(&place) {
                let sums = &mut self.into.sums[target][place.rows.start * columns..];
                sums.iter_mut().zip(gradient).for_each(|(sum, g)| *sum = (self.into.fold)(*sum, g));
            }
        }
    }
}
