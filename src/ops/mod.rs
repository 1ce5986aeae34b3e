//! The operations of a forward pass, each with its summation order in its documentation.
//!
//! All of them work on `[tokens][width]` rows of `f32`. Tokens are independent apart from the KV
//! cache, and every output has one fixed chain of roundings, so neither the number of threads nor the
//! batch can change a bit.

pub mod activation;
pub mod attention;
pub mod matmul;
pub mod norm;
pub mod observe;
pub mod rope;

/// `x += y`, element by element: the residual and bias additions.
pub fn add(x: &mut [f32], y: &[f32]) {
    debug_assert_eq!(x.len(), y.len());
    for (a, b) in x.iter_mut().zip(y) {
        *a += b;
    }
}

/// Adds `bias` to every row of `x`.
pub fn add_rows(x: &mut [f32], bias: &[f32]) {
    x.chunks_exact_mut(bias.len())
        .for_each(|row| add(row, bias));
}

/// `x *= s`.
pub fn scale(x: &mut [f32], s: f32) {
    x.iter_mut().for_each(|v| *v *= s);
}
