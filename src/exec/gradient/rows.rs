//! Rows: parts of them, RoPE, rotations, and several streams side by side, with their derivatives.

use rayon::prelude::*;

use super::elements::{add, dot, sigmoid, sigmoid_slope};
use super::real::Real;
use crate::ops::hadamard::Hadamard;
use crate::ops::rope::{Pairing, Rope};
use crate::ops::streams::Streams;

/// The parts of rows of `widths`, one after the other.
pub fn split<T: Real>(x: &[T], widths: &[usize]) -> Vec<Vec<T>> {
    let all: usize = widths.iter().sum();
    let mut from = 0;
    let parts = widths.iter().map(|width| {
        let columns = from..from + width;
        from += width;
        x.chunks_exact(all.max(1)).flat_map(|row| &row[columns.clone()]).copied().collect()
    });
    parts.collect()
}

/// Rows of parts side by side; parts that are absent are 0.
pub fn join<T: Real>(parts: &[Option<&[T]>], widths: &[usize]) -> Vec<T> {
    let mut wide = parts.iter().zip(widths).filter(|(_, width)| **width > 0);
    let rows = wide.find_map(|(part, width)| part.map(|part| part.len() / width));
    let mut out = Vec::new();
    for row in 0..rows.unwrap_or(0) {
        for (part, width) in parts.iter().zip(widths) {
            match part {
                Some(part) => out.extend_from_slice(&part[row * width..][..*width]),
                None => out.resize(out.len() + width, T::default()),
            }
        }
    }
    out
}

/// Every `width` elements, `times` times.
pub fn repeat<T: Real>(x: &[T], width: usize, times: usize) -> Vec<T> {
    x.chunks_exact(width).flat_map(|part| std::iter::repeat_n(part, times).flatten()).copied().collect()
}

/// The sums of every `times` parts of `width` elements.
pub fn repeat_back<T: Real>(dy: &[T], width: usize, times: usize) -> Vec<T> {
    let mut dx = vec![T::default(); dy.len() / times];
    for (dx, dy) in dx.chunks_exact_mut(width).zip(dy.chunks_exact(width * times)) {
        dy.chunks_exact(width).for_each(|dy| add(dx, dy));
    }
    dx
}

/// Which way RoPE turns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// By the position's angles.
    Forward,
    /// Back by them: the transposed matrix, which takes gradients through.
    Back,
}

/// RoPE on all heads of `x`, `[tokens][heads * head]`; `angles`: cosine and sine per position and pair.
pub fn rotate<T: Real>(x: &mut [T], head: usize, rope: &Rope, angles: &[Vec<(f32, f32)>], turn: Turn) {
    let (n, half, width) = (rope.n_rot, rope.n_rot / 2, x.len() / angles.len().max(1));
    x.par_chunks_mut(width.max(1)).enumerate().for_each(|(i, row)| {
        let pairs: Vec<(T, T)> = angles[i]
            .iter()
            .map(|&(cos, sin)| {
                let sin = if turn == Turn::Back { -sin } else { sin };
                (T::single(cos), T::single(sin))
            })
            .collect();
        let turned = |a: T, b: T, (c, s): (T, T)| (a * c - b * s, a * s + b * c);
        for head in row.chunks_exact_mut(head) {
            match rope.pairing {
                Pairing::Adjacent => {
                    for (x, &pair) in head[..n].chunks_exact_mut(2).zip(&pairs) {
                        (x[0], x[1]) = turned(x[0], x[1], pair);
                    }
                }
                Pairing::Halves => {
                    let (first, second) = head[..n].split_at_mut(half);
                    for ((a, b), &pair) in first.iter_mut().zip(second).zip(&pairs) {
                        (*a, *b) = turned(*a, *b, pair);
                    }
                }
            }
        }
    });
}

/// The rotated rows. Backwards it is the rotation the other way.
pub fn hadamard<T: Real>(rotation: &Hadamard, mut x: Vec<T>, inverse: bool) -> Vec<T> {
    let (block, row) = (rotation.block, rotation.signs.len().max(rotation.block));
    let signs = |row: &mut [T]| row.iter_mut().zip(&rotation.signs).for_each(|(v, &sign)| *v *= T::single(sign));
    let factor = T::of(1.0 / (block as f64).sqrt());
    x.par_chunks_mut(row).for_each(|row| {
        if !inverse {
            signs(row);
        }
        for block in row.chunks_exact_mut(block) {
            let mut half = 1;
            while half < block.len() {
                for pair in block.chunks_exact_mut(2 * half) {
                    let (first, second) = pair.split_at_mut(half);
                    first.iter_mut().zip(second).for_each(|(a, b)| (*a, *b) = (*a + *b, *a - *b));
                }
                half *= 2;
            }
            block.iter_mut().for_each(|v| *v *= factor);
        }
        if inverse {
            signs(row);
        }
    });
    x
}

