//! Scale and offset: codes from a minimum upwards.

use super::Tile;
use crate::types::lanes::F4;
use crate::types::num::nearest_int;

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
    pub last: i32,
}

/// `x ~ scale * code - neg_min` per group, `code` in `0..=top`, `neg_min >= 0`.
#[derive(Clone, Copy)]
pub(in crate::types) struct AffineFit<const V: usize> {
    /// Step between neighbouring codes.
    pub scale: [[f32; 4]; V],
    /// The negated offset.
    pub neg_min: [[f32; 4]; V],
    inverse: [[f32; 4]; V],
    offset: [[f32; 4]; V],
    flat: [[f32; 4]; V],
    top: f32,
}

impl<const V: usize> AffineFit<V> {
    /// The code that the search gave to element `x` of group `k`.
    pub fn code(&self, k: usize, x: f32) -> u8 {
        let (v, l) = (k / 4, k % 4);
        if self.flat[v][l] != 0.0 {
            return 0;
        }
        nearest_int(self.inverse[v][l] * (x - self.offset[v][l])).clamp(0, self.top as i32) as u8
    }
}

/// Weighted fit of scale and non-positive offset. Each candidate inverse scale rounds the group to
/// codes, then scale and offset are solved by weighted least squares for those codes; a candidate that
/// lowers the error moves the offset from which the later ones start. The error is the weighted sum of
/// squared differences, or of absolute ones with `ABSOLUTE`.
///
/// Source: ggml `make_qkx2_quants`, and `make_qkx3_quants` with weights, which computes the same.
#[inline(never)]
pub(in crate::types) fn fit_affine<const N: usize, const V: usize, const ABSOLUTE: bool>(
    x: &Tile<N, V>,
    w: &Tile<N, V>,
    grid: AffineGrid,
) -> AffineFit<V> {
    let (zero, one) = (F4::splat(0.0), F4::splat(1.0));
    let top = F4::splat(grid.top);
    let (mut lo, mut hi) = (x[0], x[0]);
    let mut sum_w = w[0];
    let mut sum_x: [F4; V] = std::array::from_fn(|v| w[0][v] * x[0][v]);
    for i in 1..N {
        for v in 0..V {
            lo[v] = x[i][v].or_below(lo[v]);
            hi[v] = x[i][v].or_above(hi[v]);
            sum_w[v] = sum_w[v] + w[i][v];
            sum_x[v] = sum_x[v] + w[i][v] * x[i][v];
        }
    }
    let (mut inverse, mut scale, mut flat) = ([zero; V], [zero; V], [zero; V]);
    for v in 0..V {
        lo[v] = lo[v].gt(zero).select(zero, lo[v]);
        flat[v] = hi[v].eq(lo[v]).select(one, zero);
        inverse[v] = top / (hi[v] - lo[v]);
        scale[v] = one / inverse[v];
    }
    let mut codes = [[zero; V]; N];
    for i in 0..N {
        for v in 0..V {
            codes[i][v] = (inverse[v] * (x[i][v] - lo[v]))
                .nearest()
                .or_below(top)
                .or_above(zero);
        }
    }
    let mut best = affine_error::<N, V, ABSOLUTE>(x, w, &codes, &scale, &lo);
    let (mut min, mut offset) = (lo, lo);

    for step in 0..=grid.last {
        let numerator = F4::splat(grid.from + grid.step * step as f32 + grid.top);
        let inv: [F4; V] = std::array::from_fn(|v| numerator / (hi[v] - min[v]));
        let (mut sum_l, mut sum_l2, mut sum_xl) = ([zero; V], [zero; V], [zero; V]);
        for i in 0..N {
            for v in 0..V {
                let l = (inv[v] * (x[i][v] - min[v]))
                    .nearest()
                    .or_below(top)
                    .or_above(zero);
                let wl = w[i][v] * l;
                sum_l[v] = sum_l[v] + wl;
                sum_l2[v] = sum_l2[v] + wl * l;
                sum_xl[v] = sum_xl[v] + wl * x[i][v];
                codes[i][v] = l;
            }
        }
        let (mut det, mut new_scale, mut new_min) = ([zero; V], [zero; V], [zero; V]);
        for v in 0..V {
            det[v] = sum_w[v] * sum_l2[v] - sum_l[v] * sum_l[v];
            let solved_scale = (sum_w[v] * sum_xl[v] - sum_x[v] * sum_l[v]) / det[v];
            let solved_min = (sum_l2[v] * sum_x[v] - sum_l[v] * sum_xl[v]) / det[v];
            let positive = solved_min.gt(zero);
            new_min[v] = positive.select(zero, solved_min);
            new_scale[v] = positive.select(sum_xl[v] / sum_l2[v], solved_scale);
        }
        let error = affine_error::<N, V, ABSOLUTE>(x, w, &codes, &new_scale, &new_min);
        for v in 0..V {
            let better = det[v].gt(zero) & best[v].gt(error[v]);
            best[v] = better.select(error[v], best[v]);
            inverse[v] = better.select(inv[v], inverse[v]);
            offset[v] = better.select(min[v], offset[v]);
            scale[v] = better.select(new_scale[v], scale[v]);
            min[v] = better.select(new_min[v], min[v]);
        }
    }

    let neg_min: [F4; V] = std::array::from_fn(|v| -flat[v].ne(zero).select(lo[v], min[v]));
    let scale: [F4; V] = std::array::from_fn(|v| flat[v].ne(zero).select(zero, scale[v]));
    AffineFit {
        scale: scale.map(F4::to_array),
        neg_min: neg_min.map(F4::to_array),
        inverse: inverse.map(F4::to_array),
        offset: offset.map(F4::to_array),
        flat: flat.map(F4::to_array),
        top: grid.top,
    }
}

#[inline(always)]
fn affine_error<const N: usize, const V: usize, const ABSOLUTE: bool>(
    x: &Tile<N, V>,
    w: &Tile<N, V>,
    codes: &Tile<N, V>,
    scale: &[F4; V],
    min: &[F4; V],
) -> [F4; V] {
    let mut error = [F4::splat(0.0); V];
    for i in 0..N {
        for v in 0..V {
            let diff = scale[v] * codes[i][v] + min[v] - x[i][v];
            let loss = if ABSOLUTE { diff.abs() } else { diff * diff };
            error[v] = error[v] + w[i][v] * loss;
        }
    }
    error
}
