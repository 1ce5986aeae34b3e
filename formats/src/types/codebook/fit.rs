//! The search of the IQ2 and IQ3 encoders: for each group of 16 or 32 weights a scale and points of the codebook that
//! lose least.
//!
//! A search tries scales around the one that puts the largest weight on the largest coordinate. For each it rounds the
//! weights, takes the points that lie there or the best of those around, and keeps the assignment whose own best scale
//! loses least. Then points that were not hit exactly are looked for once more with that scale.
//!
//! Products associate as written in the reference: `w * x * q` is `(w * x) * q`. Source: ggml
//! `quantize_row_iq2_xxs_impl`, `quantize_row_iq2_xs_impl`, `quantize_row_iq2_s_impl`, `quantize_row_iq3_xxs_impl`,
//! `quantize_row_iq3_s_impl`.

use super::neighbours::{Codebook, Nearest, Target, nearest};
use super::{code_bits, error_weights, signs};
use crate::types::EncodeFn;
use crate::types::k_block::BLOCK;
use crate::types::lanes::{LANES, Simd, Vector};
use crate::types::num::{nearest_int, put_f16};
use crate::types::search::{fit_unsigned, side_by_side};

/// How a type searches; `N` is the number of coordinates of a point.
pub(in crate::types) struct Kind<const N: usize> {
    /// The type's encoder, for blocks with values that an instruction set does not suit.
    pub definition: EncodeFn,
    /// The codebook.
    pub book: Codebook<N>,
    /// The largest code of a coordinate.
    pub top: u16,
    /// Scales tried on either side, and how far the largest coordinate moves from one to the next.
    pub tries: i16,
    pub step: f32,
    /// True if seven signs of eight are stored.
    pub even_signs: bool,
    /// Groups whose largest magnitude is below this are zero.
    pub zero_below: f32,
    /// Factor on the mean square in the weights of errors.
    pub sigma: f32,
    /// The weight of an error without importance, from the weight and the multiplied mean square.
    pub plain_weight: fn(f32, f32) -> f32,
    /// True if the scale to start from is fitted to rounding without a codebook, not taken from the largest magnitude.
    pub fitted_start: bool,
    /// Which points are looked for again.
    pub again: Again,
}

/// Which points are looked for again with the scale that was found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::types) enum Again {
    /// All points.
    All,
    /// All points, unless each was hit exactly by a trial.
    AllUnlessHit,
    /// Points that were not hit exactly.
    Missed,
}

/// The fit of a block's groups.
pub(in crate::types) struct BlockFit<const GROUPS: usize> {
    /// Not negative.
    pub scales: [f32; GROUPS],
    /// Places in the codebook; a group of fewer than eight points uses the first.
    pub points: [[u16; 8]; GROUPS],
    /// Signs of eight weights each.
    pub signs: [[u8; 4]; GROUPS],
    /// Which groups counted as zero and were not searched.
    pub zero: [bool; GROUPS],
    /// The largest of the scales.
    pub largest: f32,
}

/// The code `s` of a scale whose steps are `1 / inverse` and that is to be `2 s + 1` of them.
#[inline(always)]
pub(in crate::types) fn scale_code(inverse: f32, scale: f32, top: i32) -> u8 {
    nearest_int(0.5 * (inverse * scale - 1.0)).clamp(0, top) as u8
}

impl<const GROUPS: usize> BlockFit<GROUPS> {
    /// Writes the scale of a block, of which 31 steps are the largest of its groups', times `factor`. Returns the
    /// inverse of a step, or nothing, and leaves the block, where all scales are zero.
    #[inline(always)]
    pub fn write_scale(&self, factor: f32, block: &mut [u8]) -> Option<f32> {
        if self.largest == 0.0 {
            return None;
        }
        let d = self.largest / 31.0;
        put_f16(block, 0, d * factor);
        Some(1.0 / d)
    }

    /// Writes the scale codes of the groups into bytes that are zero: [`super::scale_nibbles`] reads them.
    #[inline(always)]
    pub fn write_scale_nibbles(&self, inverse: f32, bytes: &mut [u8]) {
        for (g, scale) in self.scales.iter().enumerate() {
            bytes[g / 2] |= scale_code(inverse, *scale, 15) << (4 * (g % 2));
        }
    }
}

