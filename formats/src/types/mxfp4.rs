//! MXFP4: 4-bit floats (E2M1) under a shared power of two (E8M0), as in the OCP microscaling formats.
//!
//! ```text
//! byte  0  1                             16
//!       +--+-------------------------------+
//!       |e | low nibble of byte j: weight j |   weight = E2M1(code) * 2^(e - 127)
//!       |u8| high nibble:     weight j + 16 |
//!       +--+-------------------------------+
//! ```
//!
//! The levels are kept doubled, so that they are integers, and the scale halved: `2^(e - 128)`.
//! `e = 255` is an ordinary exponent here, as in ggml, and not the standard's NaN.

use super::block32::{self, BLOCK, Codes, Nibbles, put_codes};
use super::grid::{Grid, Levels, Step, whole};
use super::integers::{Coding, IntegerForm, Sums};
use super::num::largest_magnitude;
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 17;
const _: () = assert!(BYTES == 1 + BLOCK / 2);

/// Twice the value of each E2M1 code.
pub(super) const LEVELS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// MXFP4 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[Field::new(Part::Scale, Format::E8m0, 0), Field::new(Part::Codes, Format::Bits, 1)],
    codebook: Some(&LEVELS),
    act: Some(TypeId::Q8_0),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::MXFP4, "mxfp4", BLOCK, BYTES)
};

/// The levels in ascending order, each once.
pub(super) const ASCENDING: [i8; 15] = [-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12];

/// The code of a level by its index among the [`ASCENDING`] ones.
#[inline]
pub(super) fn code_of(index: u8) -> u8 {
    if index < 7 { 15 - index } else { index - 7 }
}

/// Codes under an exponent that is decided.
pub(super) const GRID: Grid = Grid {
    group: BLOCK,
    levels: Levels::Table(&ASCENDING),
    steps: |block, steps| steps[0] = Step { scale: half_scale(block[0]), offset: 0.0, second: false },
    place: |codes, block| Nibbles::pack(&whole::<BLOCK>(codes).map(code_of), &mut block[1..]),
};

/// `2^(e - 128)`; the two smallest are subnormal.
#[inline]
fn half_scale(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
}

/// Levels of a table under powers of two.
pub(super) const INTEGERS: IntegerForm =
    IntegerForm::new(BLOCK, Coding::Table(&LEVELS), Sums::Blocks, |_, block, to| {
        to.set(&block32::levels(&block[1..], &LEVELS), half_scale(block[0]));
    });

fn decode(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let d = half_scale(b[0]);
        *y = block32::levels(&b[1..], &LEVELS).map(|level| f32::from(level) * d);
    }
}

/// The level nearest to `x / d`, the first of equals; 0 for NaN.
pub(super) fn nearest_code(x: f32, d: f32) -> u8 {
    let error = |level: i8| (f32::from(level) * d - x).abs();
    let mut best = (0, error(LEVELS[0]));
    for (code, &level) in LEVELS.iter().enumerate().skip(1) {
        let e = error(level);
        if e < best.1 {
            best = (code as u8, e);
        }
    }
    best.0
}

/// `floor(log2f(x))` of a positive finite `x`, where `log2f` is the logarithm rounded to single precision:
/// within half a unit in the last place below a power of two it already gives the next integer.
/// Equal to glibc's for every float.
fn floor_log2(x: f32) -> i32 {
    /// How many floats below 2^(k+1) round up, by the bit length of |k| (k >= 0) or |k + 1|:
    /// floor(ln 2 * 2^(length - 1)).
    const ROUNDS_UP: [u32; 9] = [0, 0, 1, 2, 5, 11, 22, 44, 88];
    let bits = x.to_bits();
    let subnormal = bits < 0x0080_0000;
    let k = if subnormal { bits.ilog2() as i32 - 149 } else { (bits >> 23) as i32 - 127 };
    let magnitude = if k < 0 { -k - 1 } else { k } as u32;
    let reach = ROUNDS_UP[(32 - magnitude.leading_zeros()) as usize];
    let (next, reach) = if subnormal {
        // The floats are further apart here, so that fewer of them are that near.
        (1u32 << (k + 150), reach >> (-126 - k))
    } else {
        (((k + 128) as u32) << 23, reach)
    };
    k + i32::from(next - bits <= reach)
}

/// The exponent puts the largest magnitude between 4 and 8 units of E2M1, whose largest level is 6.
fn encode(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    for (x, b) in x.as_chunks::<BLOCK>().0.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        let amax = largest_magnitude(x);
        // Infinity and magnitudes below 2^-125 have no exponent that fits. C leaves both undefined; these
        // are the bits of x86-64: zero, and the low 8 of the negative number.
        b[0] = if amax > 0.0 && amax.is_finite() { (floor_log2(amax) - 2 + 127) as u8 } else { 0 };
        let d = half_scale(b[0]);
        put_codes(x, &mut b[1..], |v| nearest_code(v, d));
    }
}

/// Per block `acc += (dx * 2^(e - 128)) * isum`.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    block32::dot_levels::<BYTES>(w, x, &LEVELS, |block| half_scale(block[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// glibc's answers around powers of two, counted there over all floats of each binade.
    #[test]
    fn log2_rounds_up_just_below_powers_of_two() {
        let cases = [
            (127, 44),
            (64, 44),
            (63, 22),
            (16, 11),
            (15, 5),
            (8, 5),
            (7, 2),
            (4, 2),
            (3, 1),
            (2, 1),
            (1, 0),
            (0, 0),
            (-2, 0),
            (-3, 1),
            (-4, 1),
            (-5, 2),
            (-9, 5),
            (-16, 5),
            (-17, 11),
            (-64, 22),
            (-65, 44),
            (-126, 44),
            (-127, 22),
            (-128, 11),
            (-129, 11),
            (-130, 5),
            (-131, 2),
            (-132, 1),
            (-133, 0),
            (-149, 0),
        ];
        for (k, reach) in cases {
            let power = |k: i32| {
                if k < -126 { 1u32 << (k + 149) } else { ((k + 127) as u32) << 23 }
            };
            let (first, next) = (power(k), power(k + 1));
            assert_eq!(floor_log2(f32::from_bits(first)), k, "2^{k}");
            let up = next - reach;
            if reach > 0 {
                assert_eq!(floor_log2(f32::from_bits(up)), k + 1, "{reach} below 2^{}", k + 1);
            }
            assert_eq!(floor_log2(f32::from_bits(up - 1)), k, "{} below 2^{}", reach + 1, k + 1);
        }
    }
}
