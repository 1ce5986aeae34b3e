//! NVFP4: 4-bit floats (E2M1) in 4 groups of 16, each with an 8-bit float (E4M3 without a sign) as its scale.
//!
//! ```text
//! byte  0            4                               36
//!       | 4 scales   | qs: 32 B                      |
//! qs[8 g + j]: low nibble = weight 16 g + j, high nibble = weight 16 g + j + 8     (j < 8)
//! x     = E2M1(code) * scale of the group
//! ```
//!
//! The levels are kept doubled, as those of MXFP4, and the scales halved. The scale 0x7F, the standard's NaN, is zero
//! here, as in ggml, and the upper bit of a scale means nothing.

use super::grid::{Grid, Levels, Step};
use super::integers::{Coding, IntegerForm, Sums};
use super::mxfp4::{ASCENDING, LEVELS, code_of, nearest_code};
use super::num::largest_magnitude;
use super::{Field, Format, Part, TypeId, TypeInfo, q8_0};

const BLOCK: usize = 64;
const BYTES: usize = 36;
const SIZE: usize = 16;
const GROUPS: usize = BLOCK / SIZE;
const HALF: usize = SIZE / 2;
const _: () = assert!(GROUPS + BLOCK / 2 == BYTES);

/// NVFP4 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[Field::new(Part::GroupScales, Format::Bits, 0), Field::new(Part::Codes, Format::Bits, GROUPS)],
    codebook: Some(&LEVELS),
    act: Some(TypeId::Q8_0),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::NVFP4, "nvfp4", BLOCK, BYTES)
};

/// Codes under scales that are decided.
pub(super) const GRID: Grid = Grid {
    group: SIZE,
    levels: Levels::Table(&ASCENDING),
    steps: |block, steps| {
        for (step, e4m3) in steps.iter_mut().zip(&block[..GROUPS]) {
            *step = Step { scale: half_scale(*e4m3), offset: 0.0, second: false };
        }
    },
    place: |codes, block| {
        let groups = block[GROUPS..].as_chunks_mut::<HALF>().0.iter_mut();
        for (q, codes) in groups.zip(codes.as_chunks::<SIZE>().0) {
            for (j, q) in q.iter_mut().enumerate() {
                *q = code_of(codes[j]) | code_of(codes[j + HALF]) << 4;
            }
        }
    },
};

/// The scale 256, the first of those that encoders do not tell apart.
const LARGEST_BINADE: u32 = 0x78;

/// Half of the value of an E4M3 scale.
fn half_scale(e4m3: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(e4m3 >> 3 & 15), f32::from(e4m3 & 7));
    if e4m3 == 0x7F {
        return 0.0;
    }
    // Powers of two from 2^-10 (half of the subnormal unit 2^-9) to 2^7.
    let power = |k: i32| f32::from_bits(((127 + k) as u32) << 23);
    if exponent == 0 { mantissa * power(-10) } else { (1.0 + mantissa / 8.0) * power(exponent - 8) }
}

/// The E4M3 scale nearest to `x`, ties away from zero; zero for NaN and what is not positive. Two things are ggml's
/// own: what rounds to 256 or more is 448, the largest, and nothing below 2^-6 rounds up to it.
fn to_e4m3(x: f32) -> u8 {
    if x.is_nan() || x <= 0.0 {
        return 0;
    }
    let bits = x.min(448.0).to_bits();
    let exponent = (bits >> 23) as i32 - 127 + 7;
    if exponent <= 0 {
        return ((x * 512.0 + 0.5) as u8).min(7);
    }
    // The mantissa's carry goes into the exponent.
    let rounded = ((exponent as u32) << 3 | (bits >> 20 & 7)) + (bits >> 19 & 1);
    if rounded < LARGEST_BINADE { rounded as u8 } else { 0x7E }
}

