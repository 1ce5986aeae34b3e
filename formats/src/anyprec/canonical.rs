//! The definition of products with any-precision rows, to the last bit. Kernels give these values.
//!
//! Two number paths exist. Both name their fused multiply-adds: `fma(a, b, c)` is `a b + c`, rounded once.
//!
//! - **f32**: weight `i` belongs to lane `i mod 64`; a lane adds its products with fma in ascending order,
//!   starting at 0, and lanes are then added pairwise: `l` and `l + h` for `h` = 32, 16, 8, 4, 2, 1.
//! - **i16**: the centroids of a row become 16-bit integers with one scale per row, the activations 8-bit
//!   integers with one scale per block of 64. Quad `q` of a block, the weights `4q … 4q + 3`, has an integer
//!   sum that is exact in f32; 16 lanes, one per quad, add `fma(sum, block scale, lane)` in ascending order of
//!   blocks. Lanes are added pairwise (8, 4, 2, 1), and the result is multiplied by the row scale.
//!
//! Rows that do not fill their last block behave as if activations of 0 followed. Weights that are stored as
//! they are come last, on either path: [`add_sparse`].

use crate::types::num::f16_to_f32;

/// Weights per block of activations, and lanes of the f32 path.
pub const BLOCK: usize = 64;
/// Lanes of the i16 path: quads of a block.
const QUADS: usize = BLOCK / 4;
/// Magnitude of the largest 16-bit centroid.
const MAX_CENTROID: f32 = 32767.0;
/// Magnitude of the largest 8-bit activation.
const MAX_ACTIVATION: f32 = 127.0;

/// The f32 product of a row's weights, as the tables say them, and activations.
pub fn dot_f32(weights: impl IntoIterator<Item = f32>, x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; BLOCK];
    for (i, (w, &x)) in weights.into_iter().zip(x).enumerate() {
        let lane = &mut lanes[i % BLOCK];
        *lane = w.mul_add(x, *lane);
    }
    add_lanes(&mut lanes)
}

fn add_lanes(lanes: &mut [f32]) -> f32 {
    let mut half = lanes.len() / 2;
    while half > 0 {
        let (low, high) = lanes.split_at_mut(half);
        for (low, high) in low.iter_mut().zip(high.iter()) {
            *low += high;
        }
        half /= 2;
    }
    lanes[0]
}

/// The centroids of a row at one width as integers: of all its groups, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct FixedLut {
    /// Nearest integers, ties to even, of the centroids times `32767 / max`.
    pub centroids: Vec<i16>,
    /// `max / 32767` for the largest magnitude `max` of the row's centroids; NaN, so that products are, when one of
    /// them is not finite.
    pub scale: f32,
}

impl FixedLut {
    /// From centroids in half precision. All zeros when `max` is 0.
    pub fn new(lut: impl Iterator<Item = u16> + Clone) -> FixedLut {
        let values = lut.map(f16_to_f32);
        let max = values.clone().fold(0.0f32, |max, c| max.max(c.abs()));
        let finite = values.clone().all(f32::is_finite);
        let scale = if finite { max / MAX_CENTROID } else { f32::NAN };
        let inverse = if finite && max > 0.0 { MAX_CENTROID / max } else { 0.0 };
        let fixed = |c: f32| (c * inverse).round_ties_even() as i16;
        FixedLut { centroids: values.map(fixed).collect(), scale }
    }
}

/// Activations as 8-bit integers in blocks of 64.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantizedActivations {
    /// Nearest integers, ties to even, of `x · 127 / max`, at most 127 in magnitude.
    pub values: Vec<i8>,
    /// `max / 127` of each block, for its largest magnitude `max`. 0 where `127 / max` is not finite, with
    /// values of 0; NaN where an activation is not finite.
    pub scales: Vec<f32>,
}

/// Quantizes activations for the i16 path.
pub fn quantize_activations(x: &[f32]) -> QuantizedActivations {
    let mut out = QuantizedActivations {
        values: Vec::with_capacity(x.len()),
        scales: Vec::with_capacity(x.len().div_ceil(BLOCK)),
    };
    for block in x.chunks(BLOCK) {
        let max = block.iter().fold(0.0f32, |max, x| max.max(x.abs()));
        let inverse = MAX_ACTIVATION / max;
        let (scale, inverse) = if block.iter().any(|x| !x.is_finite()) {
            (f32::NAN, 0.0)
        } else if inverse.is_finite() {
            (max / MAX_ACTIVATION, inverse)
        } else {
            (0.0, 0.0)
        };
        let limits = -MAX_ACTIVATION..=MAX_ACTIVATION;
        let quantized = |x: &f32| {
            let q = (x * inverse).round_ties_even();
            q.clamp(*limits.start(), *limits.end()) as i8 // a NaN becomes 0
        };
        out.values.extend(block.iter().map(quantized));
        out.scales.push(scale);
    }
    out
}

