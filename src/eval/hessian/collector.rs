//! Observers of the inputs of matrices: a scout that finds the inputs, and a collector that adds them up.

use std::sync::{Mutex, MutexGuard};

use trine_formats::hessian::{Expert, Input, Reads};

use super::error::CollectError;
use super::sums::{Collected, Weights};
use crate::kernels::Isa;
use crate::linalg::{add_gram, triangle};
use crate::ops::observe::ActivationObserver;

/// Matrices outside the blocks, embeddings and output, have no Hessian.
fn is_wanted(tensor: &str) -> bool {
    tensor.starts_with("blk.")
}

/// The rows that were seen last, to recognize them when the next matrix reads them too.
#[derive(Default)]
struct Last {
    rows: Vec<f32>,
    columns: usize,
    /// The number of the input; of stacked matrices that of the first one, and the expert.
    input: (usize, Option<usize>),
}

impl Last {
    fn is(&self, rows: &[f32], columns: usize, expert: Option<usize>) -> bool {
        let bits = |v: &f32| v.to_bits();
        let same = self.columns == columns && self.input.1 == expert;
        same && self.rows.iter().map(bits).eq(rows.iter().map(bits))
    }

    fn set(&mut self, rows: &[f32], columns: usize, input: (usize, Option<usize>)) {
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
    inputs: Vec<FoundInput>,
    /// The weights, in the order of the graph, and the number of what each reads.
    weights: Vec<(String, usize)>,
    last: Last,
}

/// An input of a matrix, or those of all matrices of a stack.
struct FoundInput {
    name: String,
    columns: usize,
    /// The number of stacked matrices; 0 of a matrix by itself.
    experts: usize,
}

impl Scout {
    /// The inputs and the weights that read them.
    pub fn found(&self) -> (Vec<Input>, Weights) {
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(|e| e.into_inner()));
        let mut inputs = Vec::new();
        let mut reads = Vec::with_capacity(found.inputs.len());
        for FoundInput { name, columns, experts } in found.inputs {
            reads.push(Reads { first: inputs.len(), experts });
            let of = |expert| Input { name: name.clone(), columns: columns as u64, expert };
            match experts {
                0 => inputs.push(of(None)),
                _ => inputs.extend((0..experts).map(|number| of(Some(Expert { number, tokens: 0 })))),
            }
        }
        (inputs, found.weights.into_iter().map(|(name, number)| (name, reads[number])).collect())
    }
}

impl Found {
    /// A matrix, or that of one expert, is multiplied with these rows.
    fn see(&mut self, tensor: &str, rows: &[f32], columns: usize, expert: Option<usize>, experts: usize) {
        if !is_wanted(tensor) {
            return;
        }
        let known = self.weights.iter().find(|(name, _)| name == tensor).map(|(_, number)| *number);
        let shared = self.last.is(rows, columns, expert).then_some(self.last.input.0);
        let number = match (known, shared) {
            // Stacks share their inputs if all of their matrices do that have one.
            (Some(number), _) if self.inputs[number].name == tensor || shared == Some(number) => number,
            (None, Some(number)) => number,
            _ => {
                self.inputs.push(FoundInput { name: tensor.to_owned(), columns, experts });
                self.inputs.len() - 1
            }
        };
        match self.weights.iter_mut().find(|(name, _)| name == tensor) {
            Some(weight) => weight.1 = number,
            None => self.weights.push((tensor.to_owned(), number)),
        }
        self.last.set(rows, columns, (number, expert));
    }
}

impl ActivationObserver for Scout {
    fn observe(&self, tensor: &str, rows: &[f32], columns: usize) {
        self.found.lock().unwrap_or_else(|e| e.into_inner()).see(tensor, rows, columns, None, 0);
    }

    fn observe_expert(&self, tensor: &str, expert: usize, experts: usize, rows: &[f32], columns: usize) {
        let mut found = self.found.lock().unwrap_or_else(|e| e.into_inner());
        found.see(tensor, rows, columns, Some(expert), experts);
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

    /// Adds the rows that a matrix, or that of one expert, is multiplied with, unless one before it read them.
    fn add(&self, tensor: &str, rows: &[f32], columns: usize, expert: Option<usize>) {
        let state = &mut *self.lock();
        let header = &mut state.collected.header;
        let Some(&Reads { first, experts }) = header.weights.get(tensor) else {
            return;
        };
        let number = first + expert.unwrap_or(0);
        if expert.is_some_and(|expert| expert >= experts) {
            return;
        }
        let input = &mut header.inputs[number];
        if input.name != tensor {
            if !state.last.is(rows, columns, expert) || state.last.input.0 != first {
                let parted = (tensor.to_owned(), input.name.clone());
                state.parted.get_or_insert(parted);
            }
            return;
        }
        if let Some(expert) = &mut input.expert {
            expert.tokens += (rows.len() / columns.max(1)) as u64;
        }
        // The blocks of products start anew with every chunk; the rows of experts are those of one chunk.
        let sums = &mut state.collected.sums[number];
        for chunk in rows.chunks(self.n_ctx * columns) {
            if !sums.is_empty() {
                add_gram(self.isa, chunk, columns, sums);
            }
        }
        state.last.set(rows, columns, (first, expert));
    }
}

impl ActivationObserver for Collector {
    fn observe(&self, tensor: &str, rows: &[f32], columns: usize) {
        self.add(tensor, rows, columns, None);
    }

    fn observe_expert(&self, tensor: &str, expert: usize, _: usize, rows: &[f32], columns: usize) {
        self.add(tensor, rows, columns, Some(expert));
    }
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
            let columns = if sums.is_empty() { 0 } else { input.columns as usize };
            let mut diagonal = (0..columns).map(|j| sums[triangle(j) + j]);
            if !diagonal.all(f64::is_finite) {
                let tensor = input.name.clone();
                return Err(CollectError::NonFinite { tensor, first, last });
            }
        }
        Ok(())
    }
}
