//! A pass over a sequence, forwards and then backwards.

use std::ops::Range;

use super::collector::Collector;
use super::elements::add;
use super::experts::Choice;
use super::linear::Gradients;
use super::prepared::Gradient;
use super::real::Real;
use crate::program::{Op, Value};

/// A value that lives.
#[derive(Default)]
pub enum Held<T> {
    #[default]
    Nothing,
    Rows(Vec<T>),
    Choice(Choice<T>),
}

/// A sequence behind all blocks, and what the way back needs of the way there.
pub struct Tape<'g, T> {
    pub(super) gradient: &'g Gradient<T>,
    pub(super) tokens: &'g [u32],
    /// The cosines and sines per position and pair, of the global layers and of the window layers.
    pub(super) angles: [Vec<Vec<(f32, f32)>>; 2],
    values: Vec<Held<T>>,
    /// The gradient at each value, as far as it is known.
    slopes: Vec<Option<Vec<T>>>,
}

impl<'g, T: Real> Tape<'g, T> {
    /// A pass that has not begun.
    pub(super) fn new(gradient: &'g Gradient<T>, tokens: &'g [u32]) -> Tape<'g, T> {
        let ropes = gradient.ropes.of(tokens.len());
        let angles = ropes.each_ref().map(|rope| (0..tokens.len()).map(|i| rope.pairs(i)).collect());
        let mut values = Vec::new();
        values.resize_with(gradient.steps.columns.len(), Held::default);
        Tape { gradient, tokens, angles, slopes: vec![None; values.len()], values }
    }

    /// The rows of a value that lives: `None` of one that the way back does not need.
    pub fn value(&self, value: Value) -> Option<&[T]> {
        match &self.values[value.0] {
            Held::Rows(rows) => Some(rows),
            _ => None,
        }
    }

    /// The experts of every token of a choice that lives, `[tokens][used]`.
    pub fn experts(&self, value: Value) -> Option<&[usize]> {
        match &self.values[value.0] {
            Held::Choice(choice) => Some(&choice.experts),
            _ => None,
        }
    }

    pub(super) fn rows(&self, value: Value) -> &[T] {
        self.value(value).unwrap_or_else(|| unreachable!("value {} is read while it lives", value.0))
    }

    pub(super) fn choice(&self, value: Value) -> &Choice<T> {
        match &self.values[value.0] {
            Held::Choice(choice) => choice,
            _ => unreachable!("value {} is a choice that lives", value.0),
        }
    }

    /// Carries out some operations.
    pub(super) fn run(&mut self, range: Range<usize>) {
        let steps = &self.gradient.steps;
        for at in range {
            let operation = &steps.operations[at];
            match &operation.op {
                Op::Choose(rule) => {
                    let choice = Choice::of(rule, self.tokens, self.rows(operation.inputs[0]));
                    self.values[operation.outputs[0].0] = Held::Choice(choice);
                }
                _ => {
                    let made = self.step(operation);
                    operation.outputs.iter().zip(made).for_each(|(value, y)| self.values[value.0] = Held::Rows(y));
                }
            }
            steps.ending(at).for_each(|value| self.values[value.0] = Held::Nothing);
        }
    }

    /// Takes gradients through some operations, the last one first.
    fn back(&mut self, range: Range<usize>, mut weights: Option<Collector<'_, T>>) {
        let steps = &self.gradient.steps;
        for at in range.rev() {
            let operation = &steps.operations[at];
            let given: Vec<_> = operation.outputs.iter().map(|value| self.slopes[value.0].take()).collect();
            if given.iter().any(Option::is_some) {
                for (input, d) in self.derivative(operation, given, weights.as_mut()) {
                    match &mut self.slopes[operation.inputs[input].0] {
                        Some(sum) => add(sum, &d),
                        none => *none = Some(d),
                    }
                }
            }
            operation.outputs.iter().for_each(|value| self.values[value.0] = Held::Nothing);
        }
        weights.into_iter().for_each(Collector::finish);
    }

    /// The pass over some rows of the residual stream to their logits.
    fn behind(&self, rows: Range<usize>) -> Tape<'g, T> {
        let steps = &self.gradient.steps;
        let stream = self.rows(steps.stream);
        let width = stream.len() / self.tokens.len();
        let mut head = Tape::new(self.gradient, &[]);
        head.values[steps.taken.0] = Held::Rows(stream[rows.start * width..rows.end * width].to_vec());
        head.run(steps.behind());
        head
    }

    /// The logits, which are no longer there.
    fn take_logits(&mut self) -> Option<Vec<T>> {
        match std::mem::take(&mut self.values[self.gradient.steps.logits.0]) {
            Held::Rows(logits) => Some(logits),
            _ => None,
        }
    }

    /// The logits of some rows, `[rows][vocabulary]`.
    pub fn logits(&self, rows: Range<usize>) -> Vec<T> {
        self.behind(rows).take_logits().unwrap_or_default()
    }

    /// Makes the logits of some rows, which `score` turns into the gradient of the loss at them; the gradient at the
    /// residual stream's rows.
    pub fn head(&self, rows: Range<usize>, score: impl FnOnce(&mut [T])) -> Vec<T> {
        let steps = &self.gradient.steps;
        let mut head = self.behind(rows);
        if let Some(mut logits) = head.take_logits() {
            score(&mut logits);
            head.slopes[steps.logits.0] = Some(logits);
        }
        head.back(steps.behind(), None);
        head.slopes[steps.taken.0].take().unwrap_or_default()
    }

    /// Folds the gradients at all weights of the blocks into `sums`, from the gradient at the rows of the residual
    /// stream.
    pub fn backward(mut self, stream: Vec<T>, sums: &mut Gradients<T>) {
        let steps = &self.gradient.steps;
        self.slopes[steps.stream.0] = Some(stream);
        let weights = Collector::new(&self.gradient.weights, self.gradient.isa, sums);
        self.back(steps.body(), Some(weights));
    }
}

impl<T: Real> Gradient<T> {
    /// The pass over a sequence up to the residual stream behind the last block. Runs in the current rayon pool.
    pub fn forward<'g>(&'g self, tokens: &'g [u32]) -> Tape<'g, T> {
        let mut tape = Tape::new(self, tokens);
        tape.run(self.steps.body());
        tape
    }
}
