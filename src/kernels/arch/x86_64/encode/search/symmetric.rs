//! Scale alone: codes on both sides of zero.

use trine_formats::types::num::nearest_int;

use super::super::vector::{MAX_LANES, Vector, lanes};
use super::GROUP_EPS;

/// `x ~ scale * (code - half)` per group, `code` in `0..2 * half`.
#[derive(Clone, Copy)]
pub(in super::super) struct SymmetricFit {
    /// Step between neighbouring codes; its sign is such that the extreme element gets code 0.
    pub scale: [f32; MAX_LANES],
    inverse: [f32; MAX_LANES],
    magnitude: [f32; MAX_LANES],
    half: i32,
}

impl SymmetricFit {
    /// The code that the search gave to element `x` of group `k`; 0 in all-zero groups.
    pub fn code(&self, k: usize, x: f32) -> u8 {
        if self.magnitude[k] < GROUP_EPS {
            return 0;
        }
        let l = nearest_int(self.inverse[k] * x);
        (l.clamp(-self.half, self.half - 1) + self.half) as u8
    }
}

/// Largest magnitude per group and the element that has it, the first of equals.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(super) unsafe fn extremes<V: Vector, const N: usize>(x: &[V::F; N]) -> (V::F, V::F) {
    // SAFETY: as the caller says.
    unsafe {
        let (mut magnitude, mut extreme) = (V::splat(0.0), V::splat(0.0));
        for &x in x {
            let larger = V::gt(V::abs(x), magnitude);
            extreme = V::select(larger, x, extreme);
            magnitude = V::select(larger, V::abs(x), magnitude);
        }
        (magnitude, extreme)
    }
}

/// The weighted fit of `trine_formats`; elements and weights are finite.
///
/// Nothing that is rounded is larger than `half + 1`, but in groups that are all but zero, whose scale is 0.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(in super::super) unsafe fn fit_symmetric<V: Vector, const N: usize>(
    x: &[V::F; N],
    w: &[V::F; N],
    half: f32,
) -> SymmetricFit {
    // SAFETY: as the caller says.
    unsafe {
        let zero = V::splat(0.0);
        let (magnitude, extreme) = extremes::<V, N>(x);
        let mut wx = *w;
        for i in 0..N {
            wx[i] = V::mul(w[i], x[i]);
        }

        let mut inverse = V::div(V::splat(-half), extreme);
        let (sum_lx, sum_l2) = sums::<V, N>(x, w, &wx, inverse, half);
        let mut scale = V::select(V::ne(sum_l2, zero), V::div(sum_lx, sum_l2), zero);
        let mut best = V::mul(scale, sum_lx);
        for step in -9..=9i8 {
            if step == 0 {
                continue;
            }
            let inv = V::div(V::splat(-(half + 0.1 * f32::from(step))), extreme);
            let (sum_lx, sum_l2) = sums::<V, N>(x, w, &wx, inv, half);
            let more = V::gt(V::mul(sum_lx, sum_lx), V::mul(best, sum_l2));
            let better = V::and(V::gt(sum_l2, zero), more);
            inverse = V::select(better, inv, inverse);
            scale = V::select(better, V::div(sum_lx, sum_l2), scale);
            best = V::select(better, V::mul(scale, sum_lx), best);
        }
        let is_zero = V::gt(V::splat(GROUP_EPS), magnitude);
        SymmetricFit {
            scale: lanes::<V>(V::select(is_zero, zero, scale)),
            inverse: lanes::<V>(inverse),
            magnitude: lanes::<V>(magnitude),
            half: half as i32,
        }
    }
}

/// `sum(w x l)` and `sum(w l l)` of the codes `l` that an inverse scale gives.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn sums<V: Vector, const N: usize>(
    x: &[V::F; N],
    w: &[V::F; N],
    wx: &[V::F; N],
    inverse: V::F,
    half: f32,
) -> (V::F, V::F) {
    // SAFETY: as the caller says.
    unsafe {
        let (lowest, highest) = (V::splat(-half), V::splat(half - 1.0));
        let (mut sum_lx, mut sum_l2) = (V::splat(0.0), V::splat(0.0));
        for i in 0..N {
            let l = V::round(V::mul(inverse, x[i]));
            let l = V::or_above(V::or_below(l, highest), lowest);
            sum_lx = V::add(sum_lx, V::mul(wx[i], l));
            sum_l2 = V::add(sum_l2, V::mul(V::mul(w[i], l), l));
        }
        (sum_lx, sum_l2)
    }
}
