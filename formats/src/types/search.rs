//! The scale searches behind the K-quants: given a small group of weights, find the scale (and offset)
//! whose rounding loses least.
//!
//! Every search runs on `W` groups side by side. A group is one lane and keeps its own chain of float
//! operations in the reference's order, so the bits do not depend on `W`, while the compiler can put
//! the lanes into vector registers. Early exits of a scalar search become selections per lane.
//!
//! Products associate as written in the reference: `w * x * l` is `(w * x) * l`. Codes are kept as
//! floats: they are small integers, which a float holds exactly.

use super::num::nearest_int;

/// Groups whose largest magnitude is below this are treated as all zero.
pub(super) const GROUP_EPS: f32 = 1e-15;

/// `W` groups of `N` elements, transposed: `tile[i][k]` is element `i` of group `k`.
pub(super) type Tile<const N: usize, const W: usize> = [[f32; W]; N];

/// Transposes `W` consecutive groups of `N` elements.
#[inline]
pub(super) fn tile<const N: usize, const W: usize>(x: &[f32]) -> Tile<N, W> {
    let mut t = [[0.0; W]; N];
    for (k, group) in x.chunks_exact(N).take(W).enumerate() {
        for (row, v) in t.iter_mut().zip(group) {
            row[k] = *v;
        }
    }
    t
}

/// Sum of each group, in element order from zero.
#[inline]
pub(super) fn group_sums<const N: usize, const W: usize>(w: &Tile<N, W>) -> [f32; W] {
    let mut sum = [0.0; W];
    for row in w {
        for k in 0..W {
            sum[k] += row[k];
        }
    }
    sum
}

/// `nearest_int` as a float.
#[inline(always)]
fn nearest(v: f32) -> f32 {
    nearest_int(v) as f32
}

#[inline(always)]
fn clamp(l: f32, lo: f32, hi: f32) -> f32 {
    let l = if l < hi { l } else { hi };
    if l > lo { l } else { lo }
}

