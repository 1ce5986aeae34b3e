//! Every operation, forwards.

use std::iter::repeat_n;

use super::elements::{Differentiable, by_column, clamp, head_gate, map, scaled, sigmoid, soft_cap, zip};
use super::norm;
use super::real::Real;
use super::rows::{self, Turn};
use super::streams;
use super::tape::Tape;
use crate::program::{Op, Operation};

impl<T: Real> Tape<'_, T> {
    /// The values that an operation makes.
    pub(super) fn step(&self, operation: &Operation) -> Vec<Vec<T>> {
        let input = |i: usize| self.rows(operation.inputs[i]);
        let own = || input(0).to_vec();
        let y = match &operation.op {
            Op::Embed(table) => self.gathered(*table, self.tokens.iter().map(|&id| id as usize)),
            Op::EmbedPositions(table) => self.gathered(*table, 0..self.tokens.len()),
            Op::Fill(row) => {
                let row: Vec<T> = row.iter().map(|&v| T::single(v)).collect();
                repeat_n(row, self.tokens.len()).flatten().collect()
            }
            Op::Norm(rule) => norm::forward(rule, input(0)),
            Op::Add => zip(own(), input(1), |x, y| x + y),
            Op::Multiply => zip(own(), input(1), |x, y| x * y),
            Op::AsLong(width) => rows::as_long(own(), input(1), *width),
            Op::AddRow(row) => by_column(own(), row.len(), |x, i| x + T::single(row[i])),
            Op::DivideRow(row) => by_column(own(), row.len(), |x, i| x / T::single(row[i])),
            Op::MultiplyAdd(row) => {
                let y = by_column(input(1).to_vec(), row.len(), |y, i| y * T::single(row[i]));
                zip(own(), &y, |x, y| x + y)
            }
            Op::Scale(factor) => map(own(), |x| x * T::single(*factor)),
            Op::ScaleByPosition(factor) => self.by_position(own(), |position| factor.at(position)),
            Op::Clamp(bound) => map(own(), |x| clamp(x, *bound).0),
            Op::SoftCap(cap) => map(own(), |x| soft_cap(x, *cap).0),
            Op::Cutoff(factor) => rows::cutoff(own(), self.columns(operation), *factor),
            Op::Sigmoid => map(own(), sigmoid),
            Op::Activate(f) => map(own(), |x| f.at_gate(x).0 * f.at_gated(T::of(1.0)).0),
            Op::Gate(f) => f.forward(input(0), input(1)),
            Op::HeadGate(f) => scaled(input(0), input(1), |gate| head_gate(*f, gate).0),
            Op::ScaleByGate { .. } => scaled(input(0), input(1), sigmoid),
            Op::Products(products) => return self.products(products, input(0)),
            Op::ProductsByHead(stack) => self.products_by_head(stack, input(0)),
            Op::ProductsOfExperts(stacks) => {
                return stacks.iter().map(|stack| self.products_of_experts(stack, operation)).collect();
            }
            Op::Split(widths) => return rows::split(input(0), widths),
            Op::Join(widths) => {
                let parts: Vec<_> = (0..widths.len()).map(|i| Some(input(i))).collect();
                rows::join(&parts, widths)
            }
            Op::Repeat { width, times } => rows::repeat(input(0), *width, *times),
            Op::Hadamard(rotation) => rows::hadamard(rotation, own(), rotation.inverse),
            Op::Rotate(kind, head) => self.rotated(own(), *kind as usize, *head, Turn::Forward),
            Op::Attend(attend) => self.attention(attend).forward([input(0), input(1), input(2)]),
            Op::Dispatch { weighed } => {
                self.choice(operation.inputs[1]).dispatch(input(0), self.columns(operation), *weighed)
            }
            Op::Combine { weighed } => {
                self.choice(operation.inputs[1]).combine(input(0), self.columns(operation), *weighed)
            }
            Op::ReadStreams(rule) => return streams::read(rule, input(0), input(1)).into(),
            Op::WriteStreams { count, mixed } => streams::write(input(0), input(1), input(2), *count, *mixed),
            Op::SumStreams(count) => streams::sum(input(0), input(1), *count),
            Op::Take | Op::Choose(_) | Op::AddNorm(_) | Op::GatedProducts(..) => return Vec::new(),
            other => unreachable!("a program with {} is refused before it runs", other.name()),
        };
        vec![y]
    }
}
