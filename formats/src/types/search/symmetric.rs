//! Scale alone: codes on both sides of zero.

use super::{DESCENT_ROUNDS, GROUP_EPS, Tile};
use crate::types::lanes::{F4, Mask};
use crate::types::num::nearest_int;

/// `x ~ scale * (code - half)` per group, `code` in `0..2 * half`.
#[derive(Clone, Copy)]
pub(in crate::types) struct SymmetricFit<const V: usize> {
    /// Step between neighbouring codes; its sign is such that the extreme element gets code 0.
    pub scale: [[f32; 4]; V],
    inverse: [[f32; 4]; V],
    magnitude: [[f32; 4]; V],
    half: f32,
}

impl<const V: usize> SymmetricFit<V> {
    /// The code that the search gave to element `x` of group `k`. All-zero groups get code 0, not the
    /// code of zero: the reference leaves them so, and their scale is 0.
    pub fn code(&self, k: usize, x: f32) -> u8 {
        let (v, l) = (k / 4, k % 4);
        if self.magnitude[v][l] < GROUP_EPS {
            return 0;
        }
        let half = self.half as i32;
        (nearest_int(self.inverse[v][l] * x).clamp(-half, half - 1) + half) as u8
    }
}

/// Largest magnitude per group and the element that has it, the first of equals; NaN is passed over.
#[inline(always)]
fn extremes<const N: usize, const V: usize>(x: &Tile<N, V>) -> ([F4; V], [F4; V]) {
    let (mut magnitude, mut extreme) = ([F4::splat(0.0); V], [F4::splat(0.0); V]);
    for row in x {
        for v in 0..V {
            let larger = row[v].abs().gt(magnitude[v]);
            extreme[v] = larger.select(row[v], extreme[v]);
            magnitude[v] = larger.select(row[v].abs(), magnitude[v]);
        }
    }
    (magnitude, extreme)
}

/// Weighted fit of one scale: the extreme element is mapped to `-half`, then to 18 points around it in
/// steps of a tenth; for each rounding the best scale is `sum(w x l) / sum(w l l)`.
///
/// Source: ggml `make_qx_quants` with `rmse_type` 1.
#[inline(never)]
pub(in crate::types) fn fit_symmetric<const N: usize, const V: usize>(
    x: &Tile<N, V>,
    w: &Tile<N, V>,
    half: f32,
) -> SymmetricFit<V> {
    let zero = F4::splat(0.0);
    let (magnitude, extreme) = extremes(x);
    let mut wx = *w;
    for i in 0..N {
        for v in 0..V {
            wx[i][v] = w[i][v] * x[i][v];
        }
    }
    let sums = |inverse: &[F4; V]| {
        let (lowest, highest) = (F4::splat(-half), F4::splat(half - 1.0));
        let (mut sum_lx, mut sum_l2) = ([zero; V], [zero; V]);
        for i in 0..N {
            for v in 0..V {
                let l = (inverse[v] * x[i][v])
                    .nearest()
                    .or_below(highest)
                    .or_above(lowest);
                sum_lx[v] = sum_lx[v] + wx[i][v] * l;
                sum_l2[v] = sum_l2[v] + w[i][v] * l * l;
            }
        }
        (sum_lx, sum_l2)
    };

    let mut inverse: [F4; V] = std::array::from_fn(|v| F4::splat(-half) / extreme[v]);
    let (sum_lx, sum_l2) = sums(&inverse);
    let (mut scale, mut best) = ([zero; V], [zero; V]);
    for v in 0..V {
        scale[v] = sum_l2[v].ne(zero).select(sum_lx[v] / sum_l2[v], zero);
        best[v] = scale[v] * sum_lx[v];
    }
    for step in -9..=9 {
        if step == 0 {
            continue;
        }
        let numerator = F4::splat(-(half + 0.1 * step as f32));
        let inv: [F4; V] = std::array::from_fn(|v| numerator / extreme[v]);
        let (sum_lx, sum_l2) = sums(&inv);
        for v in 0..V {
            let better = sum_l2[v].gt(zero) & (sum_lx[v] * sum_lx[v]).gt(best[v] * sum_l2[v]);
            inverse[v] = better.select(inv[v], inverse[v]);
            scale[v] = better.select(sum_lx[v] / sum_l2[v], scale[v]);
            best[v] = better.select(scale[v] * sum_lx[v], best[v]);
        }
    }
    let eps = F4::splat(GROUP_EPS);
    let scale: [F4; V] = std::array::from_fn(|v| eps.gt(magnitude[v]).select(zero, scale[v]));
    SymmetricFit {
        scale: scale.map(F4::to_array),
        inverse: inverse.map(F4::to_array),
        magnitude: magnitude.map(F4::to_array),
        half,
    }
}

/// Scale and codes (`0..2 * half`) per group, weights `x * x`: starts from the extreme element at
/// `-half`, then changes one code at a time where that raises `sum(w x l)^2 / sum(w l l)`.
/// A group without a change in one round has none in the next, so all lanes go on together.
///
/// Source: ggml `make_q3_quants` with `do_rmse`.
#[inline(never)]
pub(in crate::types) fn fit_descent<const N: usize, const V: usize>(
    x: &Tile<N, V>,
    half: f32,
) -> ([[f32; 4]; V], [[[f32; 4]; V]; N]) {
    let zero = F4::splat(0.0);
    let (lowest, highest) = (F4::splat(-half), F4::splat(half - 1.0));
    let (magnitude, extreme) = extremes(x);
    let mut codes = [[zero; V]; N];
    let (mut sum_lx, mut sum_l2) = ([zero; V], [zero; V]);
    for v in 0..V {
        let inverse = lowest / extreme[v];
        for i in 0..N {
            let e = x[i][v];
            let l = (inverse * e).nearest().or_below(highest).or_above(lowest);
            let w = e * e;
            sum_lx[v] = sum_lx[v] + w * e * l;
            sum_l2[v] = sum_l2[v] + w * l * l;
            codes[i][v] = l;
        }
    }
    for _ in 0..DESCENT_ROUNDS {
        let mut changed = zero.ne(zero);
        for i in 0..N {
            for v in 0..V {
                let (e, l) = (x[i][v], codes[i][v]);
                let w = e * e;
                let lx_without = sum_lx[v] - w * e * l;
                let l2_without = sum_l2[v] - w * l * l;
                let new = (e * l2_without / lx_without)
                    .nearest()
                    .or_below(highest)
                    .or_above(lowest);
                let lx = lx_without + w * e * new;
                let l2 = l2_without + w * new * new;
                let better: Mask = lx_without.gt(zero)
                    & new.ne(l)
                    & l2.gt(zero)
                    & (lx * lx * sum_l2[v]).gt(sum_lx[v] * sum_lx[v] * l2);
                codes[i][v] = better.select(new, l);
                sum_lx[v] = better.select(lx, sum_lx[v]);
                sum_l2[v] = better.select(l2, sum_l2[v]);
                changed = changed | better;
            }
        }
        if !changed.any() {
            break;
        }
    }
    let mut scale = [zero; V];
    for v in 0..V {
        let flat = F4::splat(GROUP_EPS).gt(magnitude[v]);
        let fitted = sum_l2[v].gt(zero).select(sum_lx[v] / sum_l2[v], zero);
        scale[v] = flat.select(zero, fitted);
        for row in &mut codes {
            row[v] = flat.select(zero, row[v] + F4::splat(half));
        }
    }
    (
        scale.map(F4::to_array),
        codes.map(|row| row.map(F4::to_array)),
    )
}
