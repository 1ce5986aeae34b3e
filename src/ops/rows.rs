//! Parts of rows: taken apart, put side by side, repeated, and combined with a row of constants.

use crate::kernels::Floats;
use crate::pool;

/// A copy in working memory.
pub fn copy(x: &[f32]) -> Floats {
    let mut y = Floats::scratch(x.len());
    y.copy_from_slice(x);
    y
}

/// The parts of rows of `widths`, one after the other: each `[rows][width]`.
pub fn split(x: &[f32], widths: &[usize]) -> Vec<Floats> {
    let all: usize = widths.iter().sum();
    let rows = x.len() / all.max(1);
    let mut from = 0;
    let mut part = |&width: &usize| {
        let mut out = Floats::scratch(rows * width);
        let at_once = at_once(width);
        pool::chunks_mut(&mut out, at_once * width, |i, out| {
            let x = x[i * at_once * all..].chunks_exact(all);
            out.chunks_exact_mut(width).zip(x).for_each(|(to, row)| to.copy_from_slice(&row[from..from + width]));
        });
        from += width;
        out
    };
    widths.iter().map(&mut part).collect()
}

/// Rows that join parts of these widths side by side.
pub fn join(parts: &[&[f32]], widths: &[usize]) -> Floats {
    let all: usize = widths.iter().sum();
    let mut out = Floats::scratch(parts.iter().map(|part| part.len()).sum());
    let at_once = at_once(all);
    pool::chunks_mut(&mut out, at_once * all, |i, out| {
        for (row, mut out) in out.chunks_exact_mut(all.max(1)).enumerate() {
            for (part, &width) in parts.iter().zip(widths) {
                let (to, rest) = out.split_at_mut(width);
                to.copy_from_slice(&part[(i * at_once + row) * width..][..width]);
                out = rest;
            }
        }
    });
    out
}

/// The row before each of `x`, of which that before the first is `state`; it becomes the last one.
pub fn shift(x: &[f32], state: &mut [f32]) -> Floats {
    let (width, last) = (state.len(), x.len().saturating_sub(state.len()));
    let mut out = Floats::scratch(x.len());
    out[..width].copy_from_slice(state);
    out[width..].copy_from_slice(&x[..last]);
    state.copy_from_slice(&x[last..]);
    out
}

/// Every `width` elements of `x`, `times` times.
pub fn repeat(x: &[f32], width: usize, times: usize) -> Floats {
    let mut out = Floats::scratch(x.len() * times);
    pool::chunks_mut(&mut out, width * times, |i, out| {
        let x = &x[i * width..][..width];
        out.chunks_exact_mut(width.max(1)).for_each(|to| to.copy_from_slice(x));
    });
    out
}

/// Rows of `n` elements: those of the rows of `x` at `places`, and minus infinity elsewhere.
pub fn spread(x: &[f32], places: &[u32], n: usize) -> Floats {
    let mut out = Floats::scratch(x.len() / places.len().max(1) * n);
    out.fill(f32::NEG_INFINITY);
    for (out, row) in out.chunks_exact_mut(n.max(1)).zip(x.chunks_exact(places.len().max(1))) {
        places.iter().zip(row).for_each(|(&place, x)| out[place as usize] = *x);
    }
    out
}

/// `x += y * row`, for every row of `x`.
pub fn multiply_add(x: &mut [f32], y: &[f32], row: &[f32]) {
    let at_once = at_once(row.len());
    pool::chunks_mut(x, at_once * row.len(), |i, x| {
        let y = y[i * at_once * row.len()..].chunks_exact(row.len());
        for (x, y) in x.chunks_exact_mut(row.len()).zip(y) {
            x.iter_mut().zip(y).zip(row).for_each(|((x, y), d)| *x += y * d);
        }
    });
}

/// The root, with the sign, of the dot products of every `width` elements of `x` and of `y` (Qwen 4): products in
/// `f32`, added up in `f64` in order and rounded, times `1 / sqrt(width)`; its magnitude is at least 1e-6 before the
/// root, and 0 stays 0.
pub fn rooted_dots(x: &[f32], y: &[f32], width: usize) -> Floats {
    const LEAST: f32 = 1e-6;
    let inverse = 1.0 / (width as f32).sqrt();
    let mut out = Floats::scratch(x.len() / width.max(1));
    let at_once = at_once(width);
    pool::chunks_mut(&mut out, at_once, |i, out| {
        let rows = x[i * at_once * width..].chunks_exact(width).zip(y[i * at_once * width..].chunks_exact(width));
        for (out, (x, y)) in out.iter_mut().zip(rows) {
            let sum = x.iter().zip(y).fold(0f64, |sum, (x, y)| sum + f64::from(x * y)) as f32;
            let dot = sum * inverse;
            let magnitude = dot.abs();
            let root = if magnitude > LEAST { magnitude } else { LEAST }.sqrt();
            let sign = f32::from(i8::from(dot > 0.0) - i8::from(dot < 0.0));
            *out = sign * root;
        }
    });
    out
}

