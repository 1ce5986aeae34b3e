//! Scale alone: codes on both sides of zero.

use super::{DESCENT_ROUNDS, GROUP_EPS};
use crate::types::lanes::{LANES, Mask, Simd, Vector};

/// `x ~ scale * (code - half)` per group, `code` in `0..2 * half`.
#[derive(Clone, Copy)]
pub(in crate::types) struct SymmetricFit {
    /// Step between neighbouring codes; its sign is such that the extreme element gets code 0.
    pub scale: [f32; LANES],
    inverse: [f32; LANES],
    magnitude: [f32; LANES],
    half: f32,
}

impl SymmetricFit {
    /// The codes that the search gave to the elements of group `k`. All-zero groups get code 0, not the
    /// code of zero: the reference leaves them so, and their scale is 0.
    #[inline(always)]
    pub fn codes<S: Simd, const N: usize>(&self, simd: S, k: usize, x: &[f32; N]) -> [u8; N] {
        let mut codes = [0; N];
        if self.magnitude[k] < GROUP_EPS {
            return codes;
        }
        let (inverse, half) = (simd.splat(self.inverse[k]), simd.splat(self.half));
        let highest = half - simd.splat(1.0);
        for (to, x) in codes.as_chunks_mut().0.iter_mut().zip(x.as_chunks().0) {
            let l = (inverse * simd.load(x)).nearest();
            *to = (l.or_below(highest).or_above(-half) + half).to_codes();
        }
        codes
    }
}

/// Largest magnitude per group and the element that has it, the first of equals; NaN is passed over.
#[inline(always)]
fn extremes<S: Simd, const N: usize>(simd: S, x: &[S::F; N]) -> (S::F, S::F) {
    let (mut magnitude, mut extreme) = (simd.splat(0.0), simd.splat(0.0));
    for &x in x {
        let larger = x.abs().gt(magnitude);
        extreme = S::F::select(larger, x, extreme);
        magnitude = S::F::select(larger, x.abs(), magnitude);
    }
    (magnitude, extreme)
}

/// Weighted fit of one scale: the extreme element is mapped to `-half`, then to 18 points around it in
/// steps of a tenth; for each rounding the best scale is `sum(w x l) / sum(w l l)`.
///
/// For finite elements, nothing that is rounded is larger than `half + 1`, except in groups that are all but zero,
/// whose scale is 0 whatever the search finds.
///
/// Source: ggml `make_qx_quants` with `rmse_type` 1.
#[inline(always)]
pub(in crate::types) fn fit_symmetric<S: Simd, const N: usize>(
    simd: S,
    x: &[S::F; N],
    w: &[S::F; N],
    half: f32,
) -> SymmetricFit {
    let zero = simd.splat(0.0);
    let (magnitude, extreme) = extremes(simd, x);
    let mut wx = *w;
    for i in 0..N {
        wx[i] = w[i] * x[i];
    }
    let mut inverse = simd.splat(-half) / extreme;
    let (sum_lx, sum_l2) = projections(simd, x, w, &wx, inverse, half);
    let mut scale = S::F::select(sum_l2.ne(zero), sum_lx / sum_l2, zero);
    let mut best = scale * sum_lx;
    for step in -9..=9i8 {
        if step == 0 {
            continue;
        }
        let inv = simd.splat(-(half + 0.1 * f32::from(step))) / extreme;
        let (sum_lx, sum_l2) = projections(simd, x, w, &wx, inv, half);
        let better = sum_l2.gt(zero) & (sum_lx * sum_lx).gt(best * sum_l2);
        inverse = S::F::select(better, inv, inverse);
        scale = S::F::select(better, sum_lx / sum_l2, scale);
        best = S::F::select(better, scale * sum_lx, best);
    }
    let is_zero = simd.splat(GROUP_EPS).gt(magnitude);
    SymmetricFit {
        scale: S::F::select(is_zero, zero, scale).to_array(),
        inverse: inverse.to_array(),
        magnitude: magnitude.to_array(),
        half,
    }
}

