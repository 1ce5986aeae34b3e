//! Scale alone, one code changed at a time.

use super::super::vector::{MAX_LANES, Vector, lanes};
use super::symmetric::extremes;
use super::{DESCENT_ROUNDS, GROUP_EPS};

/// Scales and codes (`0..2 * half`) of groups of `N`.
#[derive(Clone, Copy)]
pub(in super::super) struct DescentFit<const N: usize> {
    /// Per group.
    pub scale: [f32; MAX_LANES],
    /// Per element, then group.
    pub codes: [[f32; MAX_LANES]; N],
}

/// The descent of `trine_formats`, weights `x * x`; elements are finite. Each step waits for the one before,
/// so several vectors are searched together.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(in super::super) unsafe fn fit_descent<V: Vector, const N: usize, const VECTORS: usize>(
    x: &[[V::F; N]; VECTORS],
    half: f32,
) -> [DescentFit<N>; VECTORS] {
    // SAFETY: as the caller says.
    unsafe {
        let zero = V::splat(0.0);
        let lowest = V::splat(-half);
        let mut codes = [[zero; N]; VECTORS];
        let (mut sum_lx, mut sum_l2) = ([zero; VECTORS], [zero; VECTORS]);
        let mut magnitudes = [zero; VECTORS];
        for v in 0..VECTORS {
            let (magnitude, extreme) = extremes::<V, N>(&x[v]);
            magnitudes[v] = magnitude;
            let inverse = V::div(lowest, extreme);
            for i in 0..N {
                let e = x[v][i];
                let (l, w) = (nearest::<V>(V::mul(inverse, e), half), V::mul(e, e));
                sum_lx[v] = V::add(sum_lx[v], V::mul(V::mul(w, e), l));
                sum_l2[v] = V::add(sum_l2[v], V::mul(V::mul(w, l), l));
                codes[v][i] = l;
            }
        }
        for _ in 0..DESCENT_ROUNDS {
            let mut changed = V::gt(zero, zero);
            for i in 0..N {
                for v in 0..VECTORS {
                    let (e, l) = (x[v][i], codes[v][i]);
                    let w = V::mul(e, e);
                    let we = V::mul(w, e);
                    let lx_without = V::sub(sum_lx[v], V::mul(we, l));
                    let l2_without = V::sub(sum_l2[v], V::mul(V::mul(w, l), l));
                    let new = nearest::<V>(V::div(V::mul(e, l2_without), lx_without), half);
                    let lx = V::add(lx_without, V::mul(we, new));
                    let l2 = V::add(l2_without, V::mul(V::mul(w, new), new));
                    let before = V::mul(V::mul(sum_lx[v], sum_lx[v]), l2);
                    let after = V::mul(V::mul(lx, lx), sum_l2[v]);
                    let better = V::and(
                        V::and(V::gt(lx_without, zero), V::ne(new, l)),
                        V::and(V::gt(l2, zero), V::gt(after, before)),
                    );
                    codes[v][i] = V::select(better, new, l);
                    sum_lx[v] = V::select(better, lx, sum_lx[v]);
                    sum_l2[v] = V::select(better, l2, sum_l2[v]);
                    changed = V::or(changed, better);
                }
            }
            if !V::any(changed) {
                break;
            }
        }
        let mut fits = [DescentFit {
            scale: [0.0; MAX_LANES],
            codes: [[0.0; MAX_LANES]; N],
        }; VECTORS];
        for v in 0..VECTORS {
            let is_zero = V::gt(V::splat(GROUP_EPS), magnitudes[v]);
            let fitted = V::div(sum_lx[v], sum_l2[v]);
            let fitted = V::select(V::gt(sum_l2[v], zero), fitted, zero);
            fits[v].scale = lanes::<V>(V::select(is_zero, zero, fitted));
            for (lane, &l) in fits[v].codes.iter_mut().zip(&codes[v]) {
                let code = V::add(l, V::splat(half));
                *lane = lanes::<V>(V::select(is_zero, zero, code));
            }
        }
        fits
    }
}

/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn nearest<V: Vector>(v: V::F, half: f32) -> V::F {
    // SAFETY: as the caller says.
    unsafe {
        let l = V::or_below(V::nearest(v), V::splat(half - 1.0));
        V::or_above(l, V::splat(-half))
    }
}
