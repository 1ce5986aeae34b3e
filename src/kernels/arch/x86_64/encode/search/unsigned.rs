//! Scale alone, codes from zero upwards: how the scales and minima of a super-block are rounded.

use super::super::vector::Vector;
use super::{DESCENT_ROUNDS, GROUP_EPS};

/// The weighted fit of `trine_formats`, in each lane one super-block's `N` values with codes `0..=top`; values
/// and weights are finite. Returns the scale and the codes.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(in super::super) unsafe fn fit_unsigned<V: Vector, const N: usize>(
    x: &[V::F; N],
    w: &[V::F; N],
    top: f32,
) -> (V::F, [V::F; N]) {
    // SAFETY: as the caller says.
    unsafe {
        let (zero, one) = (V::splat(0.0), V::splat(1.0));
        let highest = V::splat(top);
        let mut max = zero;
        for &v in x {
            max = V::or_above(max, v);
        }
        let is_zero = V::gt(V::splat(GROUP_EPS), max);
        let mut inverse = V::div(highest, max);
        let scale = V::div(one, inverse);
        let mut best = zero;
        for i in 0..N {
            let code = V::nearest_u8(V::mul(inverse, x[i]));
            let diff = V::sub(x[i], V::mul(scale, code));
            best = V::add(best, V::mul(V::mul(w[i], diff), diff));
        }
        for step in -4..=4i8 {
            if step == 0 {
                continue;
            }
            let inv = V::div(V::splat(0.1 * f32::from(step) + top), max);
            let scale = V::div(one, inv);
            let mut error = zero;
            for i in 0..N {
                let code = V::or_below(V::nearest(V::mul(inv, x[i])), highest);
                let diff = V::sub(x[i], V::mul(scale, code));
                error = V::add(error, V::mul(V::mul(w[i], diff), diff));
            }
            let better = V::gt(best, error);
            best = V::select(better, error, best);
            inverse = V::select(better, inv, inverse);
        }

        let (mut sum_lx, mut sum_l2) = (zero, zero);
        let mut codes = [zero; N];
        for i in 0..N {
            let l = V::or_below(V::nearest(V::mul(inverse, x[i])), highest);
            sum_lx = V::add(sum_lx, V::mul(V::mul(w[i], x[i]), l));
            sum_l2 = V::add(sum_l2, V::mul(V::mul(w[i], l), l));
            codes[i] = V::nearest_u8(l);
        }
        for _ in 0..DESCENT_ROUNDS {
            let mut changed = V::gt(zero, zero);
            for i in 0..N {
                let l = codes[i];
                let wx = V::mul(w[i], x[i]);
                let lx = V::sub(sum_lx, V::mul(wx, l));
                let l2 = V::sub(sum_l2, V::mul(V::mul(w[i], l), l));
                let new = V::nearest(V::div(V::mul(x[i], l2), lx));
                let new = V::or_below(new, highest);
                let possible = V::and(V::gt(lx, zero), V::gt(l2, zero));
                let lx = V::add(lx, V::mul(wx, new));
                let l2 = V::add(l2, V::mul(V::mul(w[i], new), new));
                let after = V::mul(V::mul(lx, lx), sum_l2);
                let before = V::mul(V::mul(sum_lx, sum_lx), l2);
                let better = V::and(V::and(possible, V::ne(new, l)), V::gt(after, before));
                codes[i] = V::select(better, V::nearest_u8(new), l);
                sum_lx = V::select(better, lx, sum_lx);
                sum_l2 = V::select(better, l2, sum_l2);
                changed = V::or(changed, better);
            }
            if !V::any(changed) {
                break;
            }
        }
        let scale = V::select(V::gt(sum_l2, zero), V::div(sum_lx, sum_l2), zero);
        for l in &mut codes {
            *l = V::select(is_zero, zero, *l);
        }
        (V::select(is_zero, zero, scale), codes)
    }
}
