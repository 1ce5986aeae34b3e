//! Common parts of Q4_K and Q5_K: 8 groups of 32, each with a 6-bit scale and a 6-bit minimum, behind a header of 16
//! bytes. The types differ in the width of the codes and in where their bits lie.
//!
//! ```text
//! byte   0        2           4              16
//!        | d: f16 | dmin: f16 | scales: 12 B |
//! j < 4 : scale_j = scales[j] & 63                  min_j = scales[j + 4] & 63
//! j >= 4: scale_j = scales[j + 4] & 15 | (scales[j - 4] >> 6) << 4
//!         min_j   = scales[j + 4] >> 4 | (scales[j] >> 6) << 4
//! x[e] = (d * scale_j) * code[e] - (dmin * min_j)   group j = elements 32 j .. 32 j + 31
//! ```

use super::grid::{Multiples, Step};
use super::integers::{Coding, IntegerForm, Integers, Sums};
use super::k_block::{self, BLOCK, SuperBlocks, sums_of_squares};
use super::lanes::{LANES, Simd, Vector};
use super::num::{f16_at, nearest_int, put_f16};
use super::search::{AffineFit, AffineGrid, error_weights, fit_affine, fit_unsigned, side_by_side, sums};
use super::{EncodeFn, q8_k};

/// Elements of a group.
pub(super) const GROUP: usize = 32;
const GROUPS: usize = BLOCK / GROUP;
/// Blocks whose scales and minima are rounded together: a lane for the scales of each and one for the minima.
const BATCH: usize = LANES / 2;
/// Blocks whose groups fill a vector.
const PER_VECTOR: usize = LANES / GROUPS;
const VECTORS: usize = BATCH / PER_VECTOR;
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
    /// True if 6-bit fields that wrapped below zero are cut to 63 when importance is given (Q5_K), false if they
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

/// The same as steps of a grid.
pub(super) fn read_steps(header: &[u8], steps: &mut [Step]) {
    for (to, (scale, offset)) in steps.iter_mut().zip(steps_and_minima(header)) {
        *to = Step { scale, offset, second: false };
    }
}

/// The scales and minima of the groups, for types that begin with such a header.
pub(super) const MULTIPLES: Multiples = Multiples {
    scales: (0, 63),
    minima: 63,
    read: |block, multiples| {
        let (scales, mins) = unpack_scales(&block[SCALES..HEADER]);
        multiples.copy_from_slice(&std::array::from_fn::<_, GROUPS, _>(|j| [scales[j], mins[j]].map(i16::from)));
    },
    write: |multiples, block| {
        let [scales, mins] = [0, 1].map(|which| std::array::from_fn(|j| multiples[j][which] as u8));
        pack_scales(&scales, &mins, &mut block[SCALES..HEADER]);
    },
};

/// The scales of a block, then its minima: the float they are multiples of, and the multiples.
type Rounded = [(f32, [u8; GROUPS]); 2];

/// Some blocks, fitted.
struct Fitted {
    /// Fit of each vector of groups; `None` where the definition computes it.
    fits: [Option<AffineFit>; VECTORS],
    rounded: [Rounded; BATCH],
}

/// A block of them.
struct FittedBlock<'a> {
    fit: &'a AffineFit,
    /// The lane of its first group in `fit`.
    first: usize,
    rounded: &'a Rounded,
}

impl Fitted {
    #[inline(always)]
    pub fn block(&self, b: usize) -> Option<FittedBlock<'_>> {
        self.fits[b / PER_VECTOR].as_ref().map(|fit| FittedBlock {
            fit,
            first: b % PER_VECTOR * GROUPS,
            rounded: &self.rounded[b],
        })
    }
}

impl FittedBlock<'_> {
    #[inline(always)]
    pub fn write_header(&self, header: &mut [u8]) {
        let [(d, scales), (dmin, mins)] = self.rounded;
        put_f16(header, D, *d);
        put_f16(header, DMIN, *dmin);
        pack_scales(scales, mins, &mut header[SCALES..HEADER]);
    }

    /// The codes that are nearest with the scales and minima of the header. A group whose rounded scale is zero
    /// keeps the codes of the search.
    #[inline(always)]
    pub fn codes<S: Simd>(&self, simd: S, x: &[f32; BLOCK], header: &[u8], search: &Search) -> [u8; BLOCK] {
        let (d, dmin) = (f16_at(header, D), f16_at(header, DMIN));
        let (scales, mins) = unpack_scales(&header[SCALES..HEADER]);
        let mut codes = [0; BLOCK];
        let groups = codes.as_chunks_mut::<GROUP>().0.iter_mut();
        for (j, (codes, x)) in groups.zip(x.as_chunks::<GROUP>().0).enumerate() {
            let dl = d * f32::from(scales[j]);
            if dl == 0.0 {
                *codes = self.fit.codes(simd, self.first + j, x);
            } else {
                let dm = dmin * f32::from(mins[j]);
                *codes = k_block::round_affine(simd, x, dl, dm, search.plain.top);
            }
        }
        codes
    }
}