/// What an 8-bit unsigned code keeps of a small integer.
#[inline(always)]
fn low_byte(l: f32) -> f32 {
    (l as i32 & 0xFF) as f32
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
pub(super) struct AffineFit<const W: usize> {
    /// Step between neighbouring codes.
    pub scale: [f32; W],
    /// The negated offset.
    pub neg_min: [f32; W],
    inverse: [f32; W],
    offset: [f32; W],
    flat: [bool; W],
    top: f32,
}

impl<const W: usize> AffineFit<W> {
    /// The code that the search gave to element `x` of group `k`.
    pub fn code(&self, k: usize, x: f32) -> u8 {
        if self.flat[k] {
            return 0;
        }
        clamp(
            nearest(self.inverse[k] * (x - self.offset[k])),
            0.0,
            self.top,
        ) as u8
    }
}

/// Weighted fit of scale and non-positive offset. Each candidate inverse scale rounds the group to
/// codes, then scale and offset are solved by weighted least squares for those codes; a candidate that
/// lowers the error moves the offset from which the later ones start. The error is the weighted sum of
/// squared differences, or of absolute ones with `ABSOLUTE`.
///
/// Source: ggml `make_qkx2_quants`, and `make_qkx3_quants` with weights, which computes the same.
#[inline]
pub(super) fn fit_affine<const N: usize, const W: usize, const ABSOLUTE: bool>(
    x: &Tile<N, W>,
    w: &Tile<N, W>,
    grid: AffineGrid,
) -> AffineFit<W> {
    let top = grid.top;
    let (mut lo, mut hi) = (x[0], x[0]);
    let mut sum_w = w[0];
    let mut sum_x = [0.0; W];
    for k in 0..W {
        sum_x[k] = w[0][k] * x[0][k];
    }
    for i in 1..N {
        for k in 0..W {
            lo[k] = if x[i][k] < lo[k] { x[i][k] } else { lo[k] };
            hi[k] = if x[i][k] > hi[k] { x[i][k] } else { hi[k] };
            sum_w[k] += w[i][k];
            sum_x[k] += w[i][k] * x[i][k];
        }
    }
    let mut flat = [false; W];
    let mut inverse = [0.0; W];
    let mut scale = [0.0; W];
    for k in 0..W {
        lo[k] = if lo[k] > 0.0 { 0.0 } else { lo[k] };
        flat[k] = hi[k] == lo[k];
        inverse[k] = top / (hi[k] - lo[k]);
        scale[k] = 1.0 / inverse[k];
    }
    let mut codes = [[0.0; W]; N];
    for i in 0..N {
        for k in 0..W {
            codes[i][k] = clamp(nearest(inverse[k] * (x[i][k] - lo[k])), 0.0, top);
        }
    }
    let mut best = affine_error::<N, W, ABSOLUTE>(x, w, &codes, &scale, &lo);
    let (mut min, mut offset) = (lo, lo);

    for step in 0..=grid.last {
        let numerator = grid.from + grid.step * step as f32 + top;
        let mut inv = [0.0; W];
        for k in 0..W {
            inv[k] = numerator / (hi[k] - min[k]);
        }
        let (mut sum_l, mut sum_l2, mut sum_xl) = ([0.0; W], [0.0; W], [0.0; W]);
        for i in 0..N {
            for k in 0..W {
                let l = clamp(nearest(inv[k] * (x[i][k] - min[k])), 0.0, top);
                let wl = w[i][k] * l;
                sum_l[k] += wl;
                sum_l2[k] += wl * l;
                sum_xl[k] += wl * x[i][k];
                codes[i][k] = l;
            }
        }
        let (mut det, mut new_scale, mut new_min) = ([0.0; W], [0.0; W], [0.0; W]);
        for k in 0..W {
            det[k] = sum_w[k] * sum_l2[k] - sum_l[k] * sum_l[k];
            new_scale[k] = (sum_w[k] * sum_xl[k] - sum_x[k] * sum_l[k]) / det[k];
            new_min[k] = (sum_l2[k] * sum_x[k] - sum_l[k] * sum_xl[k]) / det[k];
            if new_min[k] > 0.0 {
                new_min[k] = 0.0;
                new_scale[k] = sum_xl[k] / sum_l2[k];
            }
        }
        let error = affine_error::<N, W, ABSOLUTE>(x, w, &codes, &new_scale, &new_min);
        for k in 0..W {
            if (det[k] > 0.0) & (error[k] < best[k]) {
                best[k] = error[k];
                inverse[k] = inv[k];
                offset[k] = min[k];
                scale[k] = new_scale[k];
                min[k] = new_min[k];
            }
        }
    }

    let mut neg_min = [0.0; W];
    for k in 0..W {
        neg_min[k] = if flat[k] { -lo[k] } else { -min[k] };
        scale[k] = if flat[k] { 0.0 } else { scale[k] };
    }
    AffineFit {
        scale,
        neg_min,
        inverse,
        offset,
        flat,
        top,
    }
}

#[inline(always)]
fn affine_error<const N: usize, const W: usize, const ABSOLUTE: bool>(
    x: &Tile<N, W>,
    w: &Tile<N, W>,
    codes: &Tile<N, W>,
    scale: &[f32; W],
    min: &[f32; W],
) -> [f32; W] {
    let mut error = [0.0; W];
    for i in 0..N {
        for k in 0..W {
            let diff = scale[k] * codes[i][k] + min[k] - x[i][k];
            let loss = if ABSOLUTE { diff.abs() } else { diff * diff };
            error[k] += w[i][k] * loss;
        }
    }
    error
}

/// `x ~ scale * (code - half)` per group, `code` in `0..2 * half`.
#[derive(Clone, Copy)]
pub(super) struct SymmetricFit<const W: usize> {
    /// Step between neighbouring codes; its sign is such that the extreme element gets code 0.
    pub scale: [f32; W],
    inverse: [f32; W],
    flat: [bool; W],
    half: f32,
}

impl<const W: usize> SymmetricFit<W> {
    /// The code that the search gave to element `x` of group `k`. All-zero groups get code 0, not the
    /// code of zero: the reference leaves them so, and their scale is 0.
    pub fn code(&self, k: usize, x: f32) -> u8 {
        if self.flat[k] {
            return 0;
        }
        (clamp(nearest(self.inverse[k] * x), -self.half, self.half - 1.0) + self.half) as u8
    }
}

/// Largest magnitude per group and the element that has it, the first of equals; NaN is passed over.
#[inline(always)]
fn extremes<const N: usize, const W: usize>(x: &Tile<N, W>) -> ([f32; W], [f32; W]) {
    let (mut magnitude, mut extreme) = ([0.0f32; W], [0.0f32; W]);
    for row in x {
        for k in 0..W {
            let a = row[k].abs();
            extreme[k] = if a > magnitude[k] { row[k] } else { extreme[k] };
            magnitude[k] = if a > magnitude[k] { a } else { magnitude[k] };
        }
    }
    (magnitude, extreme)
}

/// Weighted fit of one scale: the extreme element is mapped to `-half`, then to 18 points around it in
/// steps of a tenth; for each rounding the best scale is `sum(w x l) / sum(w l l)`.
///
/// Source: ggml `make_qx_quants` with `rmse_type` 1.
#[inline]
pub(super) fn fit_symmetric<const N: usize, const W: usize>(
    x: &Tile<N, W>,
    w: &Tile<N, W>,
    half: f32,
) -> SymmetricFit<W> {
    let (magnitude, extreme) = extremes(x);
    let mut flat = [false; W];
    let mut inverse = [0.0; W];
    for k in 0..W {
        flat[k] = magnitude[k] < GROUP_EPS;
        inverse[k] = -half / extreme[k];
    }
    let (sum_lx, sum_l2) = symmetric_sums(x, w, &inverse, half);
    let (mut scale, mut best) = ([0.0; W], [0.0; W]);
    for k in 0..W {
        scale[k] = if sum_l2[k] != 0.0 {
            sum_lx[k] / sum_l2[k]
        } else {
            0.0
        };
        best[k] = scale[k] * sum_lx[k];
    }
    for step in -9..=9 {
        if step == 0 {
            continue;
        }
        let numerator = -(half + 0.1 * step as f32);
        let mut inv = [0.0; W];
        for k in 0..W {
            inv[k] = numerator / extreme[k];
        }
        let (sum_lx, sum_l2) = symmetric_sums(x, w, &inv, half);
        for k in 0..W {
            if (sum_l2[k] > 0.0) & (sum_lx[k] * sum_lx[k] > best[k] * sum_l2[k]) {
                inverse[k] = inv[k];
                scale[k] = sum_lx[k] / sum_l2[k];
                best[k] = scale[k] * sum_lx[k];
            }
        }
    }
    for k in 0..W {
        scale[k] = if flat[k] { 0.0 } else { scale[k] };
    }
    SymmetricFit {
        scale,
        inverse,
        flat,
        half,
    }
}

#[inline(always)]
fn symmetric_sums<const N: usize, const W: usize>(
    x: &Tile<N, W>,
    w: &Tile<N, W>,
    inverse: &[f32; W],
    half: f32,
) -> ([f32; W], [f32; W]) {
    let (mut sum_lx, mut sum_l2) = ([0.0; W], [0.0; W]);
    for i in 0..N {
        for k in 0..W {
            let l = clamp(nearest(inverse[k] * x[i][k]), -half, half - 1.0);
            sum_lx[k] += w[i][k] * x[i][k] * l;
            sum_l2[k] += w[i][k] * l * l;
        }
    }
    (sum_lx, sum_l2)
}

/// Rounds of coordinate descent that a search makes at most.
const DESCENT_ROUNDS: usize = 5;

/// Scale and codes (`0..2 * half`) per group, weights `x * x`: starts from the extreme element at
/// `-half`, then changes one code at a time where that raises `sum(w x l)^2 / sum(w l l)`.
/// A group without a change in one round has none in the next, so all lanes go on together.
///
/// Source: ggml `make_q3_quants` with `do_rmse`.
#[inline]
pub(super) fn fit_descent<const N: usize, const W: usize>(
    x: &Tile<N, W>,
    half: f32,
) -> ([f32; W], Tile<N, W>) {
    let (magnitude, extreme) = extremes(x);
    let mut inverse = [0.0; W];
    for k in 0..W {
        inverse[k] = -half / extreme[k];
    }
    let mut codes = [[0.0; W]; N];
    let (mut sum_lx, mut sum_l2) = ([0.0; W], [0.0; W]);
    for i in 0..N {
        for k in 0..W {
            let v = x[i][k];
            let l = clamp(nearest(inverse[k] * v), -half, half - 1.0);
            let w = v * v;
            sum_lx[k] += w * v * l;
            sum_l2[k] += w * l * l;
            codes[i][k] = l;
        }
    }
    for _ in 0..DESCENT_ROUNDS {
        let mut changed = [false; W];
        for i in 0..N {
            for k in 0..W {
                let (v, l) = (x[i][k], codes[i][k]);
                let w = v * v;
                let lx_without = sum_lx[k] - w * v * l;
                let l2_without = sum_l2[k] - w * l * l;
                let new = clamp(nearest(v * l2_without / lx_without), -half, half - 1.0);
                let lx = lx_without + w * v * new;
                let l2 = l2_without + w * new * new;
                let better = (lx_without > 0.0)
                    & (new != l)
                    & (l2 > 0.0)
                    & (lx * lx * sum_l2[k] > sum_lx[k] * sum_lx[k] * l2);
                codes[i][k] = if better { new } else { l };
                sum_lx[k] = if better { lx } else { sum_lx[k] };
                sum_l2[k] = if better { l2 } else { sum_l2[k] };
                changed[k] |= better;
            }
        }
        if changed == [false; W] {
            break;
        }
    }
    let mut scale = [0.0; W];
    for k in 0..W {
        let flat = magnitude[k] < GROUP_EPS;
        scale[k] = if !flat & (sum_l2[k] > 0.0) {
            sum_lx[k] / sum_l2[k]
        } else {
            0.0
        };
        for row in &mut codes {
            row[k] = if flat { 0.0 } else { row[k] + half };
        }
    }
    (scale, codes)
}

/// Weighted fit of one non-negative scale to values that should not be negative (the scales and mins of
/// a super-block), with codes `0..=top`: picks the inverse scale of least squared error among nine, then
/// descends as [`fit_descent`] does. Codes of negative values wrap, as 8-bit codes do in the reference.
///
/// Source: ggml `make_qp_quants`.
#[inline]
pub(super) fn fit_unsigned<const N: usize, const W: usize>(
    x: &Tile<N, W>,
    w: &[f32; N],
    top: f32,
) -> ([f32; W], [[u8; N]; W]) {
    let mut max = [0.0; W];
    for row in x {
        for k in 0..W {
            max[k] = if max[k] > row[k] { max[k] } else { row[k] };
        }
    }
    let (mut inverse, mut best) = ([0.0; W], [0.0; W]);
    for k in 0..W {
        inverse[k] = top / max[k];
        let scale = 1.0 / inverse[k];
        for i in 0..N {
            let diff = x[i][k] - scale * low_byte(nearest(inverse[k] * x[i][k]));
            best[k] += w[i] * diff * diff;
        }
    }
    for step in -4..=4 {
        if step == 0 {
            continue;
        }
        let numerator = 0.1 * step as f32 + top;
        let (mut inv, mut scale, mut error) = ([0.0; W], [0.0; W], [0.0; W]);
        for k in 0..W {
            inv[k] = numerator / max[k];
            scale[k] = 1.0 / inv[k];
        }
        for i in 0..N {
            for k in 0..W {
                let l = nearest(inv[k] * x[i][k]);
                let diff = x[i][k] - scale[k] * if l < top { l } else { top };
                error[k] += w[i] * diff * diff;
            }
        }
        for k in 0..W {
            if error[k] < best[k] {
                best[k] = error[k];
                inverse[k] = inv[k];
            }
        }
    }

    let mut codes = [[0.0; W]; N];
    let (mut sum_lx, mut sum_l2) = ([0.0; W], [0.0; W]);
    for i in 0..N {
        for k in 0..W {
            let l = nearest(inverse[k] * x[i][k]);
            let l = if l < top { l } else { top };
            codes[i][k] = low_byte(l);
            sum_lx[k] += w[i] * x[i][k] * l;
            sum_l2[k] += w[i] * l * l;
        }
    }
    for _ in 0..DESCENT_ROUNDS {
        let mut changed = [false; W];
        for i in 0..N {
            for k in 0..W {
                let (v, l) = (x[i][k], codes[i][k]);
                let lx_without = sum_lx[k] - w[i] * v * l;
                let l2_without = sum_l2[k] - w[i] * l * l;
                let new = nearest(v * l2_without / lx_without);
                let new = if new < top { new } else { top };
                let lx = lx_without + w[i] * v * new;
                let l2 = l2_without + w[i] * new * new;
                let better = (lx_without > 0.0)
                    & (l2_without > 0.0)
                    & (new != l)
                    & (lx * lx * sum_l2[k] > sum_lx[k] * sum_lx[k] * l2);
                codes[i][k] = if better { low_byte(new) } else { l };
                sum_lx[k] = if better { lx } else { sum_lx[k] };
                sum_l2[k] = if better { l2 } else { sum_l2[k] };
                changed[k] |= better;
            }
        }
        if changed == [false; W] {
            break;
        }
    }
    let mut scale = [0.0; W];
    let mut bytes = [[0; N]; W];
    for k in 0..W {
        if max[k] < GROUP_EPS {
            continue;
        }
        scale[k] = if sum_l2[k] > 0.0 {
            sum_lx[k] / sum_l2[k]
        } else {
            0.0
        };
        for i in 0..N {
            bytes[k][i] = codes[i][k] as u8;
        }
    }
    (scale, bytes)
}