/// Every `width` elements of `x` times the length of those of `y`, and then divided by their own; `times` rows of `x`
/// follow each other for one of `y` (Gemma 3n). Squares are added up in `f64` in order.
pub fn as_long(x: &mut [f32], y: &[f32], width: usize) {
    let length = |row: &[f32]| (row.iter().fold(0f64, |sum, x| sum + f64::from(x * x)) as f32).sqrt();
    let times = x.len() / y.len().max(1);
    let all = times * width;
    let at_once = at_once(all);
    pool::chunks_mut(x, at_once * all, |i, x| {
        let ys = y[i * at_once * width..].chunks_exact(width.max(1));
        for (x, y) in x.chunks_exact_mut(all.max(1)).zip(ys) {
            let wanted = length(y);
            for row in x.chunks_exact_mut(width) {
                let own = length(row);
                row.iter_mut().for_each(|x| *x = *x * wanted / own);
            }
        }
    });
}

/// The part of every row of `width` elements that is above a bound, and 0 for the rest (Gemma 3n). The bound is the row's
/// mean and `factor` standard deviations: of normally distributed elements a known part is above it. Sums are added up
/// in `f64` in order; all else is in `f32`, the variance a product with the rounded inverse of `width - 1`.
pub fn cutoff(x: &mut [f32], width: usize, factor: f32) {
    let at_once = at_once(width);
    let inverse = 1.0 / (width as f32 - 1.0);
    pool::chunks_mut(x, at_once * width, |_, x| {
        for row in x.chunks_exact_mut(width.max(1)) {
            let sum = row.iter().fold(0f64, |sum, &x| sum + f64::from(x)) as f32;
            let mean = sum / width as f32;
            let squares = row.iter().map(|x| (x - mean) * (x - mean));
            let squares = squares.fold(0f64, |sum, square| sum + f64::from(square)) as f32;
            let bound = mean + (squares * inverse).sqrt() * factor;
            row.iter_mut().for_each(|x| *x = (*x - bound).max(0.0));
        }
    });
}

/// Rows of `width` elements that are worth a task.
fn at_once(width: usize) -> usize {
    super::CHUNK.div_ceil(width.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_apart_and_put_together() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let parts = split(&x, &[1, 2]);
        assert_eq!((&*parts[0], &*parts[1]), (&[1.0, 4.0][..], &[2.0, 3.0, 5.0, 6.0][..]));
        assert_eq!(*join(&[&parts[0], &parts[1]], &[1, 2]), x);
        let parts = split(&x, &[0, 3]);
        assert!(parts[0].is_empty());
        assert_eq!(*join(&[&parts[0], &parts[1]], &[0, 3]), x);
        assert_eq!(*repeat(&x[..4], 2, 2), [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
    }

    #[test]
    fn rows_are_shifted_by_one_however_they_are_cut() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let mut state = [8.0, 9.0];
        assert_eq!(*shift(&x, &mut state), [8.0, 9.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(state, [5.0, 6.0]);
        let mut state = [8.0, 9.0];
        let parts: Vec<f32> = x.chunks(2).flat_map(|x| shift(x, &mut state).to_vec()).collect();
        assert_eq!((&parts[..], state), (&[8.0, 9.0, 1.0, 2.0, 3.0, 4.0][..], [5.0, 6.0]));
    }

    #[test]
    fn dot_products_have_roots_with_their_signs() {
        let x = [1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 1e-9, 0.0];
        let y = [2.0, 3.0, -1.0, 0.5, 1.0, 1.0, 1.0, 1.0];
        let inverse = 1.0 / 2f32.sqrt();
        let expected = [(8.0 * inverse).sqrt(), -(1.0 * inverse).sqrt(), 0.0, 1e-6f32.sqrt()];
        assert_eq!(*rooted_dots(&x, &y, 2), expected);
    }

    #[test]
    fn rows_get_the_length_of_others() {
        let mut x = [3.0, 4.0, 0.0, 2.0, 1.0, 0.0, 5.0, 12.0];
        as_long(&mut x, &[0.0, 10.0, -3.0, 4.0], 2);
        assert_eq!(x, [6.0, 8.0, 0.0, 10.0, 5.0, 0.0, 25.0 / 13.0, 60.0 / 13.0]);
    }

    #[test]
    fn elements_are_cut_off_at_mean_and_deviation() {
        // mean 2, deviation 2, then mean 1 and deviation 0
        let mut x = [0.0, 2.0, 4.0, 1.0, 1.0, 1.0];
        cutoff(&mut x, 3, 0.5);
        assert_eq!(x, [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
        let mut x = [0.0, 2.0, 4.0];
        cutoff(&mut x, 3, -2.0);
        assert_eq!(x, [2.0, 4.0, 6.0]);
    }

    #[test]
    fn long_rows_are_the_same_whatever_the_tasks() {
        let x: Vec<f32> = (0..7 * 9001).map(|i| i as f32).collect();
        let pool = pool::Pool::new(3).expect("threads");
        let (parts, joined) = pool.install(|| {
            let parts = split(&x, &[3, 4]);
            let joined = join(&[&parts[0], &parts[1]], &[3, 4]);
            (parts, joined)
        });
        assert!(*joined == *x && parts[1][4 * 9000..] == x[7 * 9000 + 3..]);
        let mut sum = x.clone();
        multiply_add(&mut sum, &x, &[1.0; 7]);
        assert!(sum.iter().zip(&x).all(|(s, x)| *s == 2.0 * x));
    }
}
