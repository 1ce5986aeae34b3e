//! The scale searches behind the K-quants: given small groups of weights, find for each the scale (and
//! offset) whose rounding loses least.
//!
//! The groups of a block lie side by side in the lanes of `V` vectors. A lane keeps its own chain of
//! float operations in the reference's order, so the bits do not depend on what is beside it; the early
//! exits of a scalar search become selections per lane.
//!
//! Products associate as written in the reference: `w * x * l` is `(w * x) * l`. Codes are kept as
//! floats: they are small integers, which a float holds exactly.

use super::lanes::{F4, Mask};
use super::num::nearest_int;

/// Groups whose largest magnitude is below this are treated as all zero.
pub(super) const GROUP_EPS: f32 = 1e-15;

/// `4 * V` groups of `N` elements, transposed: lane `k % 4` of `tile[i][k / 4]` is element `i` of
/// group `k`.
pub(super) type Tile<const N: usize, const V: usize> = [[F4; V]; N];

/// Transposes consecutive groups of `N` elements. Groups that `x` does not have are zero.
#[expect(
    clippy::needless_range_loop,
    reason = "a transposition walks two indices"
)]
#[inline]
pub(super) fn tile<const N: usize, const V: usize>(x: &[f32]) -> Tile<N, V> {
    let mut t = [[F4::splat(0.0); V]; N];
    let groups = x.as_chunks::<N>().0;
    let zero = [0.0; N];
    for v in 0..V {
        let [a, b, c, d] = std::array::from_fn(|l| groups.get(4 * v + l).unwrap_or(&zero));
        for i in 0..N {
            t[i][v] = F4::new([a[i], b[i], c[i], d[i]]);
        }
    }
    t
}

/// Sum of each group, in element order from zero.
#[inline]
pub(super) fn group_sums<const N: usize, const V: usize>(w: &Tile<N, V>) -> [[f32; 4]; V] {
    let mut sum = [F4::splat(0.0); V];
    for row in w {
        for v in 0..V {
            sum[v] = sum[v] + row[v];
        }
    }
    sum.map(F4::to_array)
}

