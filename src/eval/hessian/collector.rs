//! Observers of the inputs of matrices: a scout that finds the inputs, and a collector that adds them up.

use std::sync::{Mutex, MutexGuard};

use trine_formats::hessian::Input;

use super::error::CollectError;
use super::sums::{Collected, Weights};
use crate::kernels::Isa;
use crate::linalg::{add_gram, triangle};
use crate::ops::observe::ActivationObserver;

/// Matrices outside the blocks, embeddings and output, have no Hessian.
fn is_wanted(tensor: &str) -> bool {
    tensor.starts_with("blk.")
}

/// The input that was seen last, to recognize it when the next matrix reads it too.
#[derive(Default)]
struct Last {
    rows: Vec<f32>,
    columns: usize,
    input: usize,
}

impl Last {
    fn is(&self, rows: &[f32], columns: usize) -> bool {
        let bits = |v: &f32| v.to_bits();
        self.columns == columns && self.rows.iter().map(bits).eq(rows.iter().map(bits))
    }

    fn set(&mut self, rows: &[f32], columns: usize, input: usize) {
        self.rows.clear();
        self.rows.extend_from_slice(rows);
        (self.columns, self.input) = (columns, input);
    }
}

/// Finds out which matrices there are and which of them read one input: neighbours in the graph whose inputs are equal.
#[derive(Default)]
pub(super) struct Scout {
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    inputs: Vec<Input>,
    weights: Weights,
    last: Last,
    experts: Option<String>,
}

impl Scout {
    /// The inputs and the weights that read them.
    pub fn found(&self) -> Result<(Vec<Input>, Weights), CollectError> {
        let mut found = self.found.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(tensor) = found.experts.take() {
            return Err(CollectError::Experts(tensor));
        }
        let inputs = std::mem::take(&mut found.inputs);
        Ok((inputs, std::mem::take(&mut found.weights)))
    }
}

impl ActivationObserver for Scout {
    fn observe(&self, tensor: &str, rows: &[f32], columns: usize) {
        if !is_wanted(tensor) {
            return;
        }
        let found = &mut *self.found.lock().unwrap_or_else(|e| e.into_inner());
        if !found.last.is(rows, columns) {
            let input = found.inputs.len();
            found.last.set(rows, columns, input);
            found.inputs.push(Input { name: tensor.to_owned(), columns: columns as u64 });
        }
        found.weights.insert(tensor.to_owned(), found.last.input);
    }

    fn observe_expert(&self, tensor: &str, _: usize, _: usize, _: &[f32], _: usize) {
        let mut found = self.found.lock().unwrap_or_else(|e| e.into_inner());
        found.experts.get_or_insert_with(|| tensor.to_owned());
    }
}

/// An observer that adds up outer products of inputs.
pub(super) struct Collector {
    n_ctx: usize,
    isa: Isa,
    state: Mutex<HessianSums>,
}

/// The sums so far, behind the lock.
pub(super) struct HessianSums {
    pub collected: Collected,
    last: Last,
    /// A matrix that has an input of its own, and the one it shared an input with before.
    parted: Option<(String, String)>,
}

impl Collector {
    /// Goes on from `collected`, with chunks of `n_ctx` tokens.
    pub fn new(collected: Collected, n_ctx: usize, isa: Isa) -> Collector {
        Collector { n_ctx, isa, state: Mutex::new(HessianSums { collected, last: Last::default(), parted: None }) }
    }

    /// The sums so far.
    pub fn lock(&self) -> MutexGuard<'_, HessianSums> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl ActivationObserver for Collector {
    fn observe(&self, tensor: &str, rows: &[f32], columns: usize) {
        let state = &mut *self.lock();
        let Some(&input) = state.collected.header.weights.get(tensor) else {
            return;
        };
        let first = &state.collected.header.inputs[input].name;
        if first != tensor {
            if !state.last.is(rows, columns) || state.last.input != input {
                let parted = (tensor.to_owned(), first.clone());
                state.parted.get_or_insert(parted);
            }
            return;
        }
        // The blocks of products start anew with every chunk.
        for chunk in rows.chunks(self.n_ctx * columns) {
            add_gram(self.isa, chunk, columns, &mut state.collected.sums[input]);
        }
        state.last.set(rows, columns, input);
    }

    /// Experts were refused when the inputs were looked for.
    fn observe_expert(&self, _: &str, _: usize, _: usize, _: &[f32], _: usize) {}
}

impl HessianSums {
    /// Finds what went wrong in the chunks from `first` to `last`, counted from 1.
    pub fn check(&mut self, first: usize, last: usize) -> Result<(), CollectError> {
        if let Some((tensor, shared)) = self.parted.take() {
            return Err(CollectError::Parted { tensor, shared, first, last });
        }
        let inputs = self.collected.header.inputs.iter();
        for (input, sums) in inputs.zip(&self.collected.sums) {
            // No product is larger than the larger of two squares, and none is finite where its squares are not
            // numbers.
            let columns = input.columns as usize;
            let mut diagonal = (0..columns).map(|j| sums[triangle(j) + j]);
            if !diagonal.all(f64::is_finite) {
                let tensor = input.name.clone();
                return Err(CollectError::NonFinite { tensor, first, last });
            }
        }
        Ok(())
    }
}
