//! What Q4_K and Q5_K share: 8 groups of 32, each with a 6-bit scale and a 6-bit minimum, behind a
//! header of 16 bytes. The types differ in the width of the codes and in where their bits lie.
//!
//! ```text
//! byte   0        2           4              16
//!        | d: f16 | dmin: f16 | scales: 12 B |
//! j < 4 : scale_j = scales[j] & 63                  min_j = scales[j + 4] & 63
//! j >= 4: scale_j = scales[j + 4] & 15 | (scales[j - 4] >> 6) << 4
//!         min_j   = scales[j + 4] >> 4 | (scales[j] >> 6) << 4
//! x[e] = (d * scale_j) * code[e] - (dmin * min_j)   group j = elements 32 j .. 32 j + 31
//! ```

use super::k_block::{self, BLOCK};
use super::num::{f16_at, nearest_int, put_f16};
use super::q8_k;
use super::search::{self, AffineFit, AffineGrid, fit_affine, fit_unsigned};

/// Elements of a group.
pub(super) const GROUP: usize = 32;
const GROUPS: usize = BLOCK / GROUP;
/// Bytes of the header.
pub(super) const HEADER: usize = 16;
const D: usize = 0;
const DMIN: usize = 2;
const SCALES: usize = 4;
const SCALE_TOP: f32 = 63.0;

/// How a type searches.
pub(super) struct Search {
    /// Candidates without importance.
    pub plain: AffineGrid,
    /// Candidates with importance.
    pub important: AffineGrid,
    /// Whether 6-bit fields that wrapped below zero are cut to 63 when importance is given (Q5_K) or
    /// overlap their neighbours (Q4_K).
    pub cut_wrapped: bool,
}

fn pack_scales(scales: &[u8; GROUPS], mins: &[u8; GROUPS], bytes: &mut [u8]) {
    for j in 0..4 {
        bytes[j] = scales[j] | scales[j + 4] >> 4 << 6;
        bytes[j + 4] = mins[j] | mins[j + 4] >> 4 << 6;
        bytes[j + 8] = scales[j + 4] & 15 | mins[j + 4] << 4;
    }
}

fn unpack_scales(bytes: &[u8]) -> ([u8; GROUPS], [u8; GROUPS]) {
    let (mut scales, mut mins) = ([0; GROUPS], [0; GROUPS]);
    for j in 0..4 {
        scales[j] = bytes[j] & 63;
        mins[j] = bytes[j + 4] & 63;
        scales[j + 4] = bytes[j + 8] & 15 | bytes[j] >> 6 << 4;
        mins[j + 4] = bytes[j + 8] >> 4 | bytes[j + 4] >> 6 << 4;
    }
    (scales, mins)
}

/// Weights of a block from its header and codes.
#[inline(always)]
pub(super) fn decode(header: &[u8], codes: &[u8; BLOCK], y: &mut [f32; BLOCK]) {
    let (d, dmin) = (f16_at(header, D), f16_at(header, DMIN));
    let (scales, mins) = unpack_scales(&header[SCALES..HEADER]);
    let groups = y
        .as_chunks_mut::<GROUP>()
        .0
        .iter_mut()
        .zip(codes.as_chunks::<GROUP>().0);
    for ((y, codes), (s, m)) in groups.zip(scales.into_iter().zip(mins)) {
        let (dl, ml) = (d * f32::from(s), dmin * f32::from(m));
        for (y, c) in y.iter_mut().zip(codes) {
            *y = dl * f32::from(*c) - ml;
        }
    }
}

/// Writes the header of a block and returns its codes.
#[inline(always)]
pub(super) fn encode(
    x: &[f32; BLOCK],
    importance: Option<&[f32; BLOCK]>,
    header: &mut [u8],
    search: &Search,
) -> [u8; BLOCK] {
    let (fit, top) = match importance {
        None => (scales_plain(x, header, search), search.plain.top),
        Some(qw) => (
            scales_important(x, qw, header, search),
            search.important.top,
        ),
    };
    let (d, dmin) = (f16_at(header, D), f16_at(header, DMIN));
    let (scales, mins) = unpack_scales(&header[SCALES..HEADER]);
    let mut codes = [0; BLOCK];
    for (j, (codes, x)) in codes
        .as_chunks_mut::<GROUP>()
        .0
        .iter_mut()
        .zip(x.as_chunks::<GROUP>().0)
        .enumerate()
    {
        let dl = d * f32::from(scales[j]);
        if dl == 0.0 {
            *codes = x.map(|v| fit.code(j, v));
        } else {
            k_block::round_affine(x, dl, dmin * f32::from(mins[j]), top as i32, codes);
        }
    }
    codes
}

