//! The matrices of a program as plain numbers, and those whose gradients are taken.

use std::collections::HashMap;
use std::ops::Range;

use rayon::prelude::*;

use super::real::Real;
use crate::exec::processor::Processor;
use crate::program::{MatrixId, Op, Operation, Program, Stack};

/// A matrix of a block, or those of all its experts, whose gradient is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name of the tensor in the model's file.
    pub tensor: String,
    /// How many matrices the tensor holds, where it may hold several.
    pub experts: Option<usize>,
    /// Outputs of a matrix.
    pub rows: usize,
    /// Inputs.
    pub columns: usize,
}

impl Target {
    /// The extents, the slowest first.
    pub fn shape(&self) -> Vec<usize> {
        self.experts.into_iter().chain([self.rows, self.columns]).collect()
    }

    /// Number of weights.
    pub fn weights(&self) -> usize {
        self.shape().iter().product()
    }
}

/// A tensor with the rows of all its matrices.
struct Tensor<T> {
    columns: usize,
    data: Vec<T>,
    /// Number of its gradient.
    target: Option<usize>,
}

/// Rows of a tensor.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Place {
    tensor: usize,
    pub rows: Range<usize>,
}

impl Place {
    /// The place of this and the rows behind it, if `next` holds these.
    pub fn with(&self, next: &Place) -> Option<Place> {
        let follows = self.tensor == next.tensor && self.rows.end == next.rows.start;
        follows.then_some(Place { tensor: self.tensor, rows: self.rows.start..next.rows.end })
    }
}

/// The weights of a program.
pub struct Weights<T> {
    tensors: Vec<Tensor<T>>,
    /// Where each matrix is.
    places: Vec<Place>,
    /// How many products of the blocks begin with these rows.
    uses: HashMap<(usize, usize), usize>,
    pub targets: Vec<Target>,
}

/// The matrices of an operation that multiplies: each with the number of its expert, and how many there are.
fn products(op: &Op) -> Vec<(MatrixId, usize, Option<usize>)> {
    let of_stack = |stack: &Stack| {
        let count = stack.matrices.len();
        (0..count).map(|expert| (stack.matrix(expert), expert, Some(count))).collect::<Vec<_>>()
    };
    match op {
        Op::Products(all) => all.iter().map(|product| (product.matrix, 0, None)).collect(),
        Op::ProductsByHead(stack) => of_stack(stack),
        Op::ProductsOfExperts(stacks) => stacks.iter().flat_map(of_stack).collect(),
        _ => Vec::new(),
    }
}

impl<T: Real> Weights<T> {
    /// Decodes the matrices of `operations`; those of the ones in `blocks` are targets, in the order of their first
    /// products.
    ///
    /// # Errors
    /// The first tensor that is no plain matrix, or holds weights that are not finite.
    pub fn decode(
        program: &Program,
        processor: &Processor,
        operations: &[Operation],
        blocks: &Range<usize>,
    ) -> Result<Weights<T>, String> {
        // Tensors by name, and the rows of one of their matrices.
        let mut known: HashMap<&str, (usize, usize)> = HashMap::new();
        for info in program.matrices() {
            let number = known.len();
            let (_, rows) = known.entry(&info.tensor).or_insert((number, 0));
            *rows = (*rows).max(info.first_row + info.rows);
        }
        let mut weights =
            Weights { tensors: Vec::new(), places: Vec::new(), uses: HashMap::new(), targets: Vec::new() };
        weights.tensors.resize_with(known.len(), || Tensor { columns: 0, data: Vec::new(), target: None });
        let place = |id: MatrixId, expert: usize| {
            let info = program.matrix(id);
            let (tensor, rows) = known[info.tensor.as_str()];
            let from = expert * rows + info.first_row;
            Place { tensor, rows: from..from + info.rows }
        };
        weights.places = (0..program.matrices().len()).map(|id| place(MatrixId(id), 0)).collect();
        for (at, operation) in operations.iter().enumerate() {
            for (id, expert, experts) in products(&operation.op) {
                let place = place(id, expert);
                if blocks.contains(&at) {
                    *weights.uses.entry((place.tensor, place.rows.start)).or_default() += 1;
                    let info = program.matrix(id);
                    let rows = known[info.tensor.as_str()].1;
                    let target = &mut weights.tensors[place.tensor].target;
                    target.get_or_insert_with(|| {
                        let (tensor, columns) = (info.tensor.clone(), info.columns);
                        weights.targets.push(Target { tensor, experts, rows, columns });
                        weights.targets.len() - 1
                    });
                }
                weights.places[id.0] = place;
            }
        }
        for (id, info) in program.matrices().iter().enumerate() {
            let place = &weights.places[id];
            let Tensor { columns, data, .. } = &mut weights.tensors[place.tensor];
            *columns = info.columns;
            data.resize(data.len().max(place.rows.end * info.columns), T::default());
            let matrix = processor.matrix(MatrixId(id));
            let rows = &mut data[place.rows.start * info.columns..place.rows.end * info.columns];
            rows.par_chunks_mut(info.columns.max(1)).enumerate().try_for_each(|(row, out)| {
                let mut values = vec![0f32; out.len()];
                if !matrix.decode_row(row, &mut values) {
                    return Err(format!("tensor {} has no plain weights to take gradients of", info.tensor));
                }
                if !values.iter().all(|v| v.is_finite()) {
                    return Err(format!("tensor {} holds non-finite weights", info.tensor));
                }
                out.iter_mut().zip(values).for_each(|(o, v)| *o = T::single(v));
                Ok(())
            })?;
        }
        Ok(weights)
    }

    /// Where a matrix is.
    pub fn place(&self, id: MatrixId) -> &Place {
        &self.places[id.0]
    }

    /// Columns of a place.
    pub fn columns(&self, place: &Place) -> usize {
        self.tensors[place.tensor].columns
    }

    /// The weights of a place, `[rows][columns]`.
    pub fn at(&self, place: &Place) -> &[T] {
        let tensor = &self.tensors[place.tensor];
        &tensor.data[place.rows.start * tensor.columns..place.rows.end * tensor.columns]
    }

    /// The number of the gradient that a place is a part of, and how many products of the blocks share the place.
    pub fn target(&self, place: &Place) -> Option<(usize, usize)> {
        let target = self.tensors[place.tensor].target?;
        let uses = self.uses.get(&(place.tensor, place.rows.start));
        Some((target, uses.copied().unwrap_or(1)))
    }

    /// The weights of a target.
    pub fn of_target(&mut self, target: usize) -> Option<&mut [T]> {
        let tensor = self.tensors.iter_mut().find(|tensor| tensor.target == Some(target))?;
        Some(&mut tensor.data)
    }
}