/// Fits up to [`BATCH`] blocks.
#[inline(always)]
fn fit<S: Simd>(simd: S, x: &[[f32; BLOCK]], importance: Option<&[[f32; BLOCK]]>, search: &Search) -> Fitted {
    let mut groups = Groups { fits: [None; VECTORS], weights: [[0.0; LANES]; VECTORS] };
    let mut sigma2 = [0.0; LANES];
    if importance.is_some() {
        for (sigma2, squares) in sigma2.iter_mut().zip(sums_of_squares(simd, x)) {
            *sigma2 = 2.0 * squares / BLOCK as f32;
        }
    }
    let vectors = x.len().div_ceil(PER_VECTOR);
    let mut first = 0;
    while first < vectors {
        if S::AT_ONCE == 2 && first + 2 <= vectors {
            fit_vectors::<S, 2>(simd, x, importance, &sigma2, search, first, &mut groups);
            first += 2;
        } else {
            fit_vectors::<S, 1>(simd, x, importance, &sigma2, search, first, &mut groups);
            first += 1;
        }
    }
    let rounded = match importance {
        None => round_plain(&groups),
        Some(_) => round_important(simd, &groups, search.cut_wrapped),
    };
    Fitted { fits: groups.fits, rounded }
}

/// The groups of a batch, a lane for each.
struct Groups {
    fits: [Option<AffineFit>; VECTORS],
    /// Sums of the error weights.
    weights: [[f32; LANES]; VECTORS],
}

/// Fits `AT_ONCE` vectors of groups, from vector `first` of the batch on.
#[inline(always)]
fn fit_vectors<S: Simd, const AT_ONCE: usize>(
    simd: S,
    x: &[[f32; BLOCK]],
    importance: Option<&[[f32; BLOCK]]>,
    sigma2: &[f32; LANES],
    search: &Search,
    first: usize,
    groups: &mut Groups,
) {
    let mut elements = [[simd.splat(0.0); GROUP]; AT_ONCE];
    let mut w = elements;
    for v in 0..AT_ONCE {
        let block = (first + v) * PER_VECTOR;
        elements[v] = side_by_side(simd, x[block..].as_flattened());
        if let Some(importance) = importance {
            let mut per_lane = [0.0; LANES];
            for (lanes, s) in per_lane.chunks_mut(GROUPS).zip(&sigma2[block..]) {
                lanes.fill(*s);
            }
            let importance = side_by_side(simd, importance[block..].as_flattened());
            w[v] = error_weights(&elements[v], &importance, simd.load(&per_lane));
        } else {
            let mut squares = simd.splat(0.0);
            for &x in &elements[v] {
                squares = squares + x * x;
            }
            let rms = (squares / simd.splat(GROUP as f32)).sqrt();
            for i in 0..GROUP {
                w[v][i] = rms + elements[v][i].abs();
            }
        }
    }
    let grid = match importance {
        None => search.plain,
        Some(_) => search.important,
    };
    let fits = fit_affine::<S, GROUP, AT_ONCE, false>(simd, &elements, &w, grid);
    for v in 0..AT_ONCE {
        groups.fits[first + v] = fits[v];
        groups.weights[first + v] = sums(simd, &w[v]).to_array();
    }
}

/// The largest scale and the largest minimum of a block become 63.
#[inline(always)]
fn round_plain(groups: &Groups) -> [Rounded; BATCH] {
    let mut rounded = [[(0.0, [0; GROUPS]); 2]; BATCH];
    let blocks = rounded.as_chunks_mut::<PER_VECTOR>().0.iter_mut();
    for (blocks, fit) in blocks.zip(&groups.fits) {
        if let Some(fit) = fit {
            for (k, [scales, mins]) in blocks.iter_mut().enumerate() {
                *scales = largest_as_top(&fit.scale.as_chunks().0[k]);
                *mins = largest_as_top(&fit.neg_min.as_chunks().0[k]);
            }
        }
    }
    rounded
}

#[inline(always)]
fn largest_as_top(values: &[f32; GROUPS]) -> (f32, [u8; GROUPS]) {
    let mut max = 0.0;
    for &v in values {
        max = if v > max { v } else { max };
    }
    let top = f32::from(SCALE_TOP);
    let inverse = if max > 0.0 { top / max } else { 0.0 };
    let mut multiples = [0; GROUPS];
    for (multiple, v) in multiples.iter_mut().zip(values) {
        *multiple = (nearest_int(inverse * v) as u8).min(SCALE_TOP);
    }
    (max / top, multiples)
}

