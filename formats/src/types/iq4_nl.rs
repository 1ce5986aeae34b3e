//! IQ4_NL: 4-bit codes for sixteen unevenly spaced levels.
//!
//! ```text
//! byte  0    1 2                             17
//!       +-----+-------------------------------+
//!       |  d  | low nibble of byte j: weight j |   weight = d * LEVELS[code]
//!       | f16 | high nibble:     weight j + 16 |
//!       +-----+-------------------------------+
//! ```

use super::block32::{self, BLOCK, Codes, Nibbles, put_codes};
use super::grid::{Grid, Levels, scale_first, whole};
use super::integers::{Coding, IntegerForm, Sums};
use super::num::{f16_at, inverse, put_f16, signed_extreme};
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 18;
const _: () = assert!(BYTES == size_of::<u16>() + BLOCK / 2);

/// The levels, densest around zero; none of them is zero.
pub(super) const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Blocks whose largest magnitude is below this count as zero.
const ZERO_BELOW: f32 = 1e-15;

/// Scales tried on either side of the one that puts the extreme element on the lowest level.
const TRIES: i32 = 7;

/// IQ4_NL in the registry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[Field::new(Part::Scale, Format::F16, 0), Field::new(Part::Codes, Format::Bits, 2)],
    codebook: Some(&LEVELS),
    act: Some(TypeId::Q8_0),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::IQ4_NL, "iq4_nl", BLOCK, BYTES)
};

/// Codes under a scale that is decided.
pub(super) const GRID: Grid = Grid {
    group: BLOCK,
    levels: Levels::Table(&LEVELS),
    steps: scale_first,
    place: |codes, block| Nibbles::pack(whole(codes), &mut block[2..]),
};

/// Levels of a table.
pub(super) const INTEGERS: IntegerForm =
    IntegerForm::new(BLOCK, Coding::Table(&LEVELS), Sums::Blocks, |_, block, to| {
        to.set(&block32::levels(&block[2..], &LEVELS), f16_at(block, 0));
    });

fn decode(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let d = f16_at(b, 0);
        *y = block32::levels(&b[2..], &LEVELS).map(|level| d * f32::from(level));
    }
}

/// The levels as steps: half-way to the next level, and the distance to it.
const STEPS: [(f32, f32); 15] = {
    let mut steps = [(0.0, 0.0); 15];
    let mut i = 0;
    while i < 15 {
        let (lower, upper) = (LEVELS[i] as f32, LEVELS[i + 1] as f32);
        steps[i] = ((lower + upper) / 2.0, upper - lower);
        i += 1;
    }
    steps
};

/// The level nearest to `x`, the upper one when both are as near; the last one for NaN.
///
/// The reference compares `x - lower` with `upper - x`. Near the middle both differences are exact (they
/// are no larger than a power of two above `x`), so that comparing with the middle decides the same.
#[inline]
pub(super) fn nearest_code(x: f32) -> u8 {
    let below = STEPS.iter().filter(|(middle, _)| x < *middle).count();
    15 - below as u8
}

/// Inverse scales that are fitted side by side, one chain of sums in each lane.
const LANES: usize = 2 * TRIES as usize + 2;

/// Sums over a block for each trial scale `1 / id`: `sum of w q x` and `sum of w q q`.
fn fit(x: &[f32; BLOCK], weight: &[f32; BLOCK], id: &[f32; LANES]) -> ([f32; LANES], [f32; LANES]) {
    let (mut sumqx, mut sumq2) = ([0.0f32; LANES], [0.0f32; LANES]);
    for (&v, &w) in x.iter().zip(weight) {
        let scaled = id.map(|id| id * v);
        let mut level = [f32::from(LEVELS[0]); LANES];
        for (middle, gap) in STEPS {
            for (level, s) in level.iter_mut().zip(&scaled) {
                *level += if *s < middle { 0.0 } else { gap };
            }
        }
        for (k, q) in level.into_iter().enumerate() {
            sumqx[k] += w * q * v;
            sumq2[k] += w * q * q;
        }
    }
    (sumqx, sumq2)
}

/// The scale with the least weighted error among the trial assignments of codes.
pub(super) fn search_scale(x: &[f32; BLOCK], weight: &[f32; BLOCK]) -> f32 {
    let extreme = signed_extreme(x);
    if extreme.abs() < ZERO_BELOW {
        return 0.0;
    }
    // The first lane is the scale that maps the extreme element to the lowest level, the others are
    // TRIES steps to either side of it; the middle one is rounded differently from the first.
    let lowest = f32::from(LEVELS[0]);
    let id = std::array::from_fn(|k| match k {
        0 => 1.0 / (-extreme / lowest),
        _ => (k as i32 - 1 - TRIES + i32::from(LEVELS[0])) as f32 / extreme,
    });
    let (sumqx, sumq2) = fit(x, weight, &id);
    let mut scale = if sumq2[0] > 0.0 { sumqx[0] / sumq2[0] } else { 0.0 };
    let mut best = scale * sumqx[0];
    for (&qx, &q2) in sumqx.iter().zip(&sumq2).skip(1) {
        if q2 > 0.0 && qx * qx > best * q2 {
            scale = qx / q2;
            best = scale * qx;
        }
    }
    scale
}

/// The weights of the elements' errors; without importance they are the squares of the elements.
pub(super) fn error_weights<const N: usize>(x: &[f32; N], importance: Option<&[f32; N]>) -> [f32; N] {
    let Some(importance) = importance else {
        return x.map(|v| v * v);
    };
    let mut sum = 0.0f32;
    for v in x {
        sum += v * v;
    }
    let sigma2 = sum * (2.0 / N as f32);
    std::array::from_fn(|j| importance[j] * (sigma2 + x[j] * x[j]).sqrt())
}

/// This is what ggml writes
/// to files (`quantize_iq4_nl`); its `quantize_row_iq4_nl_ref` searches less and is used for no file.
fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    let mut importance = importance.map(|w| w.as_chunks::<BLOCK>().0.iter());
    for (x, b) in x.as_chunks::<BLOCK>().0.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        let weight = error_weights(x, importance.as_mut().and_then(Iterator::next));
        let d = search_scale(x, &weight);
        put_f16(b, 0, d);
        let id = inverse(d);
        put_codes(x, &mut b[2..], |v| nearest_code(id * v));
    }
}

/// Per block `acc += (dx * dw) * isum`.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    block32::dot_levels::<BYTES>(w, x, &LEVELS, |block| f16_at(block, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_codes_at_and_around_the_middles() {
        for (i, pair) in LEVELS.windows(2).enumerate() {
            let middle = (f32::from(pair[0]) + f32::from(pair[1])) / 2.0;
            assert_eq!(usize::from(nearest_code(middle)), i + 1, "{middle}");
            assert_eq!(usize::from(nearest_code(middle.next_down())), i, "below {middle}");
            assert_eq!(usize::from(nearest_code(pair[0].into())), i);
        }
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, 0.0, -0.0];
        assert_eq!(odd.map(nearest_code), [15, 15, 0, 15, 8, 8]);
    }
}
