//! Every operation, backwards: from the gradient at what it makes to those at its inputs and its weights.

use super::collector::Collector;
use super::elements::{
    Differentiable, by_column, clamp, head_gate, map, scaled_back, sigmoid, sigmoid_slope, soft_cap, zip,
};
use super::norm;
use super::real::Real;
use super::rows::{self, Turn};
use super::streams;
use super::tape::Tape;
use crate::program::{Op, Operation};

/// A gradient at an input: the input's number in the operation.
pub type Given<T> = Vec<(usize, Vec<T>)>;

impl<T: Real> Tape<'_, T> {
    /// The gradients at the inputs of an operation from those at its outputs, of which at least one is there; those of
    /// its weights go to `weights`.
    pub(super) fn derivative(
        &self,
        operation: &Operation,
        mut given: Vec<Option<Vec<T>>>,
        weights: Option<&mut Collector<'_, T>>,
    ) -> Given<T> {
        let input = |i: usize| self.rows(operation.inputs[i]);
        let mut dy = || given[0].take().unwrap_or_default();
        let at_first = |dx| vec![(0, dx)];
        let both = |[dx, dy]: [Vec<T>; 2]| vec![(0, dx), (1, dy)];
        match &operation.op {
            Op::Embed(_) | Op::EmbedPositions(_) | Op::Fill(_) | Op::Take => Vec::new(),
            Op::Norm(rule) => at_first(norm::backward(rule, input(0), dy())),
            Op::Add => {
                let dy = dy();
                both([dy.clone(), dy])
            }
            Op::Multiply => {
                let dy = dy();
                both([zip(dy.clone(), input(1), |d, y| d * y), zip(dy, input(0), |d, x| d * x)])
            }
            Op::AsLong(width) => both(rows::as_long_back([input(0), input(1)], dy(), *width)),
            Op::AddRow(_) => at_first(dy()),
            Op::DivideRow(row) => at_first(by_column(dy(), row.len(), |d, i| d / T::single(row[i]))),
            Op::MultiplyAdd(row) => {
                let dy = dy();
                both([dy.clone(), by_column(dy, row.len(), |d, i| d * T::single(row[i]))])
            }
            Op::Scale(factor) => at_first(map(dy(), |d| d * T::single(*factor))),
            Op::ScaleByPosition(factor) => at_first(self.by_position(dy(), |position| factor.at(position))),
            Op::Clamp(bound) => at_first(zip(dy(), input(0), |d, x| d * clamp(x, *bound).1)),
            Op::SoftCap(cap) => at_first(zip(dy(), input(0), |d, x| d * soft_cap(x, *cap).1)),
            Op::Cutoff(factor) => at_first(rows::cutoff_back(input(0), dy(), self.columns(operation), *factor)),
            Op::Sigmoid => at_first(zip(dy(), input(0), |d, x| d * sigmoid_slope(x))),
            Op::Activate(f) => {
                let alone = f.at_gated(T::of(1.0)).0;
                at_first(zip(dy(), input(0), |d, x| d * alone * f.at_gate(x).1))
            }
            Op::Gate(f) => both(f.backward(input(0), input(1), dy())),
            Op::HeadGate(f) => both(scaled_back(input(0), input(1), dy(), |gate| head_gate(*f, gate))),
            Op::ScaleByGate { .. } => {
                both(scaled_back(input(0), input(1), dy(), |gate| (sigmoid(gate), sigmoid_slope(gate))))
            }
            Op::Products(products) => at_first(self.products_back(products, input(0), given, weights)),
            Op::ProductsByHead(stack) => at_first(self.products_by_head_back(stack, input(0), &dy(), weights)),
            Op::ProductsOfExperts(stacks) => at_first(self.products_of_experts_back(stacks, operation, given, weights)),
            Op::Split(widths) => {
                let parts: Vec<_> = given.iter().map(Option::as_deref).collect();
                at_first(rows::join(&parts, widths))
            }
            Op::Join(widths) => rows::split(&dy(), widths).into_iter().enumerate().collect(),
            Op::Repeat { width, times } => at_first(rows::repeat_back(&dy(), *width, *times)),
            Op::Hadamard(rotation) => at_first(rows::hadamard(rotation, dy(), !rotation.inverse)),
            Op::Rotate(kind, head) => at_first(self.rotated(dy(), *kind as usize, *head, Turn::Back)),
            Op::Attend(attend) => {
                let given = self.attention(attend).backward([input(0), input(1), input(2)], &dy());
                given.into_iter().enumerate().collect()
            }
            Op::Choose(rule) => at_first(self.choice(operation.outputs[0]).backward(rule, input(0), &dy())),
            Op::Dispatch { weighed } => {
                let (dy, columns, choice) = (dy(), self.columns(operation), self.choice(operation.inputs[1]));
                let mut given = at_first(choice.combine(&dy, columns, *weighed));
                if *weighed {
                    given.push((1, choice.at_weights(input(0), &dy, columns)));
                }
                given
            }
            Op::Combine { weighed } => {
                let (dy, columns, choice) = (dy(), self.columns(operation), self.choice(operation.inputs[1]));
                let mut given = at_first(choice.dispatch(&dy, columns, *weighed));
                if *weighed {
                    given.push((1, choice.at_weights(&dy, input(0), columns)));
                }
                given
            }
            Op::ReadStreams(rule) => {
                let given = [given[0].as_deref(), given[1].as_deref()];
                both(streams::read_back(rule, input(0), input(1), given))
            }
            Op::WriteStreams { count, mixed } => {
                let x = if *mixed { input(0) } else { &[] };
                let given = streams::write_back(dy(), [x, input(1), input(2)], *count, *mixed);
                given.into_iter().enumerate().collect()
            }
            Op::SumStreams(count) => both(streams::sum_back([input(0), input(1)], &dy(), *count)),
            Op::AddNorm(_) | Op::GatedProducts(..) => unreachable!("fusions are taken apart"),
            other => unreachable!("a program with {} is refused before it runs", other.name()),
        }
    }
}