/// The largest scale and the largest minimum get code 63.
fn scales_plain(x: &[f32; BLOCK], header: &mut [u8], search: &Search) -> AffineFit<GROUPS> {
    let x = search::tile::<GROUP, GROUPS>(x);
    let mut sum_squares = [0.0; GROUPS];
    for row in &x {
        for k in 0..GROUPS {
            sum_squares[k] += row[k] * row[k];
        }
    }
    let rms = sum_squares.map(|s| (s / GROUP as f32).sqrt());
    let mut w = [[0.0; GROUPS]; GROUP];
    for (w, x) in w.iter_mut().zip(&x) {
        for k in 0..GROUPS {
            w[k] = rms[k] + x[k].abs();
        }
    }
    let fit = fit_affine::<GROUP, GROUPS, false>(&x, &w, search.plain);
    let largest = |v: &[f32; GROUPS]| v.iter().fold(0.0, |max, s| if *s > max { *s } else { max });
    let (max_scale, max_min) = (largest(&fit.scale), largest(&fit.neg_min));
    let codes = |max: f32, v: &[f32; GROUPS]| {
        let inverse = if max > 0.0 { SCALE_TOP / max } else { 0.0 };
        v.map(|s| (nearest_int(inverse * s) as u8).min(SCALE_TOP as u8))
    };
    let (scales, mins) = (codes(max_scale, &fit.scale), codes(max_min, &fit.neg_min));
    pack_scales(&scales, &mins, &mut header[SCALES..HEADER]);
    put_f16(header, D, max_scale / SCALE_TOP);
    put_f16(header, DMIN, max_min / SCALE_TOP);
    fit
}

/// Scales and minima are rounded by a weighted fit.
fn scales_important(
    x: &[f32; BLOCK],
    qw: &[f32; BLOCK],
    header: &mut [u8],
    search: &Search,
) -> AffineFit<GROUPS> {
    let sigma2 = 2.0 * k_block::sum_of_squares(x) / BLOCK as f32;
    let w = search::tile::<GROUP, GROUPS>(&k_block::importance_weights(x, qw, sigma2));
    let fit = fit_affine::<GROUP, GROUPS, false>(&search::tile(x), &w, search.important);
    let pairs: [[f32; 2]; GROUPS] = std::array::from_fn(|j| [fit.scale[j], fit.neg_min[j]]);
    let ([d, dmin], [mut scales, mut mins]) =
        fit_unsigned(&pairs, &search::group_sums(&w), SCALE_TOP);
    if search.cut_wrapped {
        scales = scales.map(|s| s.min(SCALE_TOP as u8));
        mins = mins.map(|m| m.min(SCALE_TOP as u8));
    }
    pack_scales(&scales, &mins, &mut header[SCALES..HEADER]);
    put_f16(header, D, d);
    put_f16(header, DMIN, dmin);
    fit
}

/// The running sums of a dot product.
#[derive(Default)]
pub(super) struct Dot {
    lanes: [f32; 8],
    minima: f32,
}

impl Dot {
    /// Adds one block.
    #[inline(always)]
    pub fn add(&mut self, header: &[u8], codes: &[u8; BLOCK], y: &[u8; q8_k::BYTES]) {
        let (scales, mins) = unpack_scales(&header[SCALES..HEADER]);
        let sums = k_block::lane_sums(
            &codes.map(|c| c as i8),
            q8_k::quants(y),
            &scales.map(i32::from),
        );
        let minima: i32 = (0..BLOCK / 16)
            .map(|j| q8_k::bsum(y, j) * i32::from(mins[j / 2]))
            .sum();
        let yd = q8_k::scale(y);
        let d = f16_at(header, D) * yd;
        for (lane, sum) in self.lanes.iter_mut().zip(sums) {
            *lane += d * sum as f32;
        }
        self.minima -= f16_at(header, DMIN) * yd * minima as f32;
    }

    /// The minima first, then the lanes in order.
    pub fn finish(self) -> f32 {
        self.lanes.iter().fold(self.minima, |sum, lane| sum + lane)
    }
}
