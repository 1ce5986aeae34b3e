//! Q2_0C of Tencent's 2-bit models: four evenly spaced levels without a zero.
//!
//! ```text
//! byte  0    1 2                                   129
//!       +-----+--------------------------------------+
//!       |  d  | code of weight j = bits 2 (j mod 4), |   code 0, 1, 2, 3 = -3, -1, +1, +3 times d
//!       | f16 | 2 (j mod 4) + 1 of byte j / 4        |
//!       +-----+--------------------------------------+
//! ```
//!
//! Rows are whole blocks of 512, two blocks of activations each.

use super::grid::{Grid, Levels, scale_first};
use super::num::{f16_at, inverse, largest_magnitude, put_f16};
use super::{Field, Format, Part, TypeId, TypeInfo, q2_0, q8_k};

const BLOCK: usize = 512;
const BYTES: usize = 130;
const HALF: usize = BLOCK / 8;
const _: () = assert!(BYTES == size_of::<u16>() + 2 * HALF);

/// Q2_0C in the registry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[Field::new(Part::Scale, Format::F16, 0), Field::new(Part::Codes, Format::Bits, 2)],
    act: Some(TypeId::Q8_K),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::Q2_0C, "q2_0c", BLOCK, BYTES)
};

/// Codes under a scale that is decided.
pub(super) const GRID: Grid =
    Grid { group: BLOCK, levels: Levels::Table(&[-3, -1, 1, 3]), steps: scale_first, place: q2_0::place };

/// The value of code `k` of a byte, in units of the scale.
#[inline]
fn level(byte: u8, k: usize) -> i32 {
    2 * i32::from(byte >> (2 * k) & 3) - 3
}

fn decode(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let d = f16_at(b, 0);
        for (&byte, y) in b[2..].iter().zip(y.as_chunks_mut::<4>().0) {
            for (k, y) in y.iter_mut().enumerate() {
                *y = level(byte, k) as f32 * d;
            }
        }
    }
}

/// The code of the level nearest to `x / d`, the upper one of two; 0 for NaN.
#[inline]
fn code(x: f32, inverse: f32) -> u8 {
    (x * inverse * 0.5 + 2.0).clamp(0.0, 3.0) as u8
}

/// Scales that are tried, as parts of the largest magnitude: from the one that puts it on the outer level to the one
/// that puts it on the inner.
const TRIED: [f32; 8] = [1.0 / 3.0, 1.0, 0.375, 0.4375, 0.5, 0.625, 0.75, 0.875];

/// The scale with the least squared error, weighted by importance, of those tried and those fitted to their codes.
fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    let mut weights = importance.map(|w| w.as_chunks::<BLOCK>().0.iter());
    for (x, block) in x.as_chunks::<BLOCK>().0.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        let weight = weights.as_mut().and_then(Iterator::next);
        let weighted = || x.iter().enumerate().map(|(i, &v)| (v, weight.map_or(1.0, |w| w[i])));
        let stored = |d: f32| {
            let mut bytes = [0; 2];
            put_f16(&mut bytes, 0, d);
            f16_at(&bytes, 0)
        };
        // The squared error of a scale, and the scale that fits its codes best.
        let tried = |d: f32| {
            let (mut error, mut up, mut down) = (0.0f32, 0.0f32, 0.0f32);
            for (v, w) in weighted() {
                let level = 2.0 * f32::from(code(v, inverse(d))) - 3.0;
                error += w * (v - level * d) * (v - level * d);
                up += w * level * v;
                down += w * level * level;
            }
            (error, up / down)
        };
        let largest = largest_magnitude(x);
        let (mut best, mut least) = (stored(largest / 3.0), f32::INFINITY);
        for part in TRIED {
            let first = stored(largest * part);
            let (error, fitted) = tried(first);
            let second = stored(fitted);
            for (d, error) in [(first, error), (second, tried(second).0)] {
                if error < least {
                    (best, least) = (d, error);
                }
            }
        }
        put_f16(block, 0, best);
        for (byte, x) in block[2..].iter_mut().zip(x.as_chunks::<4>().0) {
            let code = x.map(|v| code(v, inverse(best)));
            *byte = code[0] | code[1] << 2 | code[2] << 4 | code[3] << 6;
        }
    }
}

/// Per block `acc += dw * (isum * dx of its first block of activations + isum * dx of the second)`.
fn dot_ref(w: &[u8], act: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    let acts = act.as_chunks::<{ q8_k::BYTES }>().0.as_chunks::<2>().0;
    for (w, acts) in w.as_chunks::<BYTES>().0.iter().zip(acts) {
        let half = |i: usize| {
            let bytes = &w[2 + i * HALF..][..HALF];
            let quants = q8_k::quants(&acts[i]).iter().enumerate();
            let isum: i32 = quants.map(|(j, q)| level(bytes[j / 4], j % 4) * i32::from(*q as i8)).sum();
            isum as f32 * q8_k::scale(&acts[i])
        };
        acc += f16_at(w, 0) * (half(0) + half(1));
    }
    acc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(x: &[f32], importance: Option<&[f32]>) -> (Vec<u8>, Vec<f32>) {
        let mut row = vec![0xA5; x.len() / BLOCK * BYTES];
        encode(x, importance, &mut row);
        let mut y = vec![0.0; x.len()];
        decode(&row, &mut y);
        (row, y)
    }

    #[test]
    fn codes_stand_in_the_order_of_the_weights() {
        let mut x = [0.5f32; BLOCK];
        (x[0], x[1], x[2], x[5], x[511]) = (-1.5, -0.5, 1.5, 1.5, -1.5);
        let (row, y) = encoded(&x, None);
        assert_eq!(y, x);
        assert_eq!(row[..2], [0x00, 0x38]);
        assert_eq!((row[2], row[3], row[4], row[129]), (0b10_11_01_00, 0b10_10_11_10, 0b10_10_10_10, 0b00_10_10_10));
    }

    #[test]
    fn what_fits_comes_back_and_importance_moves_the_scale() {
        for scale in [0.5, 0.03125, 24.0] {
            let all = |i: usize| [-3.0, -1.0, 1.0, 3.0][(i * i / 5) % 4] * scale;
            let inner = |i: usize| [-1.0, 1.0][(i * i / 5) % 2] * scale;
            for x in [(0..BLOCK).map(all).collect::<Vec<f32>>(), (0..BLOCK).map(inner).collect()] {
                assert_eq!(encoded(&x, None).1, x, "{scale}");
            }
        }
        let x: Vec<f32> = (0..BLOCK).map(|i| if i < 8 { 10.0 } else { 0.1 * ((i % 9) as f32 - 4.0) }).collect();
        let importance: Vec<f32> = (0..BLOCK).map(|i| if i < 8 { 0.0 } else { 1.0 }).collect();
        let error = |y: &[f32]| x[8..].iter().zip(&y[8..]).map(|(x, y)| (x - y) * (x - y)).sum::<f32>();
        let (plain, fitted) = (encoded(&x, None).1, encoded(&x, Some(&importance)).1);
        assert!(error(&fitted) < error(&plain) / 4.0, "{} {}", error(&fitted), error(&plain));
    }

    #[test]
    fn zeros_and_what_is_no_number() {
        let (row, y) = encoded(&[0.0; BLOCK], None);
        assert!(row[..2] == [0, 0] && y.iter().all(|&v| v == 0.0));
        let mut x = [1.0f32; BLOCK];
        x[3] = f32::NAN;
        assert_eq!(encoded(&x, None).0.len(), BYTES);
    }
}
