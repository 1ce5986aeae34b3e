//! Operations on single elements, and their derivatives.

use rayon::prelude::*;

use super::real::Real;
use crate::ops::activation::{Activation, HeadGate};

/// Elements handed to a thread at a time.
const CHUNK: usize = 1 << 14;

/// `f(x)`, in place.
pub fn map<T: Real>(mut x: Vec<T>, f: impl Fn(T) -> T + Sync) -> Vec<T> {
    x.par_chunks_mut(CHUNK).for_each(|x| x.iter_mut().for_each(|x| *x = f(*x)));
    x
}

/// `f(x, y)`, over `x`.
pub fn zip<T: Real>(mut x: Vec<T>, y: &[T], f: impl Fn(T, T) -> T + Sync) -> Vec<T> {
    debug_assert_eq!(x.len(), y.len());
    x.par_chunks_mut(CHUNK).zip(y.par_chunks(CHUNK)).for_each(|(x, y)| {
        x.iter_mut().zip(y).for_each(|(x, &y)| *x = f(*x, y));
    });
    x
}

/// `f(x, number of the element in its row)`, in place, for rows of `width` elements.
pub fn by_column<T: Real>(mut x: Vec<T>, width: usize, f: impl Fn(T, usize) -> T + Sync) -> Vec<T> {
    let rows = x.par_chunks_mut(width.max(1));
    rows.for_each(|row| row.iter_mut().enumerate().for_each(|(i, x)| *x = f(*x, i)));
    x
}

/// `f(x, number of the row)`, in place, for rows of `width` elements.
pub fn by_row<T: Real>(mut x: Vec<T>, width: usize, f: impl Fn(T, usize) -> T + Sync) -> Vec<T> {
    let rows = x.par_chunks_mut(width.max(1)).enumerate();
    rows.for_each(|(i, row)| row.iter_mut().for_each(|x| *x = f(*x, i)));
    x
}

/// `x += y`.
pub fn add<T: Real>(x: &mut [T], y: &[T]) {
    debug_assert_eq!(x.len(), y.len());
    x.iter_mut().zip(y).for_each(|(x, &y)| *x += y);
}

/// The sum of `x * y`, in order, in `f64`.
pub fn dot<T: Real>(x: &[T], y: &[T]) -> T {
    T::of(x.iter().zip(y).fold(0.0, |s, (x, y)| s + (*x * *y).wide()))
}

/// `1 / (1 + e^-x)`.
pub fn sigmoid<T: Real>(x: T) -> T {
    let one = T::of(1.0);
    one / (one + (-x).exp())
}

/// The slope of [`sigmoid`].
pub fn sigmoid_slope<T: Real>(x: T) -> T {
    let s = sigmoid(x);
    s * (T::of(1.0) - s)
}

/// Value and slope of `tanh(x / cap) * cap`.
pub fn soft_cap<T: Real>(x: T, cap: f32) -> (T, T) {
    let (cap, inverse) = (T::single(cap), T::of(1.0 / f64::from(cap)));
    let t = (x * inverse).tanh();
    (t * cap, T::of(1.0) - t * t)
}

/// `x` within `bound` of 0, and its slope.
pub fn clamp<T: Real>(x: T, bound: f32) -> (T, T) {
    let bound = T::single(bound);
    match (x < -bound, x > bound) {
        (true, _) => (-bound, T::default()),
        (_, true) => (bound, T::default()),
        _ => (x, T::of(1.0)),
    }
}

/// `x`, but at most `bound`, and its slope.
fn at_most<T: Real>(x: T, bound: f32) -> (T, T) {
    let bound = T::single(bound);
    if x > bound { (bound, T::default()) } else { (x, T::of(1.0)) }
}

/// A gate's function that has a slope: `f(x)` is the product of what it makes of the gate and of what is gated.
pub trait Differentiable: Copy + Sync {
    /// The factor that the gate makes, and its slope.
    fn at_gate<T: Real>(self, x: T) -> (T, T);

    /// The factor that the gated value makes, and its slope.
    fn at_gated<T: Real>(self, up: T) -> (T, T);

    /// `f(gate) * up`.
    fn forward<T: Real>(self, gate: &[T], up: &[T]) -> Vec<T> {
        zip(gate.to_vec(), up, |g, u| self.at_gate(g).0 * self.at_gated(u).0)
    }

    /// The gradients at gate and up from that at their product.
    fn backward<T: Real>(self, gate: &[T], up: &[T], mut dy: Vec<T>) -> [Vec<T>; 2] {
        let mut d_gate = gate.to_vec();
        d_gate.par_chunks_mut(CHUNK).zip(up.par_chunks(CHUNK)).zip(dy.par_chunks_mut(CHUNK)).for_each(|((g, u), d)| {
            for ((g, &u), d) in g.iter_mut().zip(u).zip(d) {
                let ((value, slope), (factor, of_up)) = (self.at_gate(*g), self.at_gated(u));
                (*g, *d) = (*d * factor * slope, *d * value * of_up);
            }
        });
        [d_gate, dy]
    }
}

