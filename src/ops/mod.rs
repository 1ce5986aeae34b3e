//! The operations of a forward pass, each with its summation order in its documentation.
//!
//! All of them work on `[tokens][width]` rows of `f32`. Tokens are independent apart from the KV
//! cache, and every output has one fixed chain of roundings, so neither the number of threads nor the
//! batch can change a bit.

pub mod activation;
mod activations;
pub mod apart;
pub mod attention;
pub mod compress;
pub mod convolution;
pub mod delta;
pub mod experts;
pub mod gated;
pub mod hadamard;
pub mod lightning;
pub mod matmul;
pub mod ngrams;
pub mod norm;
pub mod observe;
pub(crate) mod order;
pub mod product;
pub mod rope;
pub mod rows;
pub mod scan;
pub mod soft_max;
pub mod streams;
pub mod switch;
pub mod wkv;

use crate::pool;

/// Elements handed to a thread at a time.
const CHUNK: usize = 1 << 14;

/// `x += y`, element by element: the residual and bias additions.
pub fn add(x: &mut [f32], y: &[f32]) {
    debug_assert_eq!(x.len(), y.len());
    pool::chunks_mut(x, CHUNK, |i, x| {
        for (a, b) in x.iter_mut().zip(&y[i * CHUNK..]) {
            *a += b;
        }
    });
}

/// `x *= y`, element by element.
pub fn multiply(x: &mut [f32], y: &[f32]) {
    debug_assert_eq!(x.len(), y.len());
    pool::chunks_mut(x, CHUNK, |i, x| {
        for (a, b) in x.iter_mut().zip(&y[i * CHUNK..]) {
            *a *= b;
        }
    });
}

/// Adds `bias` to every row of `x`.
pub fn add_rows(x: &mut [f32], bias: &[f32]) {
    pool::chunks_mut(x, bias.len(), |_, row| {
        row.iter_mut().zip(bias).for_each(|(v, b)| *v += b);
    });
}

/// Divides every row of `x` by `divisors`, element by element.
pub fn divide_rows(x: &mut [f32], divisors: &[f32]) {
    pool::chunks_mut(x, divisors.len(), |_, row| {
        row.iter_mut().zip(divisors).for_each(|(v, d)| *v /= d);
    });
}

/// `f(x)`, element by element.
pub fn map(x: &mut [f32], f: impl Fn(f32) -> f32 + Sync) {
    pool::chunks_mut(x, CHUNK, |_, x| x.iter_mut().for_each(|v| *v = f(*v)));
}

/// `x = tanh(x / cap) * cap`, where the quotient is the product with the rounded inverse (ggml `ggml_scale`, `ggml_tanh`).
pub fn soft_cap(x: &mut [f32], cap: f32) {
    map(x, |v| crate::math::tanhf(v * (1.0 / cap)) * cap);
}

/// `x` within `bound` of 0 (ggml `ggml_clamp`): NaN becomes the upper bound.
pub fn clamp(x: &mut [f32], bound: f32) {
    let least = |a: f32, b: f32| if a < b { a } else { b };
    let most = |a: f32, b: f32| if a > b { a } else { b };
    pool::chunks_mut(x, CHUNK, |_, x| {
        x.iter_mut().for_each(|v| *v = most(least(*v, bound), -bound));
    });
}

/// `x *= s`.
pub fn scale(x: &mut [f32], s: f32) {
    pool::chunks_mut(x, CHUNK, |_, x| x.iter_mut().for_each(|v| *v *= s));
}