/// The candidates of [`fit_affine`]: inverse scales `(from + step * i + top) / range`, `i = 0..=last`.
#[derive(Clone, Copy)]
pub(super) struct AffineGrid {
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
pub(super) struct AffineFit<const V: usize> {
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
pub(super) fn fit_affine<const N: usize, const V: usize, const ABSOLUTE: bool>(
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

/// `x ~ scale * (code - half)` per group, `code` in `0..2 * half`.
#[derive(Clone, Copy)]
pub(super) struct SymmetricFit<const V: usize> {
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
pub(super) fn fit_symmetric<const N: usize, const V: usize>(
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

/// Rounds of coordinate descent that a search makes at most.
const DESCENT_ROUNDS: usize = 5;

/// Scale and codes (`0..2 * half`) per group, weights `x * x`: starts from the extreme element at
/// `-half`, then changes one code at a time where that raises `sum(w x l)^2 / sum(w l l)`.
/// A group without a change in one round has none in the next, so all lanes go on together.
///
/// Source: ggml `make_q3_quants` with `do_rmse`.
#[inline(never)]
pub(super) fn fit_descent<const N: usize, const V: usize>(
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

/// Weighted fit of one non-negative scale to values that should not be negative (the scales or the
/// minima of a super-block), with codes `0..=top`: picks the inverse scale of least squared error among
/// nine, then descends as [`fit_descent`] does. Codes of negative values wrap, as 8-bit codes do in the
/// reference.
///
/// Source: ggml `make_qp_quants`.
pub(super) fn fit_unsigned<const N: usize>(x: &[f32; N], w: &[f32; N], top: i32) -> (f32, [u8; N]) {
    let mut codes = [0; N];
    let max = x.iter().fold(0.0, |max, v| if max > *v { max } else { *v });
    if max < GROUP_EPS {
        return (0.0, codes);
    }
    let mut inverse = top as f32 / max;
    let scale = 1.0 / inverse;
    let mut best = 0.0;
    for (x, w) in x.iter().zip(w) {
        let diff = x - scale * f32::from(nearest_int(inverse * x) as u8);
        best += w * diff * diff;
    }
    for step in -4..=4 {
        if step == 0 {
            continue;
        }
        let inv = (0.1 * step as f32 + top as f32) / max;
        let scale = 1.0 / inv;
        let mut error = 0.0;
        for (x, w) in x.iter().zip(w) {
            let diff = x - scale * nearest_int(inv * x).min(top) as f32;
            error += w * diff * diff;
        }
        if error < best {
            best = error;
            inverse = inv;
        }
    }

    let (mut sum_lx, mut sum_l2) = (0.0, 0.0);
    for ((code, x), w) in codes.iter_mut().zip(x).zip(w) {
        let l = nearest_int(inverse * x).min(top);
        *code = l as u8;
        sum_lx += w * x * l as f32;
        sum_l2 += w * l as f32 * l as f32;
    }
    for _ in 0..DESCENT_ROUNDS {
        let mut changed = false;
        for ((code, x), w) in codes.iter_mut().zip(x).zip(w) {
            let l = f32::from(*code);
            let mut lx = sum_lx - w * x * l;
            let mut l2 = sum_l2 - w * l * l;
            if !(lx > 0.0 && l2 > 0.0) {
                continue;
            }
            let new = nearest_int(x * l2 / lx).min(top);
            if new == i32::from(*code) {
                continue;
            }
            lx += w * x * new as f32;
            l2 += w * new as f32 * new as f32;
            if lx * lx * sum_l2 > sum_lx * sum_lx * l2 {
                *code = new as u8;
                (sum_lx, sum_l2) = (lx, l2);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    (if sum_l2 > 0.0 { sum_lx / sum_l2 } else { 0.0 }, codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: AffineGrid = AffineGrid {
        top: 15.0,
        from: -1.0,
        step: 0.1,
        last: 20,
    };

    /// 8 groups of 16 unlike values, one group all zero.
    fn groups() -> Vec<f32> {
        let value = |i: usize| {
            if i / 16 == 5 {
                0.0
            } else {
                ((i * 37 % 101) as f32 - 40.0) * 0.01 * (1 + i / 16) as f32
            }
        };
        (0..128).map(value).collect()
    }

    #[test]
    fn a_group_does_not_see_its_neighbours() {
        let x = groups();
        let w: Vec<f32> = x.iter().map(|v| 0.3 + v.abs()).collect();
        let affine = fit_affine::<16, 2, false>(&tile(&x), &tile(&w), GRID);
        let symmetric = fit_symmetric::<16, 2>(&tile(&x), &tile(&w), 4.0);
        let (descent, codes) = fit_descent::<16, 2>(&tile(&x), 4.0);
        for k in 0..8 {
            let (x, w) = (&x[16 * k..16 * (k + 1)], &w[16 * k..16 * (k + 1)]);
            let alone = fit_affine::<16, 1, false>(&tile(x), &tile(w), GRID);
            assert_eq!(
                affine.scale[k / 4][k % 4].to_bits(),
                alone.scale[0][0].to_bits()
            );
            assert_eq!(
                affine.neg_min[k / 4][k % 4].to_bits(),
                alone.neg_min[0][0].to_bits()
            );
            let alone = fit_symmetric::<16, 1>(&tile(x), &tile(w), 4.0);
            assert_eq!(
                symmetric.scale[k / 4][k % 4].to_bits(),
                alone.scale[0][0].to_bits()
            );
            assert_eq!(
                x.iter().map(|v| symmetric.code(k, *v)).max(),
                x.iter().map(|v| alone.code(0, *v)).max()
            );
            let (alone, own) = fit_descent::<16, 1>(&tile(x), 4.0);
            assert_eq!(descent[k / 4][k % 4].to_bits(), alone[0][0].to_bits());
            assert!((0..16).all(|i| codes[i][k / 4][k % 4] == own[i][0][0]));
        }
    }

    #[test]
    fn exact_groups_are_found_exactly() {
        let codes: [u8; 16] = std::array::from_fn(|i| i as u8);
        let x = codes.map(|c| 0.25 * f32::from(c) - 1.5);
        let fit = fit_affine::<16, 1, false>(&tile(&x), &tile(&[1.0; 16]), GRID);
        assert_eq!((fit.scale[0][0], fit.neg_min[0][0]), (0.25, 1.5));
        assert_eq!(x.map(|v| fit.code(0, v)), codes);

        let codes: [u8; 16] = std::array::from_fn(|i| i as u8 % 8);
        let x = codes.map(|c| 0.5 * (f32::from(c) - 4.0));
        let fit = fit_symmetric::<16, 1>(&tile(&x), &tile(&[1.0; 16]), 4.0);
        assert_eq!(fit.scale[0][0], 0.5);
        assert_eq!(x.map(|v| fit.code(0, v)), codes);

        let x = [0.0, 1.5, 3.0, 22.5, 6.0, 10.5, 19.5, 4.5];
        assert_eq!(
            fit_unsigned(&x, &[1.0; 8], 15),
            (1.5, [0, 1, 2, 15, 4, 7, 13, 3])
        );
    }

    #[test]
    fn groups_without_extent_have_no_scale() {
        let fit = fit_affine::<16, 1, false>(&tile(&[-2.0; 16]), &tile(&[1.0; 16]), GRID);
        assert_eq!(
            (fit.scale[0][0], fit.neg_min[0][0], fit.code(0, -2.0)),
            (0.0, 2.0, 0)
        );
        let fit = fit_symmetric::<16, 1>(&tile(&[1e-16; 16]), &tile(&[1.0; 16]), 4.0);
        assert_eq!((fit.scale[0][0], fit.code(0, 1e-16)), (0.0, 0));
        assert_eq!(fit_unsigned(&[1e-16, -1.0], &[1.0; 2], 15), (0.0, [0, 0]));
    }
}