/// Magnitudes of a group and the weights of their errors.
struct Group<const SIZE: usize> {
    x: [f32; SIZE],
    weight: [f32; SIZE],
    /// Their products.
    weighted: [f32; SIZE],
    /// Square roots of the weights, with which ggml measures distances to points.
    root: [f32; SIZE],
}

/// Fits the `GROUPS` groups of `SIZE` weights of a block.
#[inline(always)]
pub(super) fn fit_block<S: Simd, const N: usize, const SIZE: usize, const GROUPS: usize>(
    simd: S,
    kind: &Kind<N>,
    x: &[f32; BLOCK],
    importance: Option<&[f32; BLOCK]>,
) -> BlockFit<GROUPS> {
    let weight = error_weights(x, importance, kind.sigma, kind.plain_weight);
    let mut fit = BlockFit {
        scales: [0.0; GROUPS],
        points: [[0; 8]; GROUPS],
        signs: [[0; 4]; GROUPS],
        zero: [false; GROUPS],
        largest: 0.0,
    };
    let mut magnitudes = [0.0; BLOCK];
    let eights = x.as_chunks::<8>().0.iter().zip(weight.as_chunks::<8>().0);
    for (k, ((x, w), m)) in eights.zip(magnitudes.as_chunks_mut::<8>().0).enumerate() {
        fit.signs[k / (SIZE / 8)][k % (SIZE / 8)] =
            if kind.even_signs { signs::split_even(x, w, m) } else { signs::split(x, m) };
    }
    let top = f32::from(2 * kind.top + 1);
    let mut started = [0.0; 16];
    if kind.fitted_start {
        let x = side_by_side::<S, SIZE>(simd, &magnitudes);
        let w = side_by_side::<S, SIZE>(simd, &weight);
        let codes = f32::from(kind.top + 2);
        started = fit_unsigned(simd, &x, &w, codes).0.to_array();
    }
    let groups = magnitudes.as_chunks::<SIZE>().0.iter().zip(weight.as_chunks::<SIZE>().0);
    for (g, (x, weight)) in groups.enumerate() {
        let mut largest = x[0];
        for &v in &x[1..] {
            largest = if largest > v { largest } else { v };
        }
        let start = if kind.fitted_start { started[g] * f32::from(kind.top + 1) } else { largest };
        if largest < kind.zero_below || largest == 0.0 || kind.fitted_start && start <= 0.0 {
            fit.signs[g] = [0; 4];
            fit.zero[g] = true;
            continue;
        }
        let mut root = *weight;
        for w in &mut root {
            *w = w.sqrt();
        }
        let mut weighted = *weight;
        for (w, x) in weighted.iter_mut().zip(x) {
            *w *= x;
        }
        let group = Group { x: *x, weight: *weight, weighted, root };
        let initial = if kind.fitted_start { started[g] } else { largest / top };
        let (scale, points) = fit_group(simd, kind, &group, start, initial);
        if scale < 0.0 {
            let all = if kind.even_signs { 0x7F } else { 0xFF };
            fit.signs[g] = fit.signs[g].map(|s| !s & all);
        }
        fit.scales[g] = scale.abs();
        fit.points[g] = points;
        fit.largest = if fit.largest > scale.abs() { fit.largest } else { scale.abs() };
    }
    fit
}

