//! Common parts of the IQ1, IQ2 and IQ3 families: weights are stored eight or four at a time, as the place of a point
//! in a codebook. Points of the IQ2 and IQ3 codebooks are magnitudes and go with a sign for each weight; those of the
//! IQ1 codebook have the values -1, 0 and 1.
//!
//! A block is 256 weights in groups of 16 or 32. A group has a small scale code `s` and a scale that is an odd number
//! of steps, `2 s + 1`; the block's scale says how large a step is.

mod fit;
pub(super) mod grids;
mod neighbours;
mod points;
mod signs;
mod thirds;

pub(super) use fit::{Again, BlockFit, Kind, scale_code};
pub(super) use neighbours::Codebook;
pub(super) use points::{Points, encode, encode_on, info, integers, steps};
pub(super) use signs::place_even_signs;
pub use signs::with_even_sign;
pub(super) use thirds::{Placed, Split, TernaryCodebook, ascending, ternary_codebook};

use super::k_block::BLOCK;

/// The magnitudes that the codes of the IQ2 codebooks stand for. No point has the code 3.
const IQ2_LEVELS: [i8; 4] = [8, 25, 43, 0];
/// The values that the codes of the IQ1 codebook stand for, with signs.
const IQ1_LEVELS: [i8; 4] = [-1, 0, 1, 0];
/// The magnitudes that the codes of the IQ3_XXS codebook stand for.
const IQ3_XXS_LEVELS: [i8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
/// The magnitudes that the codes of the IQ3_S codebook stand for.
const IQ3_S_LEVELS: [i8; 8] = [1, 3, 5, 7, 9, 11, 13, 15];

/// The points of IQ2_XXS as weights, in units of an eighth of a step.
pub static IQ2_XXS: [[i8; 8]; 256] = points(&grids::IQ2_XXS, &IQ2_LEVELS);
/// The points of IQ2_XS, as those of [`IQ2_XXS`].
pub static IQ2_XS: [[i8; 8]; 512] = points(&grids::IQ2_XS, &IQ2_LEVELS);
/// The points of IQ2_S, as those of [`IQ2_XXS`].
pub static IQ2_S: [[i8; 8]; 1024] = points(&grids::IQ2_S, &IQ2_LEVELS);
/// The points of IQ1_S and IQ1_M as weights, in steps and before the shift.
pub static IQ1: [[i8; 8]; 2048] = points(&grids::IQ1, &IQ1_LEVELS);
/// The points of IQ3_XXS as weights, in units of a quarter of a step.
pub static IQ3_XXS: [[i8; 4]; 256] = points(&grids::IQ3_XXS, &IQ3_XXS_LEVELS);
/// The points of IQ3_S as weights, in steps.
pub static IQ3_S: [[i8; 4]; 512] = points(&grids::IQ3_S, &IQ3_S_LEVELS);

/// The levels of weights: magnitudes, and the same negative.
pub(super) static IQ2_SIGNED: [i8; 8] = with_signs(IQ2_LEVELS);
pub(super) static IQ3_XXS_SIGNED: [i8; 16] = with_signs(IQ3_XXS_LEVELS);
pub(super) static IQ3_S_SIGNED: [i8; 16] = with_signs(IQ3_S_LEVELS);
/// The levels of the IQ1 family in eighths, moved by one.
pub(super) static EIGHTHS: [i8; 6] = [-9, -7, -1, 1, 7, 9];

const fn with_signs<const N: usize, const TWICE: usize>(magnitudes: [i8; N]) -> [i8; TWICE] {
    let mut levels = [0; TWICE];
    let mut i = 0;
    while i < TWICE {
        levels[i] = if i < N { magnitudes[i] } else { -magnitudes[i % N] };
        i += 1;
    }
    levels
}

/// Bits of a code in a codebook of points with `coordinates` coordinates.
const fn code_bits(coordinates: usize) -> usize {
    if coordinates == 8 { 2 } else { 3 }
}

/// The points of a codebook with a value for each code.
const fn points<const N: usize, const POINTS: usize>(packed: &[u16; POINTS], levels: &[i8]) -> [[i8; N]; POINTS] {
    let mut points = [[0; N]; POINTS];
    let bits = code_bits(N);
    let mut p = 0;
    while p < POINTS {
        let mut i = 0;
        while i < N {
            let code = (packed[p] >> (bits * i)) as usize & ((1 << bits) - 1);
            points[p][i] = levels[code];
            i += 1;
        }
        p += 1;
    }
    points
}

/// The weights of the errors of a block: importance times the size of a value against the mean square around it, which
/// is multiplied with `sigma`. Without importance `plain(value, mean square)`.
#[inline(always)]
pub(super) fn error_weights(
    x: &[f32; BLOCK],
    importance: Option<&[f32; BLOCK]>,
    sigma: f32,
    plain: fn(f32, f32) -> f32,
) -> [f32; BLOCK] {
    let mut sum = 0.0f32;
    for v in x {
        sum += v * v;
    }
    let sigma2 = sigma * sum / BLOCK as f32;
    let mut weights = *x;
    match importance {
        None => {
            for w in &mut weights {
                *w = plain(*w, sigma2);
            }
        }
        Some(importance) => {
            for (w, q) in weights.iter_mut().zip(importance) {
                *w = q * (sigma2 + *w * *w).sqrt();
            }
        }
    }
    weights
}

/// A block taken apart: signed weights in the units of its codebook, and the scale code of each group.
pub(super) struct Unpacked<const GROUPS: usize> {
    pub weights: [i8; BLOCK],
    pub scales: [u8; GROUPS],
}

impl<const GROUPS: usize> Unpacked<GROUPS> {
    /// All zeros, to be filled.
    pub fn new() -> Self {
        Unpacked { weights: [0; BLOCK], scales: [0; GROUPS] }
    }

    /// Puts a point with its signs at weight `N * cell`.
    #[inline(always)]
    pub fn put<const N: usize>(&mut self, cell: usize, point: &[i8; N], signs: u8) {
        let weights = &mut self.weights.as_chunks_mut::<N>().0[cell];
        for (i, (w, p)) in weights.iter_mut().zip(point).enumerate() {
            *w = if signs >> i & 1 == 0 { *p } else { -*p };
        }
    }
}

/// The scale codes of the groups, two to a byte, the first in the low bits.
#[inline(always)]
pub(super) fn scale_nibbles<const GROUPS: usize>(bytes: &[u8]) -> [u8; GROUPS] {
    std::array::from_fn(|g| bytes[g / 2] >> (4 * (g % 2)) & 15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TypeId;

    /// Codebooks are sorted, which says that no point is there twice, and begin with the origin, which encoders write
    /// for groups that are zero.
    #[test]
    fn points_are_in_order() {
        let books: [&[u16]; 6] =
            [&grids::IQ2_XXS, &grids::IQ2_XS, &grids::IQ2_S, &grids::IQ1, &grids::IQ3_XXS, &grids::IQ3_S];
        for book in books {
            assert_eq!(book[0], 0);
            assert!(book.windows(2).all(|pair| pair[0] < pair[1]));
        }
        assert!(IQ2_S.as_flattened().iter().all(|l| [8, 25, 43].contains(l)));
        assert!(IQ1.as_flattened().iter().all(|l| [-1, 0, 1].contains(l)));
        assert!(IQ3_S.as_flattened().iter().all(|l| l % 2 == 1));
    }

    /// A bit of a block that is not of its scale is about weights of one group, and each weight has bits: of its point,
    /// its sign or its shift, which change few weights, and of its scale.
    #[test]
    fn bits_belong_to_groups() {
        let types = [
            (TypeId::IQ1_S, 32),
            (TypeId::IQ1_M, 16),
            (TypeId::IQ2_XXS, 32),
            (TypeId::IQ2_XS, 16),
            (TypeId::IQ2_S, 16),
            (TypeId::IQ3_XXS, 32),
            (TypeId::IQ3_S, 32),
        ];
        for (ty, size) in types {
            let info = ty.info().unwrap();
            let decoded = |block: &[u8]| {
                let mut y = [0.0; BLOCK];
                info.decode.unwrap()(block, &mut y);
                y
            };
            // Any points: every byte is another one. The scale is 1, in IQ1_M by the upper nibbles of its last bytes.
            let mut block: Vec<u8> = (0..info.bytes).map(|i| (i * 37 + 11) as u8).collect();
            let scale = if ty == TypeId::IQ1_M {
                for (at, nibble) in [(49, 0), (51, 0), (53, 0xC0), (55, 0x30)] {
                    block[at] = block[at] & 15 | nibble;
                }
                |bit: usize| bit >= 8 * 48 && bit % 16 >= 12
            } else {
                block[..2].copy_from_slice(&[0x00, 0x3C]);
                |bit: usize| bit < 16
            };
            let before = decoded(&block);
            let (mut of_scale, mut of_few) = ([false; BLOCK], [false; BLOCK]);
            for bit in (0..8 * info.bytes).filter(|&bit| !scale(bit)) {
                let mut flipped = block.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let after = decoded(&flipped);
                let changed: Vec<usize> = (0..BLOCK).filter(|&i| before[i] != after[i]).collect();
                let (Some(first), Some(last)) = (changed.first(), changed.last()) else {
                    panic!("{ty}: bit {bit} is about nothing");
                };
                assert_eq!(first / size, last / size, "{ty}: bit {bit}");
                let kind = if changed.len() > 8 { &mut of_scale } else { &mut of_few };
                changed.iter().for_each(|&i| kind[i] = true);
            }
            assert!(of_few.iter().all(|&told| told), "{ty}");
            assert!(of_scale.iter().all(|&told| told), "{ty}");
        }
    }
}
