//! Sums of `x x^T`.

use rayon::prelude::*;

use super::BLOCK;
use crate::kernels::Isa;
use crate::kernels::gemm::{COLUMNS, ROWS, tile};

/// Rows of the result that a task owns: it reads every panel once for all of them.
const TASK: usize = 4 * ROWS;

/// Elements of the lower triangle of `n` columns; row `i` starts at `triangle(i)` and has `i + 1` elements.
pub fn triangle(n: usize) -> usize {
    n * (n + 1) / 2
}

/// Adds `x x^T` of every row `x` of `rows`, `[tokens][columns]`, to the lower triangle `sums`, in parallel.
///
/// The products of a block of [`BLOCK`] rows are summed in `f32` in order, each rounded before it is added; the blocks
/// are added to the `f64` sums one after the other.
///
/// # Panics
/// When `rows` are no whole rows or `sums` is no triangle of `columns` columns.
pub fn add_gram(isa: Isa, rows: &[f32], columns: usize, sums: &mut [f64]) {
    assert!(rows.len().is_multiple_of(columns.max(1)), "whole rows");
    assert_eq!(sums.len(), triangle(columns), "a triangle");
    for block in rows.chunks(BLOCK * columns.max(1)) {
        let lines = interleave::<ROWS>(block, columns);
        let panels = interleave::<COLUMNS>(block, columns);
        let mut tasks = Vec::with_capacity(columns.div_ceil(TASK));
        let mut rest = &mut *sums;
        for first in (0..columns).step_by(TASK) {
            let last = (first + TASK).min(columns);
            let (task, after) = rest.split_at_mut(triangle(last) - triangle(first));
            tasks.push((first, task));
            rest = after;
        }
        let tokens = block.len() / columns.max(1);
        tasks.into_par_iter().for_each(|(first, sums)| {
            add_rows(isa, &lines, &panels, tokens, first, columns, sums);
        });
    }
}

/// Adds the products of a block to the rows of the result from `first` on.
fn add_rows(isa: Isa, lines: &[f32], panels: &[f32], tokens: usize, first: usize, columns: usize, sums: &mut [f64]) {
    let last = (first + TASK).min(columns);
    let start = triangle(first);
    for (p, panel) in panels.chunks_exact(tokens * COLUMNS).enumerate() {
        let column = p * COLUMNS;
        if column >= last {
            break;
        }
        let groups = lines.chunks_exact(tokens * ROWS).skip(first / ROWS);
        for (group, line) in groups.take(TASK / ROWS).enumerate() {
            let products = tile(isa, line, panel);
            for (i, products) in products.iter().enumerate() {
                let row = first + group * ROWS + i;
                if row >= last || row < column {
                    continue;
                }
                let width = COLUMNS.min(row + 1 - column);
                let sums = &mut sums[triangle(row) - start + column..][..width];
                for (sum, product) in sums.iter_mut().zip(products) {
                    *sum += f64::from(*product);
                }
            }
        }
    }
}

/// Columns in groups of `N`, within a group row after row; zeros fill up the last group.
fn interleave<const N: usize>(rows: &[f32], columns: usize) -> Vec<f32> {
    let tokens = rows.len() / columns.max(1);
    let mut out = vec![0.0; columns.div_ceil(N) * N * tokens];
    out.par_chunks_mut((N * tokens).max(1)).enumerate().for_each(|(group, out)| {
        let width = N.min(columns - group * N);
        let rows = rows.chunks_exact(columns);
        for (to, row) in out.as_chunks_mut::<N>().0.iter_mut().zip(rows) {
            to[..width].copy_from_slice(&row[group * N..][..width]);
        }
    });
    out
}
