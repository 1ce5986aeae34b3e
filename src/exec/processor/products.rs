//! Products with matrices.

use super::pass::Pass;
use crate::kernels::Floats;
use crate::ops;
use crate::ops::activation::Activation;
use crate::ops::gated::gated;
use crate::ops::matmul::{Activations, Matrix, matmul};
use crate::program::{LowRank, MatrixId, Product, Stack, Value};

impl Pass<'_, '_, '_> {
    pub(super) fn matrix(&self, id: MatrixId) -> &Matrix {
        self.processor.matrix(id)
    }

    /// Rows of `columns` values, to be multiplied with weights.
    pub(super) fn activations<'x>(&self, x: &'x [f32], columns: usize) -> Activations<'x> {
        let acts = Activations::new(x, columns, self.isa());
        acts.at_width(self.options.setting.bits).observed_by(self.options.observer.clone())
    }

    /// The rows of a value, whose forms all products share.
    fn activations_of(&self, x: Value, matrix: MatrixId) -> Activations<'_> {
        let (x, forms) = self.values.with_forms(x);
        self.activations(x, self.matrix(matrix).cols).sharing(forms)
    }

    /// Products of the rows of a value.
    pub(super) fn products<const N: usize>(&self, x: Value, products: [&Product; N]) -> [Floats; N] {
        self.multiply(&self.activations_of(x, products[0].matrix), products)
    }

    /// Products of the same rows, with their factors and adapters.
    fn multiply<const N: usize>(&self, acts: &Activations<'_>, products: [&Product; N]) -> [Floats; N] {
        for product in products.iter().filter(|product| product.observed) {
            acts.observe(&self.program.matrix(product.matrix).tensor);
        }
        let mut ys = matmul(products.map(|product| self.matrix(product.matrix)), acts);
        for (y, product) in ys.iter_mut().zip(products) {
            if let Some(scale) = product.scale {
                ops::scale(y, scale);
            }
            self.adapt(&product.adapters, acts, y);
        }
        ys
    }

    /// Adds what adapters make of the rows.
    pub(super) fn adapt(&self, adapters: &[LowRank], acts: &Activations<'_>, y: &mut [f32]) {
        for adapter in adapters {
            self.add_from_low(adapter, y, || {
                let [low] = matmul([self.matrix(adapter.a)], acts);
                low
            });
        }
    }

    /// Adds what an adapter makes of rows of `rank` numbers, which are not asked for where it adds nothing.
    pub(super) fn add_from_low(&self, adapter: &LowRank, y: &mut [f32], low: impl FnOnce() -> Floats) {
        let b = self.matrix(adapter.b);
        if let Some(factor) = adapter.factor(self.options.setting.adapters.as_ref(), b.cols) {
            let [mut more] = matmul([b], &Activations::new(&low(), b.cols, self.isa()));
            ops::scale(&mut more, factor);
            ops::add(y, &more);
        }
    }

    /// The products of a gated network: in one region of the pool where that can be, else one after the other.
    pub(super) fn gated_products(&self, x: Value, products: &[Product; 3], activation: Activation) -> Floats {
        let [gate, up, down] = products;
        let acts = self.activations_of(x, gate.matrix);
        let both = [gate, up].map(|product| self.matrix(product.matrix));
        let last = self.matrix(down.matrix);
        if let Some(inner) = gated(both, activation, last, &acts) {
            let [y] = self.multiply(&inner, [down]);
            return y;
        }
        let [mut inner, ups] = self.multiply(&acts, [gate, up]);
        activation.gate(self.isa(), &mut inner, &ups);
        drop(ups);
        let [y] = self.multiply(&self.activations(&inner, last.cols), [down]);
        y
    }

    /// Every head's rows of `x`, `[tokens][heads][width]`, multiplied by its matrix.
    pub(super) fn products_by_head(&self, x: &[f32], stack: &Stack) -> Floats {
        let heads = stack.matrices.len();
        let (rows, width) = (self.matrix(stack.matrix(0)).rows, self.matrix(stack.matrix(0)).cols);
        let all = heads * rows;
        let mut out = Floats::scratch(x.len() / width.max(1) * rows);
        for head in 0..heads {
            let of_head = x.chunks_exact(width).skip(head).step_by(heads);
            let of_head: Vec<f32> = of_head.flatten().copied().collect();
            let acts = self.activations(&of_head, width);
            if stack.observed {
                acts.observe_expert(&self.program.matrix(stack.matrix(head)).tensor, head, heads);
            }
            let [y] = matmul([self.matrix(stack.matrix(head))], &acts);
            for (to, y) in out.chunks_exact_mut(all).zip(y.chunks_exact(rows)) {
                to[head * rows..][..rows].copy_from_slice(y);
            }
        }
        out
    }
}
