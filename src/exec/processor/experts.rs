//! Mixtures of experts: rows are grouped by expert, so that each weight is read once for all rows of its expert; an
//! expert that no token chose is not read.

use super::pass::Pass;
use crate::kernels::Floats;
use crate::ops;
use crate::ops::matmul::matmul;
use crate::program::{Stack, Value};

impl Pass<'_, '_, '_> {
    /// Products of rows that are grouped by expert with the matrices of their expert, for each of several stacks.
    pub(super) fn products_of_experts<const N: usize>(
        &self,
        x: Value,
        choice: Value,
        stacks: [&Stack; N],
    ) -> [Floats; N] {
        let (x, choice) = (self.values.get(x), self.values.choice(choice));
        let sizes = |stack: &Stack| (self.matrix(stack.matrix(0)).rows, self.matrix(stack.matrix(0)).cols);
        let rows = choice.places.len();
        let mut outs = stacks.map(|stack| Floats::scratch(rows * sizes(stack).0));
        let columns = sizes(stacks[0]).1;
        for (expert, rows) in choice.rows.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let acts = self.activations(&x[rows.start * columns..rows.end * columns], columns);
            for stack in stacks.iter().filter(|stack| stack.observed) {
                let tensor = &self.program.matrix(stack.matrix(expert)).tensor;
                acts.observe_expert(tensor, expert, stack.matrices.len());
            }
            let ys = matmul(stacks.map(|stack| self.matrix(stack.matrix(expert))), &acts);
            for ((stack, mut y), out) in stacks.iter().zip(ys).zip(&mut outs) {
                if let Some(scales) = &stack.scales {
                    ops::scale(&mut y, scales[expert]);
                }
                self.adapt(&stack.adapters[expert], &acts, &mut y);
                let width = sizes(stack).0;
                if let Some(biases) = &stack.biases {
                    ops::add_rows(&mut y, &biases[expert * width..][..width]);
                }
                out[rows.start * width..rows.end * width].copy_from_slice(&y);
            }
        }
        outs
    }
}