/// The scale of a group, which may be negative, and its points. The largest coordinate is tried for weights of `start`
/// and around; `scale` is what the scale is where every trial is as good as nothing.
#[inline(always)]
fn fit_group<S: Simd, const N: usize, const SIZE: usize>(
    simd: S,
    kind: &Kind<N>,
    group: &Group<SIZE>,
    start: f32,
    mut scale: f32,
) -> (f32, [u16; 8]) {
    let cells = SIZE / N;
    let top = f32::from(2 * kind.top + 1);
    let mut points = [0; 8];
    let mut missed = [kind.again == Again::AllUnlessHit; 8];
    let mut best = 0.0;
    for step in -kind.tries..=kind.tries {
        let inverse = (top + f32::from(step) * kind.step) / start;
        let places = round(simd, kind, group, inverse);
        let (mut trial, mut off) = ([0; 8], [false; 8]);
        for cell in 0..cells {
            (trial[cell], off[cell]) = find(simd, kind, group, cell, places[cell], 1.0 / inverse);
        }
        let (sum_qx, sum_q2) = projections(kind, group, &trial);
        if sum_q2 > 0.0 && sum_qx * sum_qx > best * sum_q2 {
            scale = sum_qx / sum_q2;
            best = scale * sum_qx;
            (points, missed) = (trial, off);
        }
    }
    let some_missed = missed[..cells].contains(&true);
    if scale > 0.0 && (some_missed || kind.again == Again::All) {
        let places = round(simd, kind, group, 1.0 / scale);
        for cell in 0..cells {
            if missed[cell] || kind.again != Again::Missed {
                points[cell] = find(simd, kind, group, cell, places[cell], scale).0;
            }
        }
        let (sum_qx, sum_q2) = projections(kind, group, &points);
        if sum_q2 > 0.0 {
            scale = sum_qx / sum_q2;
        }
    }
    (scale, points)
}

/// The places to which the cells of a group are rounded at a scale, their codes packed.
#[inline(always)]
fn round<S: Simd, const N: usize, const SIZE: usize>(
    simd: S,
    kind: &Kind<N>,
    group: &Group<SIZE>,
    inverse: f32,
) -> [usize; 8] {
    let (zero, top) = (simd.splat(0.0), simd.splat(f32::from(kind.top)));
    let mut codes = [0; 32];
    let sixteens = codes.as_chunks_mut::<LANES>().0.iter_mut();
    for (codes, x) in sixteens.zip(group.x.as_chunks::<LANES>().0) {
        let steps = simd.splat(inverse) * simd.load(x) - simd.splat(1.0);
        let nearest = (simd.splat(0.5) * steps).nearest();
        *codes = nearest.or_above(zero).or_below(top).to_codes();
    }
    let mut places = [0; 8];
    for (place, codes) in places.iter_mut().zip(codes.as_chunks::<N>().0) {
        *place = pack(codes);
    }
    places
}

/// Codes one after the other, as codebooks have them: neighbours move together, then pairs, then fours.
#[inline(always)]
fn pack<const N: usize>(codes: &[u8; N]) -> usize {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(codes);
    let mut bits = u64::from_le_bytes(bytes);
    if const { code_bits(N) } == 2 {
        bits = (bits | bits >> 6) & 0x000F_000F_000F_000F;
        bits = (bits | bits >> 12) & 0x0000_00FF_0000_00FF;
        (bits | bits >> 24) as usize & 0xFFFF
    } else {
        bits = (bits | bits >> 5) & 0x003F_003F;
        (bits | bits >> 10) as usize & 0x0FFF
    }
}

/// The point for a cell of a group that is rounded to a place at a scale, and whether it is not that place's own.
#[inline(always)]
fn find<S: Simd, const N: usize, const SIZE: usize>(
    simd: S,
    kind: &Kind<N>,
    group: &Group<SIZE>,
    cell: usize,
    place: usize,
    scale: f32,
) -> (u16, bool) {
    match kind.book.at(place) {
        Nearest::Point(point) => (point, false),
        Nearest::Between(around) => {
            let x = &group.x.as_chunks::<N>().0[cell];
            let weight = &group.root.as_chunks::<N>().0[cell];
            let target = Target { x, weight, scale };
            (nearest::<S, N, false>(simd, around, target, 0.0), true)
        }
    }
}

/// `sum(w x q)` and `sum(w q q)` of the coordinates `q` of some points.
#[inline(always)]
fn projections<const N: usize, const SIZE: usize>(
    kind: &Kind<N>,
    group: &Group<SIZE>,
    points: &[u16; 8],
) -> (f32, f32) {
    let (mut sum_qx, mut sum_q2) = (0.0, 0.0);
    let weighted = group.weighted.as_chunks::<N>().0;
    let cells = weighted.iter().zip(group.weight.as_chunks::<N>().0);
    for ((weighted, weight), point) in cells.zip(points) {
        let values = &kind.book.values()[usize::from(*point)];
        for i in 0..N {
            let (w, q) = (weight[i], values[i]);
            sum_qx += weighted[i] * q;
            sum_q2 += w * q * q;
        }
    }
    (sum_qx, sum_q2)
}