/// Levels of a table, a float for each group.
pub(super) const INTEGERS: IntegerForm =
    IntegerForm::new(SIZE, Coding::Table(&LEVELS), Sums::Blocks, |_, block, to| {
        for (levels, codes) in to.levels.as_chunks_mut::<SIZE>().0.iter_mut().zip(block[GROUPS..].as_chunks::<HALF>().0)
        {
            for (j, q) in codes.iter().enumerate() {
                (levels[j], levels[j + HALF]) = (LEVELS[usize::from(q & 15)], LEVELS[usize::from(q >> 4)]);
            }
        }
        to.d = std::array::from_fn(|g| half_scale(block[g]));
    });

fn decode(row: &[u8], out: &mut [f32]) {
    let blocks = row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0);
    for (b, y) in blocks {
        let codes = b[GROUPS..].as_chunks::<HALF>().0;
        let groups = y.as_chunks_mut::<SIZE>().0.iter_mut().zip(codes);
        for ((y, codes), e4m3) in groups.zip(&b[..GROUPS]) {
            let d = half_scale(*e4m3);
            for (j, q) in codes.iter().enumerate() {
                y[j] = f32::from(LEVELS[usize::from(q & 15)]) * d;
                y[j + HALF] = f32::from(LEVELS[usize::from(q >> 4)]) * d;
            }
        }
    }
}

/// The scale puts the largest magnitude at 6, the largest level.
fn encode(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    let blocks = x.as_chunks::<BLOCK>().0.iter().zip(row.as_chunks_mut::<BYTES>().0);
    for (x, b) in blocks {
        let (scales, codes) = b.split_at_mut(GROUPS);
        let groups = x.as_chunks::<SIZE>().0.iter().zip(codes.as_chunks_mut::<HALF>().0);
        for ((x, codes), scale) in groups.zip(scales) {
            *scale = to_e4m3(largest_magnitude(x) / 6.0);
            let d = half_scale(*scale);
            for (j, q) in codes.iter_mut().enumerate() {
                *q = nearest_code(x[j], d) | nearest_code(x[j + HALF], d) << 4;
            }
        }
    }
}

/// Per group `acc += (dx * dw) * sum`.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    let pairs = q8_0::blocks(x).as_chunks::<2>().0;
    for (b, acts) in w.as_chunks::<BYTES>().0.iter().zip(pairs) {
        for (g, codes) in b[GROUPS..].as_chunks::<HALF>().0.iter().enumerate() {
            let (act, first) = (&acts[g / 2], SIZE * (g % 2));
            let mut sum = 0;
            for (j, q) in codes.iter().enumerate() {
                sum += i32::from(LEVELS[usize::from(q & 15)]) * q8_0::quant(act, first + j);
                sum += i32::from(LEVELS[usize::from(q >> 4)]) * q8_0::quant(act, first + j + HALF);
            }
            acc += q8_0::scale(act) * half_scale(b[g]) * sum as f32;
        }
    }
    acc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scale_encodes_to_itself() {
        for e4m3 in 0..0x7F {
            let kept = if e4m3 < 0x78 { e4m3 } else { 0x7E };
            assert_eq!(to_e4m3(2.0 * half_scale(e4m3)), kept);
        }
        assert_eq!((half_scale(0x7E), half_scale(0x7F), half_scale(0xFF)), (224.0, 0.0, 240.0));
    }

    #[test]
    fn scales_round_to_the_nearest() {
        for low in 8..0x77 {
            let (a, b) = (2.0 * half_scale(low), 2.0 * half_scale(low + 1));
            let middle = (a + b) / 2.0;
            assert_eq!(to_e4m3(middle.next_down()), low, "below {middle}");
            assert_eq!(to_e4m3(middle), low + 1, "{middle}");
        }
        // The subnormal scales are multiples of 2^-9.
        assert_eq!([0.4, 0.5, 6.4, 6.5, 7.9].map(|x| to_e4m3(x / 512.0)), [0, 1, 6, 7, 7]);
        let odd = [f32::NAN, -1.0, 0.0, f32::INFINITY, 1e9];
        assert_eq!(odd.map(to_e4m3), [0, 0, 0, 0x7E, 0x7E]);
    }
}