/// A coefficient of hyper-connections before bounds: the number `i` of a token, what it is multiplied by included.
fn inner<T: Real>(streams: &Streams, numbers: &[T], i: usize) -> (T, T) {
    let scale = T::of(streams.scales[i / streams.count].into());
    (numbers[i] * scale + T::of(streams.bases[i].into()), scale)
}

/// The results of [`Streams::read`].
pub fn read_streams<T: Real>(streams: &Streams, x: &[T], numbers: &[T]) -> [Vec<T>; 2] {
    let (count, all) = (streams.count, streams.bases.len());
    let width = x.len() / (numbers.len() / all) / count;
    let (eps, magnitude) = (T::single(streams.eps), T::single(streams.magnitude));
    let mut read = vec![T::default(); x.len() / count];
    let mut written = Vec::new();
    for ((x, numbers), read) in x.chunks(count * width).zip(numbers.chunks(all)).zip(read.chunks_mut(width)) {
        let of = |i: usize| sigmoid(inner(streams, numbers, i).0);
        for (i, stream) in x.chunks_exact(width).enumerate() {
            let weight = of(i) + eps;
            read.iter_mut().zip(stream).for_each(|(y, &x)| *y += x * weight);
        }
        written.extend((count..all).map(|i| of(i) * magnitude + eps));
    }
    [read, written]
}

/// The gradients at the streams and at the numbers, from those at what is read and at the coefficients.
pub fn read_streams_back<T: Real>(
    streams: &Streams,
    x: &[T],
    numbers: &[T],
    [read, written]: [Option<&[T]>; 2],
) -> [Vec<T>; 2] {
    let (count, all) = (streams.count, streams.bases.len());
    let width = x.len() / (numbers.len() / all) / count;
    let (eps, magnitude) = (T::single(streams.eps), T::single(streams.magnitude));
    let (mut dx, mut d_numbers) = (vec![T::default(); x.len()], vec![T::default(); numbers.len()]);
    let rows = x.chunks(count * width).zip(numbers.chunks(all)).zip(dx.chunks_mut(count * width));
    for (token, (((x, numbers), dx), d_numbers)) in rows.zip(d_numbers.chunks_mut(all)).enumerate() {
        for (i, d_number) in d_numbers.iter_mut().enumerate() {
            let (z, scale) = inner(streams, numbers, i);
            let slope = sigmoid_slope(z) * scale;
            if i >= count {
                let d = written.map_or(T::default(), |d| d[token * (all - count) + i - count]);
                *d_number = d * magnitude * slope;
            } else if let Some(d) = read {
                let (d, weight) = (&d[token * width..][..width], sigmoid(z) + eps);
                *d_number = dot(d, &x[i * width..][..width]) * slope;
                dx[i * width..][..width].iter_mut().zip(d).for_each(|(dx, &d)| *dx = d * weight);
            }
        }
    }
    [dx, d_numbers]
}

/// `x`, and `y` added to each of `count` streams times its coefficient.
pub fn write_streams<T: Real>(mut x: Vec<T>, y: &[T], coefficients: &[T], count: usize) -> Vec<T> {
    let width = x.len() / coefficients.len();
    for (i, (stream, &coefficient)) in x.chunks_exact_mut(width).zip(coefficients).enumerate() {
        let y = &y[i / count * width..][..width];
        stream.iter_mut().zip(y).for_each(|(x, &y)| *x += y * coefficient);
    }
    x
}

/// The gradients at `y` and at the coefficients.
pub fn write_streams_back<T: Real>(dx: &[T], y: &[T], coefficients: &[T], count: usize) -> [Vec<T>; 2] {
    let width = dx.len() / coefficients.len();
    let mut dy = vec![T::default(); y.len()];
    let streams = dx.chunks_exact(width).zip(coefficients).enumerate();
    let at_coefficients = streams.map(|(i, (d, &coefficient))| {
        let row = i / count * width..(i / count + 1) * width;
        dy[row.clone()].iter_mut().zip(d).for_each(|(y, &d)| *y += d * coefficient);
        dot(d, &y[row])
    });
    let at_coefficients = at_coefficients.collect();
    [dy, at_coefficients]
}
