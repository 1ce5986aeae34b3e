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
use super::lanes::F4;
use super::num::{f16_at, nearest_int, put_f16};
use super::q8_k;
use super::search::{self, AffineFit, AffineGrid, fit_affine, fit_unsigned};

/// Elements of a group.
pub(super) const GROUP: usize = 32;
const GROUPS: usize = BLOCK / GROUP;
/// Vectors that the groups fill when they are searched side by side.
const V: usize = GROUPS / 4;
/// Bytes of the header.
pub(super) const HEADER: usize = 16;
const D: usize = 0;
const DMIN: usize = 2;
const SCALES: usize = 4;
const SCALE_TOP: u8 = 63;

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

/// `(d * scale_j, dmin * min_j)` of each group.
#[inline(always)]
pub(super) fn steps_and_minima(header: &[u8]) -> [(f32, f32); GROUPS] {
    let (d, dmin) = (f16_at(header, D), f16_at(header, DMIN));
    let (scales, mins) = unpack_scales(&header[SCALES..HEADER]);
    std::array::from_fn(|j| (d * f32::from(scales[j]), dmin * f32::from(mins[j])))
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
fn scales_plain(x: &[f32; BLOCK], header: &mut [u8], search: &Search) -> AffineFit<V> {
    let x = search::tile::<GROUP, V>(x);
    let mut sum_squares = [F4::splat(0.0); V];
    for row in &x {
        for v in 0..V {
            sum_squares[v] = sum_squares[v] + row[v] * row[v];
        }
    }
    let rms = sum_squares.map(|s| (s / F4::splat(GROUP as f32)).sqrt());
    let w = x.map(|row| std::array::from_fn(|v| rms[v] + row[v].abs()));
    let fit = fit_affine::<GROUP, V, false>(&x, &w, search.plain);
    let (scales, mins) = (fit.scale.as_flattened(), fit.neg_min.as_flattened());
    let largest = |v: &[f32]| v.iter().fold(0.0, |max, s| if *s > max { *s } else { max });
    let (max_scale, max_min) = (largest(scales), largest(mins));
    let codes = |max: f32, v: &[f32]| -> [u8; GROUPS] {
        let inverse = if max > 0.0 {
            f32::from(SCALE_TOP) / max
        } else {
            0.0
        };
        std::array::from_fn(|j| (nearest_int(inverse * v[j]) as u8).min(SCALE_TOP))
    };
    let (scales, mins) = (codes(max_scale, scales), codes(max_min, mins));
    pack_scales(&scales, &mins, &mut header[SCALES..HEADER]);
    put_f16(header, D, max_scale / f32::from(SCALE_TOP));
    put_f16(header, DMIN, max_min / f32::from(SCALE_TOP));
    fit
}

/// Scales and minima are rounded by a weighted fit.
fn scales_important(
    x: &[f32; BLOCK],
    qw: &[f32; BLOCK],
    header: &mut [u8],
    search: &Search,
) -> AffineFit<V> {
    let sigma2 = 2.0 * k_block::sum_of_squares(x) / BLOCK as f32;
    let w = search::tile::<GROUP, V>(&k_block::importance_weights(x, qw, sigma2));
    let fit = fit_affine::<GROUP, V, false>(&search::tile(x), &w, search.important);
    let weights = search::group_sums(&w);
    let fit_codes = |v: &[[f32; 4]; V]| {
        let v: &[f32; GROUPS] = &v.as_flattened().as_chunks().0[0];
        fit_unsigned(
            v,
            &weights.as_flattened().as_chunks().0[0],
            i32::from(SCALE_TOP),
        )
    };
    let (d, mut scales) = fit_codes(&fit.scale);
    let (dmin, mut mins) = fit_codes(&fit.neg_min);
    if search.cut_wrapped {
        scales = scales.map(|s| s.min(SCALE_TOP));
        mins = mins.map(|m| m.min(SCALE_TOP));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_and_minima_lie_where_the_map_says() {
        let (mut scales, mut mins) = ([0; GROUPS], [0; GROUPS]);
        (scales[2], mins[3], scales[5], mins[6]) = (0b10_0001, 0b01_0010, 0b11_0101, 0b10_1001);
        let mut bytes = [0; 12];
        pack_scales(&scales, &mins, &mut bytes);
        let mut expected = [0; 12];
        expected[2] = 0b10_0001;
        expected[4 + 3] = 0b01_0010;
        expected[4 + 5] = 0b0101;
        expected[5 - 4] = 0b11 << 6;
        expected[4 + 6] = 0b1001 << 4;
        expected[6] = 0b10 << 6;
        assert_eq!(bytes, expected);
    }

    #[test]
    fn scales_and_minima_come_back() {
        for j in 0..GROUPS {
            for v in 0..64 {
                let (mut scales, mut mins) = ([21; GROUPS], [42; GROUPS]);
                (scales[j], mins[GROUPS - 1 - j]) = (v, 63 - v);
                let mut bytes = [0xFF; 12];
                pack_scales(&scales, &mins, &mut bytes);
                assert_eq!(unpack_scales(&bytes), (scales, mins));
            }
        }
    }
}
