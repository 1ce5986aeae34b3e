//! The real matrix that the stages add up to.

use super::{Shape, axis_is_imaginary, is_positive, unpack_row};

/// Rows `row` and `rows + row` of the real matrix, each of `2 · columns` weights, from the words of complex row `row`
/// and the scales of the whole matrix. Stages are added in order in single precision, then `U` and `W`:
///
/// ```text
/// A11 = U_re + W_re   A12 = W_im − U_im
/// A21 = W_im + U_im   A22 = U_re − W_re
/// ```
///
/// # Panics
/// When a length does not fit the shape.
pub fn dense_rows(shape: &Shape, row: usize, words: &[u32], scales: &[f32], top: &mut [f32], bottom: &mut [f32]) {
    let m = shape.columns;
    assert_eq!(words.len(), shape.row_words(), "words of a row");
    assert_eq!((top.len(), bottom.len()), (2 * m, 2 * m), "rows");
    let mut parts = [(); 2].map(|()| (vec![0.0f32; m], vec![0.0f32; m]));
    for (half, (re, im)) in parts.iter_mut().enumerate() {
        for stage in 0..shape.stages {
            let stream = half * shape.stages + stage;
            for (j, code) in unpack_row(shape, stream, words).enumerate() {
                let tile = j / super::TILE % shape.tiles();
                let scales = shape.scales_of(scales, row, tile);
                let imaginary = axis_is_imaginary(code);
                let scale = scales[2 * stream + usize::from(imaginary)];
                let value = if is_positive(code) { scale } else { -scale };
                match imaginary {
                    true => im[j] += value,
                    false => re[j] += value,
                }
            }
        }
    }
    let [(u_re, u_im), (w_re, w_im)] = &parts;
    for j in 0..m {
        top[j] = u_re[j] + w_re[j];
        top[m + j] = w_im[j] - u_im[j];
        bottom[j] = w_im[j] + u_im[j];
        bottom[m + j] = u_re[j] - w_re[j];
    }
}
