//! Rearranging matrices for the tiles of a product.

use crate::kernels::gemm::{COLUMNS, ROWS};

/// Panels that `columns` columns fill, the last perhaps in part.
pub fn panel_count(columns: usize) -> usize {
    columns.div_ceil(COLUMNS)
}

/// `rows` rows of `width` elements each, given by `element(row, column)`, as lines: groups of four rows, column after
/// column within a group. Rows that fill up the last group are zero.
pub fn pack_lines(rows: usize, width: usize, element: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    let mut lines = vec![0.0; rows.div_ceil(ROWS) * ROWS * width];
    for (group, line) in lines.chunks_exact_mut((ROWS * width).max(1)).enumerate() {
        for i in 0..ROWS.min(rows - group * ROWS) {
            for (k, to) in line.as_chunks_mut::<ROWS>().0.iter_mut().enumerate() {
                to[i] = element(group * ROWS + i, k);
            }
        }
    }
    lines
}
