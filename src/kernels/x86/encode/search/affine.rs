//! Scale and offset: codes from a minimum upwards.

use trine_formats::types::num::nearest_int;

use super::super::vector::{MAX_LANES, Vector, lanes};

/// Candidates: inverse scales `(from + step * i + top) / range`, `i = 0..=last`.
#[derive(Clone, Copy)]
pub(in super::super) struct Grid {
    /// The largest code.
    pub top: f32,
    /// Where the grid starts, relative to `top`.
    pub from: f32,
    /// Distance of neighbouring candidates.
    pub step: f32,
    /// Index of the last candidate.
    pub last: u8,
}

/// `x ~ scale * code - neg_min` per group, `code` in `0..=top`, `neg_min >= 0`.
#[derive(Clone, Copy)]
pub(in super::super) struct AffineFit {
    /// Step between neighbouring codes.
    pub scale: [f32; MAX_LANES],
    /// The negated offset.
    pub neg_min: [f32; MAX_LANES],
    inverse: [f32; MAX_LANES],
    offset: [f32; MAX_LANES],
    /// 1 where all elements are equal.
    flat: [f32; MAX_LANES],
    top: i32,
}

impl AffineFit {
    /// The code that the search gave to element `x` of group `k`.
    pub fn code(&self, k: usize, x: f32) -> u8 {
        if self.flat[k] != 0.0 {
            return 0;
        }
        nearest_int(self.inverse[k] * (x - self.offset[k])).clamp(0, self.top) as u8
    }
}

/// Beyond this magnitude `nearest_int` is no rounding.
const ROUNDS: f32 = 4_194_303.0;

/// The weighted fit of `trine_formats`, of squared differences or of absolute ones; elements and weights are
/// finite. `None` where a code would be taken from a value too large to be rounded, which happens to groups
/// that are all but flat.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(in super::super) unsafe fn fit_affine<V: Vector, const N: usize, const ABSOLUTE: bool>(
    x: &[V::F; N],
    w: &[V::F; N],
    grid: Grid,
) -> Option<AffineFit> {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let (zero, one, top) = (V::splat(0.0), V::splat(1.0), V::splat(grid.top));
        let (mut lo, mut hi) = (x[0], x[0]);
        let (mut sum_w, mut sum_x) = (w[0], V::mul(w[0], x[0]));
        for i in 1..N {
            lo = V::or_below(x[i], lo);
            hi = V::or_above(x[i], hi);
            sum_w = V::add(sum_w, w[i]);
            sum_x = V::add(sum_x, V::mul(w[i], x[i]));
        }
        let lo = V::select(V::gt(lo, zero), zero, lo);
        let is_flat = V::eq(hi, lo);

        let mut inverse = V::div(top, V::sub(hi, lo));
        let mut scale = V::div(one, inverse);
        if !in_range::<V>(is_flat, inverse, lo, [lo, hi]) {
            return None;
        }
        let mut codes = [zero; N];
        for i in 0..N {
            codes[i] = code::<V>(inverse, lo, x[i], top);
        }
        let mut best = error::<V, N, ABSOLUTE>(x, w, &codes, scale, lo);
        let (mut min, mut offset) = (lo, lo);

        for step in 0..=grid.last {
            let numerator = V::splat(grid.from + grid.step * f32::from(step) + grid.top);
            let inv = V::div(numerator, V::sub(hi, min));
            if !in_range::<V>(is_flat, inv, min, [lo, hi]) {
                return None;
            }
            let (mut sum_l, mut sum_l2, mut sum_xl) = (zero, zero, zero);
            for i in 0..N {
                let l = code::<V>(inv, min, x[i], top);
                let wl = V::mul(w[i], l);
                sum_l = V::add(sum_l, wl);
                sum_l2 = V::add(sum_l2, V::mul(wl, l));
                sum_xl = V::add(sum_xl, V::mul(wl, x[i]));
                codes[i] = l;
            }
            let det = V::sub(V::mul(sum_w, sum_l2), V::mul(sum_l, sum_l));
            let of_scale = V::sub(V::mul(sum_w, sum_xl), V::mul(sum_x, sum_l));
            let of_min = V::sub(V::mul(sum_l2, sum_x), V::mul(sum_l, sum_xl));
            let (solved_scale, solved_min) = (V::div(of_scale, det), V::div(of_min, det));
            let positive = V::gt(solved_min, zero);
            let new_min = V::select(positive, zero, solved_min);
            let new_scale = V::select(positive, V::div(sum_xl, sum_l2), solved_scale);
            let error = error::<V, N, ABSOLUTE>(x, w, &codes, new_scale, new_min);
            let better = V::and(V::gt(det, zero), V::gt(best, error));
            best = V::select(better, error, best);
            inverse = V::select(better, inv, inverse);
            offset = V::select(better, min, offset);
            scale = V::select(better, new_scale, scale);
            min = V::select(better, new_min, min);
        }

        let min = V::select(is_flat, lo, min);
        Some(AffineFit {
            scale: lanes::<V>(V::select(is_flat, zero, scale)),
            neg_min: lanes::<V>(V::neg(min)),
            inverse: lanes::<V>(inverse),
            offset: lanes::<V>(offset),
            flat: lanes::<V>(V::select(is_flat, one, zero)),
            top: grid.top as i32,
        })
    }
}

/// Whether everything is rounded: what is lies between what the ends give, because products and differences
/// keep the order.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn in_range<V: Vector>(is_flat: V::M, inverse: V::F, min: V::F, ends: [V::F; 2]) -> bool {
    // SAFETY: as the caller says.
    unsafe {
        let limit = V::splat(ROUNDS);
        let [lo, hi] = ends;
        let lo = V::abs(V::mul(inverse, V::sub(lo, min)));
        let hi = V::abs(V::mul(inverse, V::sub(hi, min)));
        V::all(V::or(is_flat, V::and(V::ge(limit, lo), V::ge(limit, hi))))
    }
}

/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn code<V: Vector>(inverse: V::F, min: V::F, x: V::F, top: V::F) -> V::F {
    // SAFETY: as the caller says.
    unsafe {
        let l = V::round(V::mul(inverse, V::sub(x, min)));
        V::or_above(V::or_below(l, top), V::splat(0.0))
    }
}

/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn error<V: Vector, const N: usize, const ABSOLUTE: bool>(
    x: &[V::F; N],
    w: &[V::F; N],
    codes: &[V::F; N],
    scale: V::F,
    min: V::F,
) -> V::F {
    // SAFETY: as the caller says.
    unsafe {
        let mut error = V::splat(0.0);
        for i in 0..N {
            let diff = V::sub(V::add(V::mul(scale, codes[i]), min), x[i]);
            let loss = if ABSOLUTE {
                V::abs(diff)
            } else {
                V::mul(diff, diff)
            };
            error = V::add(error, V::mul(w[i], loss));
        }
        error
    }
}
