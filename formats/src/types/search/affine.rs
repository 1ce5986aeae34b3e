//! Scale and offset: codes from a minimum upwards.

use crate::types::lanes::{LANES, Mask, ROUNDS, Simd, Vector};

/// The candidates of [`fit_affine`]: inverse scales `(from + step * i + top) / range`, `i = 0..=last`.
#[derive(Clone, Copy)]
pub(in crate::types) struct AffineGrid {
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
pub(in crate::types) struct AffineFit {
    /// Step between neighbouring codes.
    pub scale: [f32; LANES],
    /// The negated offset.
    pub neg_min: [f32; LANES],
    inverse: [f32; LANES],
    offset: [f32; LANES],
    /// 1 where all elements are equal, else 0.
    flat: [f32; LANES],
    top: f32,
}

impl AffineFit {
    /// The codes that the search gave to the elements of group `k`.
    #[inline(always)]
    pub fn codes<S: Simd, const N: usize>(&self, simd: S, k: usize, x: &[f32; N]) -> [u8; N] {
        let mut codes = [0; N];
        if self.flat[k] != 0.0 {
            return codes;
        }
        let (inverse, offset) = (simd.splat(self.inverse[k]), simd.splat(self.offset[k]));
        let (top, zero) = (simd.splat(self.top), simd.splat(0.0));
        for (to, x) in codes.as_chunks_mut().0.iter_mut().zip(x.as_chunks().0) {
            let l = (inverse * (simd.load(x) - offset)).nearest();
            *to = l.or_below(top).or_above(zero).to_codes();
        }
        codes
    }
}

/// Weighted fit of scale and non-positive offset. Each candidate inverse scale rounds the group to
/// codes, then scale and offset are solved by weighted least squares for those codes; a candidate that
/// lowers the error moves the offset from which the later ones start. The error is the weighted sum of
/// squared differences, or of absolute ones with `ABSOLUTE`.
///
/// Several vectors of groups are fitted together, because a candidate waits for the one before and its sums are
/// chains: the processor then has something else to do meanwhile.
///
/// A fit is `None` where a code would come from a value too large to be rounded, which happens to groups that are
/// all but flat, and only where `S` is not [total](Simd::IS_TOTAL).
///
/// Source: ggml `make_qkx2_quants`, and `make_qkx3_quants` with weights, which computes the same.
#[inline(always)]
pub(in crate::types) fn fit_affine<S: Simd, const N: usize, const VECTORS: usize, const ABSOLUTE: bool>(
    simd: S,
    x: &[[S::F; N]; VECTORS],
    w: &[[S::F; N]; VECTORS],
    grid: AffineGrid,
) -> [Option<AffineFit>; VECTORS] {
    let (zero, one, top) = (simd.splat(0.0), simd.splat(1.0), simd.splat(grid.top));
    let zeros = [zero; VECTORS];
    let (mut lo, mut hi, mut sum_w, mut sum_x) = (zeros, zeros, zeros, zeros);
    for v in 0..VECTORS {
        (lo[v], hi[v], sum_w[v]) = (x[v][0], x[v][0], w[v][0]);
        sum_x[v] = w[v][0] * x[v][0];
        for i in 1..N {
            lo[v] = x[v][i].or_below(lo[v]);
            hi[v] = x[v][i].or_above(hi[v]);
            sum_w[v] = sum_w[v] + w[v][i];
            sum_x[v] = sum_x[v] + w[v][i] * x[v][i];
        }
        lo[v] = S::F::select(lo[v].gt(zero), zero, lo[v]);
    }
    let (mut inverse, mut scale) = (zeros, zeros);
    let mut is_flat = [zero.gt(zero); VECTORS];
    let mut is_fitted = [true; VECTORS];
    let mut codes = [[zero; N]; VECTORS];
    for v in 0..VECTORS {
        is_flat[v] = hi[v].eq(lo[v]);
        inverse[v] = top / (hi[v] - lo[v]);
        scale[v] = one / inverse[v];
        is_fitted[v] = rounds(simd, is_flat[v], inverse[v], lo[v], [lo[v], hi[v]]);
        for i in 0..N {
            codes[v][i] = code(inverse[v], lo[v], x[v][i], zero, top);
        }
    }
    let mut best = error::<S, N, VECTORS, ABSOLUTE>(simd, x, w, &codes, &scale, &lo);
    let (mut min, mut offset) = (lo, lo);

    for step in 0..=grid.last {
        let numerator = simd.splat(grid.from + grid.step * f32::from(step) + grid.top);
        let mut inv = zeros;
        for v in 0..VECTORS {
            inv[v] = numerator / (hi[v] - min[v]);
            is_fitted[v] &= rounds(simd, is_flat[v], inv[v], min[v], [lo[v], hi[v]]);
        }
        let (mut sum_l, mut sum_l2, mut sum_xl) = (zeros, zeros, zeros);
        for i in 0..N {
            for v in 0..VECTORS {
                let l = code(inv[v], min[v], x[v][i], zero, top);
                let wl = w[v][i] * l;
                sum_l[v] = sum_l[v] + wl;
                sum_l2[v] = sum_l2[v] + wl * l;
                sum_xl[v] = sum_xl[v] + wl * x[v][i];
                codes[v][i] = l;
            }
        }
        let (mut det, mut new_scale, mut new_min) = (zeros, zeros, zeros);
        for v in 0..VECTORS {
            det[v] = sum_w[v] * sum_l2[v] - sum_l[v] * sum_l[v];
            let solved_scale = (sum_w[v] * sum_xl[v] - sum_x[v] * sum_l[v]) / det[v];
            let solved_min = (sum_l2[v] * sum_x[v] - sum_l[v] * sum_xl[v]) / det[v];
            let positive = solved_min.gt(zero);
            new_min[v] = S::F::select(positive, zero, solved_min);
            new_scale[v] = S::F::select(positive, sum_xl[v] / sum_l2[v], solved_scale);
        }
        let error = error::<S, N, VECTORS, ABSOLUTE>(simd, x, w, &codes, &new_scale, &new_min);
        for v in 0..VECTORS {
            let better = det[v].gt(zero) & best[v].gt(error[v]);
            best[v] = S::F::select(better, error[v], best[v]);
            inverse[v] = S::F::select(better, inv[v], inverse[v]);
            offset[v] = S::F::select(better, min[v], offset[v]);
            scale[v] = S::F::select(better, new_scale[v], scale[v]);
            min[v] = S::F::select(better, new_min[v], min[v]);
        }
    }

    let mut fits = [None; VECTORS];
    for v in 0..VECTORS {
        if is_fitted[v] {
            fits[v] = Some(AffineFit {
                scale: S::F::select(is_flat[v], zero, scale[v]).to_array(),
                neg_min: (-S::F::select(is_flat[v], lo[v], min[v])).to_array(),
                inverse: inverse[v].to_array(),
                offset: offset[v].to_array(),
                flat: S::F::select(is_flat[v], one, zero).to_array(),
                top: grid.top,
            });
        }
    }
    fits
}

/// True if everything that is to be rounded can be. All of it lies between the results at the `ends`, because products
/// and differences keep the order.
#[inline(always)]
fn rounds<S: Simd>(simd: S, is_flat: <S::F as Vector>::Mask, inverse: S::F, min: S::F, ends: [S::F; 2]) -> bool {
    let [lo, hi] = ends;
    let limit = simd.splat(ROUNDS);
    let lo = limit.ge((inverse * (lo - min)).abs());
    let hi = limit.ge((inverse * (hi - min)).abs());
    S::IS_TOTAL || (is_flat | lo & hi).all()
}

#[inline(always)]
fn code<V: Vector>(inverse: V, min: V, x: V, zero: V, top: V) -> V {
    (inverse * (x - min)).round().or_below(top).or_above(zero)
}

#[inline(always)]
fn error<S: Simd, const N: usize, const VECTORS: usize, const ABSOLUTE: bool>(
    simd: S,
    x: &[[S::F; N]; VECTORS],
    w: &[[S::F; N]; VECTORS],
    codes: &[[S::F; N]; VECTORS],
    scale: &[S::F; VECTORS],
    min: &[S::F; VECTORS],
) -> [S::F; VECTORS] {
    let mut error = [simd.splat(0.0); VECTORS];
    for i in 0..N {
        for v in 0..VECTORS {
            let diff = scale[v] * codes[v][i] + min[v] - x[v][i];
            let loss = if ABSOLUTE { diff.abs() } else { diff * diff };
            error[v] = error[v] + w[v][i] * loss;
        }
    }
    error
}
