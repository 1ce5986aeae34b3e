//! Scale alone: codes from zero upwards.

use super::{DESCENT_ROUNDS, GROUP_EPS};
use crate::types::lanes::{Mask, Simd, Vector};

/// Weighted fit of one non-negative scale to values that should not be negative (in each lane the scales or the
/// minima of one super-block), with codes `0..=top`: picks the inverse scale of least squared error among
/// nine, then descends as [`super::fit_descent`] does. Codes of negative values wrap, as 8-bit codes do in the
/// reference. Returns the scale and the codes.
///
/// Source: ggml `make_qp_quants`.
#[inline(always)]
pub(in crate::types) fn fit_unsigned<S: Simd, const N: usize>(
    simd: S,
    x: &[S::F; N],
    w: &[S::F; N],
    top: f32,
) -> (S::F, [S::F; N]) {
    let (zero, one, highest) = (simd.splat(0.0), simd.splat(1.0), simd.splat(top));
    let mut max = zero;
    for &v in x {
        max = max.or_above(v);
    }
    let is_zero = simd.splat(GROUP_EPS).gt(max);
    let mut inverse = highest / max;
    let scale = one / inverse;
    let mut best = zero;
    for i in 0..N {
        let diff = x[i] - scale * (inverse * x[i]).nearest_u8();
        best = best + w[i] * diff * diff;
    }
    for step in -4..=4i8 {
        if step == 0 {
            continue;
        }
        let inv = simd.splat(0.1 * f32::from(step) + top) / max;
        let scale = one / inv;
        let mut error = zero;
        for i in 0..N {
            let diff = x[i] - scale * (inv * x[i]).nearest().or_below(highest);
            error = error + w[i] * diff * diff;
        }
        let better = best.gt(error);
        best = S::F::select(better, error, best);
        inverse = S::F::select(better, inv, inverse);
    }

    let (mut sum_lx, mut sum_l2) = (zero, zero);
    let mut codes = [zero; N];
    for i in 0..N {
        let l = (inverse * x[i]).nearest().or_below(highest);
        sum_lx = sum_lx + w[i] * x[i] * l;
        sum_l2 = sum_l2 + w[i] * l * l;
        codes[i] = l.nearest_u8();
    }
    for _ in 0..DESCENT_ROUNDS {
        let mut changed = zero.gt(zero);
        for i in 0..N {
            let l = codes[i];
            let lx_without = sum_lx - w[i] * x[i] * l;
            let l2_without = sum_l2 - w[i] * l * l;
            let new = (x[i] * l2_without / lx_without).nearest();
            let new = new.or_below(highest);
            let lx = lx_without + w[i] * x[i] * new;
            let l2 = l2_without + w[i] * new * new;
            let better =
                lx_without.gt(zero) & l2_without.gt(zero) & new.ne(l) & (lx * lx * sum_l2).gt(sum_lx * sum_lx * l2);
            codes[i] = S::F::select(better, new.nearest_u8(), l);
            sum_lx = S::F::select(better, lx, sum_lx);
            sum_l2 = S::F::select(better, l2, sum_l2);
            changed = changed | better;
        }
        if !changed.any() {
            break;
        }
    }
    let scale = S::F::select(sum_l2.gt(zero), sum_lx / sum_l2, zero);
    for l in &mut codes {
        *l = S::F::select(is_zero, zero, *l);
    }
    (S::F::select(is_zero, zero, scale), codes)
}
