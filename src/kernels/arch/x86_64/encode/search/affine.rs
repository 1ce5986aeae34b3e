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
/// A candidate waits for the one before, and its sums are chains: with two vectors at a time the processor has
/// something else to do meanwhile.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(in super::super) unsafe fn fit_affine<
    V: Vector,
    const N: usize,
    const VECTORS: usize,
    const ABSOLUTE: bool,
>(
    x: &[[V::F; N]; VECTORS],
    w: &[[V::F; N]; VECTORS],
    grid: Grid,
) -> [Option<AffineFit>; VECTORS] {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let (zero, one, top) = (V::splat(0.0), V::splat(1.0), V::splat(grid.top));
        let zeros = [zero; VECTORS];
        let (mut lo, mut hi, mut sum_w, mut sum_x) = (zeros, zeros, zeros, zeros);
        for v in 0..VECTORS {
            (lo[v], hi[v], sum_w[v]) = (x[v][0], x[v][0], w[v][0]);
            sum_x[v] = V::mul(w[v][0], x[v][0]);
            for i in 1..N {
                lo[v] = V::or_below(x[v][i], lo[v]);
                hi[v] = V::or_above(x[v][i], hi[v]);
                sum_w[v] = V::add(sum_w[v], w[v][i]);
                sum_x[v] = V::add(sum_x[v], V::mul(w[v][i], x[v][i]));
            }
            lo[v] = V::select(V::gt(lo[v], zero), zero, lo[v]);
        }
        let (mut inverse, mut scale) = (zeros, zeros);
        let mut is_flat = [V::gt(zero, zero); VECTORS];
        let mut is_fitted = [true; VECTORS];
        let mut codes = [[zero; N]; VECTORS];
        for v in 0..VECTORS {
            is_flat[v] = V::eq(hi[v], lo[v]);
            inverse[v] = V::div(top, V::sub(hi[v], lo[v]));
            scale[v] = V::div(one, inverse[v]);
            is_fitted[v] = in_range::<V>(is_flat[v], inverse[v], lo[v], [lo[v], hi[v]]);
            for i in 0..N {
                codes[v][i] = code::<V>(inverse[v], lo[v], x[v][i], top);
            }
        }
        let mut best = error::<V, N, VECTORS, ABSOLUTE>(x, w, &codes, &scale, &lo);
        let (mut min, mut offset) = (lo, lo);

        for step in 0..=grid.last {
            let numerator = V::splat(grid.from + grid.step * f32::from(step) + grid.top);
            let mut inv = zeros;
            for v in 0..VECTORS {
                inv[v] = V::div(numerator, V::sub(hi[v], min[v]));
                is_fitted[v] &= in_range::<V>(is_flat[v], inv[v], min[v], [lo[v], hi[v]]);
            }
            let (mut sum_l, mut sum_l2, mut sum_xl) = (zeros, zeros, zeros);
            for i in 0..N {
                for v in 0..VECTORS {
                    let l = code::<V>(inv[v], min[v], x[v][i], top);
                    let wl = V::mul(w[v][i], l);
                    sum_l[v] = V::add(sum_l[v], wl);
                    sum_l2[v] = V::add(sum_l2[v], V::mul(wl, l));
                    sum_xl[v] = V::add(sum_xl[v], V::mul(wl, x[v][i]));
                    codes[v][i] = l;
                }
            }
            let (mut det, mut new_scale, mut new_min) = (zeros, zeros, zeros);
            for v in 0..VECTORS {
                let (l, l2, xl) = (sum_l[v], sum_l2[v], sum_xl[v]);
                det[v] = V::sub(V::mul(sum_w[v], l2), V::mul(l, l));
                let of_scale = V::sub(V::mul(sum_w[v], xl), V::mul(sum_x[v], l));
                let of_min = V::sub(V::mul(l2, sum_x[v]), V::mul(l, xl));
                let solved_min = V::div(of_min, det[v]);
                let positive = V::gt(solved_min, zero);
                new_min[v] = V::select(positive, zero, solved_min);
                new_scale[v] = V::select(positive, V::div(xl, l2), V::div(of_scale, det[v]));
            }
            let error = error::<V, N, VECTORS, ABSOLUTE>(x, w, &codes, &new_scale, &new_min);
            for v in 0..VECTORS {
                let better = V::and(V::gt(det[v], zero), V::gt(best[v], error[v]));
                best[v] = V::select(better, error[v], best[v]);
                inverse[v] = V::select(better, inv[v], inverse[v]);
                offset[v] = V::select(better, min[v], offset[v]);
                scale[v] = V::select(better, new_scale[v], scale[v]);
                min[v] = V::select(better, new_min[v], min[v]);
            }
        }

        let mut fits = [None; VECTORS];
        for v in 0..VECTORS {
            if is_fitted[v] {
                let min = V::select(is_flat[v], lo[v], min[v]);
                fits[v] = Some(AffineFit {
                    scale: lanes::<V>(V::select(is_flat[v], zero, scale[v])),
                    neg_min: lanes::<V>(V::neg(min)),
                    inverse: lanes::<V>(inverse[v]),
                    offset: lanes::<V>(offset[v]),
                    flat: lanes::<V>(V::select(is_flat[v], one, zero)),
                    top: grid.top as i32,
                });
            }
        }
        fits
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
unsafe fn error<V: Vector, const N: usize, const VECTORS: usize, const ABSOLUTE: bool>(
    x: &[[V::F; N]; VECTORS],
    w: &[[V::F; N]; VECTORS],
    codes: &[[V::F; N]; VECTORS],
    scale: &[V::F; VECTORS],
    min: &[V::F; VECTORS],
) -> [V::F; VECTORS] {
    // SAFETY: as the caller says.
    unsafe {
        let mut error = [V::splat(0.0); VECTORS];
        for i in 0..N {
            for v in 0..VECTORS {
                let diff = V::add(V::mul(scale[v], codes[v][i]), min[v]);
                let diff = V::sub(diff, x[v][i]);
                let loss = if ABSOLUTE {
                    V::abs(diff)
                } else {
                    V::mul(diff, diff)
                };
                error[v] = V::add(error[v], V::mul(w[v][i], loss));
            }
        }
        error
    }
}
