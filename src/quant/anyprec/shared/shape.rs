//! The shape of a row: its eight centroids once it has size one, and the division of rows by it.

use rayon::prelude::*;

use super::rows::Rows;
use crate::quant::anyprec::cluster::{Clusterer, Method, Nesting};

/// Bits of the clusters that say what the shape of a row is.
const BITS: u8 = 3;
/// Centroids of a shape.
const POINTS: usize = 1 << BITS;
/// The most turns of the division.
const TURNS: usize = 25;

type Shape = [f64; POINTS];

/// The size of a row: the root of the weighed mean of its squares.
pub fn size(rows: &Rows<'_>, i: usize) -> f64 {
    let mut own = vec![0.0; rows.columns];
    rows.sensitivities.copy(i, &mut own);
    let row = rows.row(i);
    let weighed = |weigh: &dyn Fn(f32) -> f64| {
        let terms = row.iter().zip(&own).map(|(&w, &s)| (f64::from(w) * f64::from(w) * weigh(s), weigh(s)));
        terms.fold((0.0, 0.0), |sum, term| (sum.0 + term.0, sum.1 + term.1))
    };
    let (squares, all) = weighed(&|s| s.into());
    let (squares, all) = if squares > 0.0 { (squares, all) } else { weighed(&|_| 1.0) };
    (squares / all.max(f64::MIN_POSITIVE)).sqrt()
}

/// Divides rows into `count` classes of shapes by k-means, from the shapes that are farthest from each other. Rows of
/// zeros are in the first.
pub fn classes(rows: &Rows<'_>, sizes: &[f64], count: usize) -> Vec<usize> {
    let nesting = Nesting { seed_bits: BITS, parent_bits: BITS };
    let scratch = || (Clusterer::new(nesting, Method::Exact), vec![0.0; rows.columns], vec![0; rows.columns]);
    let shapes: Vec<Shape> = sizes
        .par_iter()
        .enumerate()
        .map_init(scratch, |(clusterer, own, codes), (i, &size)| {
            if size == 0.0 {
                return [0.0; POINTS];
            }
            rows.sensitivities.copy(i, own);
            let row: Vec<f32> = rows.row(i).iter().map(|&w| (f64::from(w) / size) as f32).collect();
            match clusterer.cluster(&row, own, codes) {
                Ok(()) => std::array::from_fn(|c| clusterer.luts()[0][c].into()),
                // Beyond half precision once it has size one.
                Err(_) => [0.0; POINTS],
            }
        })
        .collect();
    divide(&shapes, count)
}

fn distance(a: &Shape, b: &Shape) -> f64 {
    a.iter().zip(b).fold(0.0, |sum, (a, b)| sum + (a - b) * (a - b))
}

/// The number of the nearest centre, the first of equals, and how far it is.
fn nearest(centres: &[Shape], shape: &Shape) -> (usize, f64) {
    let distances = centres.iter().map(|c| distance(c, shape)).enumerate();
    distances.fold((0, f64::INFINITY), |best, next| if next.1 < best.1 { next } else { best })
}

fn divide(shapes: &[Shape], count: usize) -> Vec<usize> {
    let mut centres: Vec<Shape> = shapes.first().copied().into_iter().collect();
    while centres.len() < count.min(shapes.len()) {
        let far = shapes.iter().map(|s| nearest(&centres, s).1).enumerate();
        let far = far.fold((0, -1.0), |best, next| if next.1 > best.1 { next } else { best });
        centres.push(shapes[far.0]);
    }
    let mut classes = Vec::new();
    for _ in 0..TURNS {
        let now: Vec<usize> = shapes.iter().map(|s| nearest(&centres, s).0).collect();
        if now == classes {
            break;
        }
        classes = now;
        for (c, centre) in centres.iter_mut().enumerate() {
            let own = classes.iter().zip(shapes).filter(|(class, _)| **class == c);
            let (sum, n) = own.fold(([0.0; POINTS], 0.0), |(mut sum, n), (_, shape)| {
                sum.iter_mut().zip(shape).for_each(|(s, x)| *s += x);
                (sum, n + 1.0)
            });
            if n > 0.0 {
                *centre = sum.map(|s| s / n);
            }
        }
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_differ_are_told_apart() {
        let shapes: Vec<Shape> = (0..30).map(|i| [f64::from(i % 3) * 10.0 + f64::from(i) * 0.01; POINTS]).collect();
        let classes = divide(&shapes, 3);
        for i in 0..30 {
            assert_eq!(classes[i], classes[i % 3], "{i}");
        }
        let mut seen = classes[..3].to_vec();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2]);
        // More classes than shapes.
        assert_eq!(divide(&shapes[..2], 8).len(), 2);
    }
}