/// `sum(w x l)` and `sum(w l l)` of the codes `l` that an inverse scale gives.
#[inline(always)]
fn projections<S: Simd, const N: usize>(
    simd: S,
    x: &[S::F; N],
    w: &[S::F; N],
    wx: &[S::F; N],
    inverse: S::F,
    half: f32,
) -> (S::F, S::F) {
    let (lowest, highest) = (simd.splat(-half), simd.splat(half - 1.0));
    let (mut sum_lx, mut sum_l2) = (simd.splat(0.0), simd.splat(0.0));
    for i in 0..N {
        let l = (inverse * x[i]).round();
        let l = l.or_below(highest).or_above(lowest);
        sum_lx = sum_lx + wx[i] * l;
        sum_l2 = sum_l2 + w[i] * l * l;
    }
    (sum_lx, sum_l2)
}

/// Scales and codes (`0..2 * half`) of groups of `N`.
#[derive(Clone, Copy)]
pub(in crate::types) struct DescentFit<const N: usize> {
    /// Per group.
    pub scale: [f32; LANES],
    /// Per element, then group.
    pub codes: [[f32; LANES]; N],
}

/// Scale and codes per group, weights `x * x`: starts from the extreme element at `-half`, then changes one
/// code at a time where that raises `sum(w x l)^2 / sum(w l l)`.
/// A group without a change in one round has none in the next, so all lanes go on together. Each step waits for
/// the one before, so that several vectors are searched in the time of one.
///
/// Source: ggml `make_q3_quants` with `do_rmse`.
#[inline(always)]
pub(in crate::types) fn fit_descent<S: Simd, const N: usize, const VECTORS: usize>(
    simd: S,
    x: &[[S::F; N]; VECTORS],
    half: f32,
) -> [DescentFit<N>; VECTORS] {
    let zero = simd.splat(0.0);
    let (lowest, highest) = (simd.splat(-half), simd.splat(half - 1.0));
    let mut codes = [[zero; N]; VECTORS];
    let (mut sum_lx, mut sum_l2) = ([zero; VECTORS], [zero; VECTORS]);
    let mut magnitudes = [zero; VECTORS];
    for v in 0..VECTORS {
        let (magnitude, extreme) = extremes(simd, &x[v]);
        magnitudes[v] = magnitude;
        let inverse = lowest / extreme;
        for i in 0..N {
            let e = x[v][i];
            let l = (inverse * e).nearest().or_below(highest).or_above(lowest);
            let w = e * e;
            sum_lx[v] = sum_lx[v] + w * e * l;
            sum_l2[v] = sum_l2[v] + w * l * l;
            codes[v][i] = l;
        }
    }
    for _ in 0..DESCENT_ROUNDS {
        let mut changed = zero.gt(zero);
        for i in 0..N {
            for v in 0..VECTORS {
                let (e, l) = (x[v][i], codes[v][i]);
                let w = e * e;
                let lx_without = sum_lx[v] - w * e * l;
                let l2_without = sum_l2[v] - w * l * l;
                let new = (e * l2_without / lx_without).nearest();
                let new = new.or_below(highest).or_above(lowest);
                let lx = lx_without + w * e * new;
                let l2 = l2_without + w * new * new;
                let better = lx_without.gt(zero)
                    & new.ne(l)
                    & l2.gt(zero)
                    & (lx * lx * sum_l2[v]).gt(sum_lx[v] * sum_lx[v] * l2);
                codes[v][i] = S::F::select(better, new, l);
                sum_lx[v] = S::F::select(better, lx, sum_lx[v]);
                sum_l2[v] = S::F::select(better, l2, sum_l2[v]);
                changed = changed | better;
            }
        }
        if !changed.any() {
            break;
        }
    }
    let mut fits = [DescentFit { scale: [0.0; LANES], codes: [[0.0; LANES]; N] }; VECTORS];
    for v in 0..VECTORS {
        let is_zero = simd.splat(GROUP_EPS).gt(magnitudes[v]);
        let fitted = S::F::select(sum_l2[v].gt(zero), sum_lx[v] / sum_l2[v], zero);
        fits[v].scale = S::F::select(is_zero, zero, fitted).to_array();
        for (to, &l) in fits[v].codes.iter_mut().zip(&codes[v]) {
            *to = S::F::select(is_zero, zero, l + simd.splat(half)).to_array();
        }
    }
    fits
}