/// A weighted fit for the scales and one for the minima of each block, all side by side.
#[inline(always)]
fn round_important<S: Simd>(simd: S, groups: &Groups, cut_wrapped: bool) -> [Rounded; BATCH] {
    let (mut x, mut w) = ([[0.0; GROUPS]; LANES], [[0.0; GROUPS]; LANES]);
    for (v, (fit, weights)) in groups.fits.iter().zip(&groups.weights).enumerate() {
        if let Some(fit) = fit {
            for k in 0..PER_VECTOR {
                let b = PER_VECTOR * v + k;
                x[b] = fit.scale.as_chunks().0[k];
                x[BATCH + b] = fit.neg_min.as_chunks().0[k];
                w[b] = weights.as_chunks().0[k];
                w[BATCH + b] = w[b];
            }
        }
    }
    let x = side_by_side::<S, GROUPS>(simd, x.as_flattened());
    let w = side_by_side::<S, GROUPS>(simd, w.as_flattened());
    let (scale, codes) = fit_unsigned(simd, &x, &w, f32::from(SCALE_TOP));
    let scale = scale.to_array();
    let top = if cut_wrapped { SCALE_TOP } else { u8::MAX };
    let mut rounded = [[(0.0, [0; GROUPS]); 2]; BATCH];
    for (j, codes) in codes.into_iter().enumerate() {
        let codes = codes.to_array();
        for (b, rounded) in rounded.iter_mut().enumerate() {
            for (i, (d, multiples)) in rounded.iter_mut().enumerate() {
                *d = scale[i * BATCH + b];
                multiples[j] = (codes[i * BATCH + b] as u8).min(top);
            }
        }
    }
    rounded
}

/// The encoder of a type on an instruction set: `definition` is the one on any processor, and `pack` writes the codes of
/// a block behind its header.
#[inline(always)]
pub(super) fn encode_on<S: Simd, const BYTES: usize>(
    simd: S,
    (x, importance, row): (&[f32], Option<&[f32]>, &mut [u8]),
    search: &Search,
    definition: EncodeFn,
    pack: impl Fn(&[u8; BLOCK], &mut [u8; BYTES]),
) {
    let mut rows = SuperBlocks::<BYTES>::new(x, importance, row);
    while let Some(batch) = rows.suiting::<S>(BATCH, definition) {
        let fitted = fit(simd, batch.x, batch.importance, search);
        for (b, (x, block)) in batch.x.iter().zip(batch.out).enumerate() {
            match fitted.block(b) {
                Some(fitted) => {
                    fitted.write_header(&mut block[..HEADER]);
                    let codes = fitted.codes(simd, x, &block[..HEADER], search);
                    pack(&codes, block);
                }
                None => definition(x, batch.importance.map(|w| &w[b][..]), block),
            }
        }
    }
}

/// A type as integers, with so many codes.
pub(super) const fn integers(count: u8, read: fn(f32, &[u8], &mut Integers)) -> IntegerForm {
    IntegerForm::new(GROUP, Coding::Even { lowest: 0, count }, Sums::ChainsAndMinima, read)
}

/// A block with these codes as integers.
pub(super) fn take_apart(block: &[u8], codes: &[u8; BLOCK], to: &mut Integers) {
    let (scales, mins) = unpack_scales(&block[SCALES..HEADER]);
    to.set(codes, f16_at(block, D));
    to.set_scales(&scales);
    to.minimum = f16_at(block, DMIN);
    for (to, min) in to.minima.iter_mut().zip(mins) {
        *to = min as i8;
    }
}

/// The dot product of a type: eight lanes of a block's products, and its minima times the stored sums. At the end the
/// minima come first, then the lanes in order.
pub(super) fn dot<const BYTES: usize>(w: &[u8], act: &[u8], unpack: impl Fn(&[u8; BYTES]) -> [u8; BLOCK]) -> f32 {
    let (mut lanes, mut minima) = ([0.0f32; 8], 0.0f32);
    for (x, y) in q8_k::block_pairs::<BYTES>(w, act) {
        let (scales, mins) = unpack_scales(&x[SCALES..HEADER]);
        let sums = k_block::lane_sums(&unpack(x).map(|c| c as i8), q8_k::quants(y), &scales.map(i32::from));
        let of_minima: i32 = (0..BLOCK / 16).map(|j| q8_k::bsum(y, j) * i32::from(mins[j / 2])).sum();
        let yd = q8_k::scale(y);
        let d = f16_at(x, D) * yd;
        for (lane, sum) in lanes.iter_mut().zip(sums) {
            *lane += d * sum as f32;
        }
        minima -= f16_at(x, DMIN) * yd * of_minima as f32;
    }
    lanes.iter().fold(minima, |sum, lane| sum + lane)
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