impl Differentiable for Activation {
    #[inline(always)]
    fn at_gate<T: Real>(self, x: T) -> (T, T) {
        let (zero, one) = (T::default(), T::of(1.0));
        match self {
            Activation::Silu => silu(x),
            Activation::Gelu => {
                let (root, cubic) = (T::of(0.797_884_560_802_865_4), T::of(0.044_715));
                let t = (root * x * (one + cubic * x * x)).tanh();
                let half = T::of(0.5);
                let inner = root * (one + T::of(3.0) * cubic * x * x);
                let slope = half * (one + t) + half * x * (one - t * t) * inner;
                (half * x * (one + t), slope)
            }
            Activation::Relu => {
                if x > zero {
                    (x, one)
                } else {
                    (zero, zero)
                }
            }
            Activation::Tanh => {
                let t = x.tanh();
                (t, one - t * t)
            }
            Activation::SquaredRelu => {
                let r = if x > zero { x } else { zero };
                (r * r, r + r)
            }
            Activation::OpenAiSwiglu => {
                let ((x, inside), steep) = (at_most(x, 7.0), T::of(f64::from(1.702f32)));
                let s = sigmoid(steep * x);
                (x * s, inside * s * (one + steep * x * (one - s)))
            }
            Activation::ClampedSilu(limit) => {
                let (x, inside) = at_most(x, limit);
                let (y, slope) = silu(x);
                (y, inside * slope)
            }
            Activation::LimitedSilu(limit) => {
                let (y, slope) = silu(x);
                let (y, inside) = at_most(y, limit);
                (y, inside * slope)
            }
            Activation::Xielu([n, a, b, c]) => {
                let [n, a, b, c] = [n, a, b, c].map(|v| T::single(v));
                if x > zero {
                    return (a * x * x + b * x, a * x + a * x + b);
                }
                let (least, inside) = if x < c { (x, one) } else { (c, zero) };
                let e = T::of(libm::expm1(least.wide()));
                ((e - x) * n + b * x, (inside * (e + one) - one) * n + b)
            }
            Activation::Situ([b, _]) => {
                let ((t, slope), s) = (soft_cap(x, b), sigmoid(x));
                (t * s, slope * s + t * s * (one - s))
            }
        }
    }

    #[inline(always)]
    fn at_gated<T: Real>(self, up: T) -> (T, T) {
        match self {
            Activation::OpenAiSwiglu => {
                let (up, slope) = clamp(up, 7.0);
                (up + T::of(1.0), slope)
            }
            Activation::ClampedSilu(limit) | Activation::LimitedSilu(limit) => clamp(up, limit),
            Activation::Situ([_, c]) if c > 0.0 => soft_cap(up, c),
            _ => (up, T::of(1.0)),
        }
    }
}

/// Value and slope of SiLU.
fn silu<T: Real>(x: T) -> (T, T) {
    let one = T::of(1.0);
    let s = one / (one + (-x).exp());
    (x * s, s * (one + x * (one - s)))
}

/// Value and slope of the function of a gate on heads.
pub fn head_gate<T: Real>(f: HeadGate, x: T) -> (T, T) {
    match f {
        HeadGate::Sigmoid => (sigmoid(x), sigmoid_slope(x)),
        HeadGate::Itself => (x, T::of(1.0)),
        HeadGate::Softplus if x > T::of(20.0) => (x, T::of(1.0)),
        HeadGate::Softplus => (T::of(libm::log1p(x.exp().wide())), sigmoid(x)),
    }
}

/// The products of `x` with factors that stand for equal parts of it, `f(y)`.
pub fn scaled<T: Real>(x: &[T], y: &[T], f: impl Fn(T) -> T + Sync) -> Vec<T> {
    let width = x.len() / y.len().max(1);
    by_row(x.to_vec(), width, |x, i| x * f(y[i]))
}

/// The gradients at `x` and `y` from that at the result of [`scaled`]; `f` gives value and slope.
pub fn scaled_back<T: Real>(x: &[T], y: &[T], dy: Vec<T>, f: impl Fn(T) -> (T, T) + Sync) -> [Vec<T>; 2] {
    let width = (x.len() / y.len().max(1)).max(1);
    let rows = dy.par_chunks(width).zip(x.par_chunks(width)).zip(y.par_iter());
    let at_y = rows.map(|((d, x), &y)| dot(d, x) * f(y).1).collect();
    [by_row(dy, width, |d, i| d * f(y[i]).0), at_y]
}