/// The i16 product of a row whose weights are these centroids of `scale` with activations.
pub fn dot_i16(centroids: impl IntoIterator<Item = i16>, scale: f32, x: &QuantizedActivations) -> f32 {
    let mut lanes = [0.0f32; QUADS];
    let mut centroids = centroids.into_iter();
    for (block, &block_scale) in x.values.chunks(BLOCK).zip(&x.scales) {
        let mut sums = [0i32; QUADS];
        for (i, (&x, c)) in block.iter().zip(centroids.by_ref()).enumerate() {
            sums[i / 4] += i32::from(c) * i32::from(x);
        }
        for (lane, sum) in lanes.iter_mut().zip(sums) {
            // at most 4 · 32767 · 127 < 2^24 in magnitude
            *lane = (sum as f32).mul_add(block_scale, *lane);
        }
    }
    scale * add_lanes(&mut lanes)
}

/// Adds the weights that are stored as they are: for each `(column, weight, centroid)`, in ascending order of
/// columns, `fma(weight − centroid, x[column], y)`, where `centroid` is what the row's code at that column says
/// in half precision.
pub fn add_sparse(y: f32, entries: impl Iterator<Item = (usize, f32, f32)>, x: &[f32]) -> f32 {
    entries.fold(y, |y, (column, weight, centroid)| (weight - centroid).mul_add(x[column], y))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_added_in_halves() {
        // 2^24 + 1 is rounded away where the order says so
        let mut x = [0.0; 128];
        (x[0], x[32], x[64], x[1]) = (16_777_216.0, 1.0, 1.0, 1.0);
        // lane 0: 2^24 + 1 is 2^24 again, then + 1 from lane 32, then + 1 from lane 1
        assert_eq!(dot_f32([1.0; 128], &x), 16_777_216.0);
        (x[32], x[33]) = (1.0, 1.0);
        // lane 1 has 2 before it meets lane 0
        assert_eq!(dot_f32([1.0; 128], &x), 16_777_218.0);
    }

    #[test]
    fn products_are_fused() {
        let x = 1.0 + f32::EPSILON;
        let (w, x) = ([x; 65], {
            let mut xs = [0.0; 65];
            (xs[0], xs[64]) = (x, -1.0 - 2.0 * f32::EPSILON);
            xs
        });
        let product = w[0] * x[0];
        assert_eq!(dot_f32(w, &x), w[64].mul_add(x[64], product));
        assert_ne!(dot_f32(w, &x), w[64] * x[64] + product);
    }

    #[test]
    fn a_short_block_is_one_with_zeros() {
        let x: Vec<f32> = (0..96).map(|i| (i as f32 - 40.0) / 7.0).collect();
        let weights: Vec<i16> = (0..96).map(|i| i * 300 - 9000).collect();
        let mut long = x.clone();
        long.resize(128, 0.0);
        let (short, long) = (quantize_activations(&x), quantize_activations(&long));
        assert_eq!(short.scales, long.scales);
        assert_eq!(short.values, long.values[..96]);
        let padded = weights.iter().copied().chain([77; 32]);
        let y = dot_i16(weights.iter().copied(), 0.01, &short);
        assert_eq!(y.to_bits(), dot_i16(padded, 0.01, &long).to_bits());
        assert_ne!(y, 0.0);
    }

    #[test]
    fn odd_activations() {
        let q = |x: f32| {
            let q = quantize_activations(&[x, 0.0, -x]);
            (q.values, q.scales[0])
        };
        assert_eq!(q(0.0), (vec![0, 0, 0], 0.0));
        assert_eq!(q(-0.0), (vec![0, 0, 0], 0.0));
        assert_eq!(q(1e-40), (vec![0, 0, 0], 0.0)); // 127 / 1e-40 is infinite
        assert_eq!(q(254.0), (vec![127, 0, -127], 2.0));
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (values, scale) = q(x);
            assert_eq!(values, [0, 0, 0]);
            assert!(scale.is_nan());
            assert!(dot_i16([1, 1, 1], 1.0, &quantize_activations(&[x, 0.0, 1.0])).is_nan());
        }
    }

    #[test]
    fn zero_tables() {
        let lut = FixedLut::new([0, 0x8000].into_iter());
        assert_eq!((lut.centroids, lut.scale), (vec![0, 0], 0.0));
        let smallest = FixedLut::new([1u16, 0x8001, 0].into_iter());
        assert_eq!(smallest.centroids, [32767, -32767, 0]);
    }

    #[test]
    fn damaged_tables_give_no_numbers() {
        for odd in [0x7C00, 0xFC00, 0x7E01] {
            let lut = FixedLut::new([0x3C00, odd, 0].into_iter());
            assert_eq!(lut.centroids, [0, 0, 0]);
            let x = quantize_activations(&[1.0, 2.0, 3.0]);
            assert!(dot_i16(lut.centroids, lut.scale, &x).is_nan());
        }
    }

    #[test]
    fn sparse_entries_come_last_and_in_order() {
        let x = [2.0, 0.5, -1.0];
        let y = add_sparse(1.0, [(0, 3.0, 1.0), (2, 0.25, 0.75)].into_iter(), &x);
        assert_eq!(y, 1.0 + 2.0 * 2.0 + 0.5);
    }
}
