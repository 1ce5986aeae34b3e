//! Products of the rows of values with matrices, forwards and backwards, and what depends on positions.

use super::attention::Attention;
use super::collector::Collector;
use super::elements::{add, by_column, by_row, map};
use super::linear;
use super::real::Real;
use super::rows::{self, Turn, rotate};
use super::tape::Tape;
use super::weights::Place;
use crate::program::{Attend, MatrixId, Operation, Product, Stack};

impl<T: Real> Tape<'_, T> {
    /// Rows of a table.
    pub(super) fn gathered(&self, table: MatrixId, rows: impl Iterator<Item = usize>) -> Vec<T> {
        let weights = &self.gradient.weights;
        let (table, columns) = (weights.at(weights.place(table)), weights.columns(weights.place(table)));
        rows.flat_map(|row| &table[row * columns..][..columns]).copied().collect()
    }

    /// Columns of the first input of an operation.
    pub(super) fn columns(&self, operation: &Operation) -> usize {
        self.gradient.steps.columns[operation.inputs[0].0]
    }

    /// Every row of `x` times a factor by its position.
    pub(super) fn by_position(&self, x: Vec<T>, factor: impl Fn(usize) -> f32 + Sync) -> Vec<T> {
        let width = x.len() / self.tokens.len();
        by_row(x, width, |x, position| x * T::single(factor(position)))
    }

    /// RoPE of one of the two kinds of layers.
    pub(super) fn rotated(&self, mut x: Vec<T>, kind: usize, head: usize, turn: Turn) -> Vec<T> {
        let rope = &self.gradient.ropes.of(self.tokens.len())[kind];
        rotate(&mut x, head, rope, &self.angles[kind], turn);
        x
    }

    pub(super) fn attention<'a>(&self, attend: &'a Attend) -> Attention<'a> {
        Attention { attend, isa: self.gradient.isa }
    }

    /// The product of some rows with the weights of a place.
    fn multiplied(&self, place: &Place, x: &[T]) -> Vec<T> {
        let weights = &self.gradient.weights;
        linear::forward(self.gradient.isa, x, weights.at(place), weights.columns(place))
    }

    /// The gradient at the rows of a product; that at its weights goes to `weights`.
    fn multiplied_back(&self, place: &Place, x: &[T], dy: &[T], collector: Option<&mut Collector<'_, T>>) -> Vec<T> {
        let weights = &self.gradient.weights;
        if let Some(collector) = collector {
            collector.add(place, x, dy);
        }
        linear::backward(self.gradient.isa, dy, weights.at(place), weights.columns(place))
    }

    /// The products of the rows of `x` with several matrices.
    pub(super) fn products(&self, products: &[Product], x: &[T]) -> Vec<Vec<T>> {
        let place = |product: &Product| self.gradient.weights.place(product.matrix);
        products.iter().map(|product| scaled(self.multiplied(place(product), x), product.scale)).collect()
    }

    /// The sum of the gradients at `x` of all products. Those with matrices that follow each other in one tensor are
    /// one product, whose sums go over the outputs of all.
    pub(super) fn products_back(
        &self,
        products: &[Product],
        x: &[T],
        mut given: Vec<Option<Vec<T>>>,
        mut weights: Option<&mut Collector<'_, T>>,
    ) -> Vec<T> {
        let place = |product: &Product| self.gradient.weights.place(product.matrix);
        let mut dx = vec![T::default(); x.len()];
        let mut next = 0;
        while let Some(product) = products.get(next) {
            let (from, mut all) = (next, place(product).clone());
            next += 1;
            while let Some(more) = products.get(next).filter(|more| more.scale == product.scale)
                && let Some(longer) = all.with(place(more))
            {
                (all, next) = (longer, next + 1);
            }
            let widths: Vec<usize> = products[from..next].iter().map(|product| place(product).rows.len()).collect();
            let parts: Vec<_> = given[from..next].iter().map(Option::as_deref).collect();
            let dy = match parts[..] {
                [_] => given[from].take().unwrap_or_default(),
                _ => rows::join(&parts, &widths),
            };
            if !dy.is_empty() {
                let dy = scaled(dy, product.scale);
                add(&mut dx, &self.multiplied_back(&all, x, &dy, weights.as_deref_mut()));
            }
        }
        dx
    }

    /// The places of the matrices of a stack, and the widths of their inputs and outputs.
    fn stacked(&self, stack: &Stack) -> (Vec<&Place>, usize, usize) {
        let weights = &self.gradient.weights;
        let places: Vec<_> = stack.matrices.clone().map(|id| weights.place(MatrixId(id))).collect();
        let (columns, rows) = places.first().map_or((0, 0), |place| (weights.columns(place), place.rows.len()));
        (places, columns, rows)
    }

    /// The rows of every head, `[tokens][heads][columns]`, times its own matrix.
    pub(super) fn products_by_head(&self, stack: &Stack, x: &[T]) -> Vec<T> {
        let (places, columns, rows) = self.stacked(stack);
        let heads = rows::split(x, &vec![columns; places.len()]);
        let ys: Vec<_> = heads.iter().zip(&places).map(|(x, place)| self.multiplied(place, x)).collect();
        let parts: Vec<_> = ys.iter().map(|y| Some(&y[..])).collect();
        rows::join(&parts, &vec![rows; places.len()])
    }

    /// The gradient at the inputs of [`Tape::products_by_head`].
    pub(super) fn products_by_head_back(
        &self,
        stack: &Stack,
        x: &[T],
        dy: &[T],
        mut weights: Option<&mut Collector<'_, T>>,
    ) -> Vec<T> {
        let (places, columns, rows) = self.stacked(stack);
        let heads = rows::split(x, &vec![columns; places.len()]);
        let dys = rows::split(dy, &vec![rows; places.len()]);
        let each = heads.iter().zip(dys).zip(&places);
        let dxs: Vec<_> =
            each.map(|((x, dy), place)| self.multiplied_back(place, x, &dy, weights.as_deref_mut())).collect();
        let parts: Vec<_> = dxs.iter().map(|dx| Some(&dx[..])).collect();
        rows::join(&parts, &vec![columns; places.len()])
    }

    /// The products of rows that are grouped by expert with the matrices of their expert.
    pub(super) fn products_of_experts(&self, stack: &Stack, operation: &Operation) -> Vec<T> {
        let (places, columns, width) = self.stacked(stack);
        let x = self.rows(operation.inputs[0]);
        let mut out = Vec::with_capacity(x.len() / columns.max(1) * width);
        for (expert, rows) in self.choice(operation.inputs[1]).rows.iter().enumerate() {
            if rows.is_empty() {
                continue;
            }
            let y = self.multiplied(places[expert], &x[rows.start * columns..rows.end * columns]);
            let mut y = scaled(y, stack.scales.as_ref().map(|scales| scales[expert]));
            if let Some(biases) = &stack.biases {
                y = by_column(y, width, |y, i| y + T::single(biases[expert * width + i]));
            }
            out.append(&mut y);
        }
        out
    }

    /// The sum of the gradients at the inputs of [`Tape::products_of_experts`] with several stacks.
    pub(super) fn products_of_experts_back(
        &self,
        stacks: &[Stack],
        operation: &Operation,
        given: Vec<Option<Vec<T>>>,
        mut weights: Option<&mut Collector<'_, T>>,
    ) -> Vec<T> {
        let x = self.rows(operation.inputs[0]);
        let mut dx = vec![T::default(); x.len()];
        for (stack, dy) in stacks.iter().zip(given) {
            let (places, columns, width) = self.stacked(stack);
            let dy = dy.unwrap_or_default();
            for (expert, rows) in self.choice(operation.inputs[1]).rows.iter().enumerate() {
                if rows.is_empty() || dy.is_empty() {
                    continue;
                }
                let dy = dy[rows.start * width..rows.end * width].to_vec();
                let dy = scaled(dy, stack.scales.as_ref().map(|scales| scales[expert]));
                let inputs = rows.start * columns..rows.end * columns;
                let d = self.multiplied_back(places[expert], &x[inputs.clone()], &dy, weights.as_deref_mut());
                add(&mut dx[inputs], &d);
            }
        }
        dx
    }
}

/// `y * factor`, or `y` where there is none.
fn scaled<T: Real>(y: Vec<T>, factor: Option<f32>) -> Vec<T> {
    match factor {
        Some(factor) => map(y, |y| y * T::single(factor)),
        None => y,
    }
}
