//! Signs that stand apart from magnitudes.

use crate::types::cells::Cell;

/// The signs of eight weights of which seven are stored: the number of negative weights is even. Only the low seven
/// bits are looked at.
#[inline]
pub const fn with_even_sign(seven: u8) -> u8 {
    let seven = seven & 0x7F;
    seven | ((seven.count_ones() as u8 & 1) << 7)
}

/// Writes seven signs of each of four cells into a group's word, whose upper four bits stay.
pub(in crate::types) fn place_even_signs(cells: &[Cell; 4], word: &mut [u8; 4]) {
    let mut rest = u32::from_le_bytes(*word) >> 28 << 28;
    for (l, cell) in cells.iter().enumerate() {
        rest |= u32::from(cell.signs & 0x7F) << (7 * l);
    }
    *word = rest.to_le_bytes();
}

/// Magnitudes of eight values, and a bit for each that is negative (or NaN, as in the reference).
#[inline(always)]
pub(super) fn split(x: &[f32; 8], magnitudes: &mut [f32; 8]) -> u8 {
    let mut signs = 0;
    for (i, (m, v)) in magnitudes.iter_mut().zip(x).enumerate() {
        let positive = *v >= 0.0;
        *m = if positive { *v } else { -*v };
        signs |= u8::from(!positive) << i;
    }
    signs
}

/// As [`split`], for formats that store seven of the signs: where the number of negative values is odd, the value that
/// matters least, by `weight * x * x`, takes the other sign, and its magnitude becomes negative.
#[inline(always)]
pub(super) fn split_even(x: &[f32; 8], weight: &[f32; 8], magnitudes: &mut [f32; 8]) -> u8 {
    let signs = split(x, magnitudes);
    if signs.count_ones().is_multiple_of(2) {
        return signs & 0x7F;
    }
    let loss = |i: usize| weight[i] * x[i] * x[i];
    let (mut least, mut flipped) = (loss(0), 0);
    for i in 1..8 {
        if loss(i) < least {
            (least, flipped) = (loss(i), i);
        }
    }
    magnitudes[flipped] = -magnitudes[flipped];
    (signs ^ 1 << flipped) & 0x7F
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eighth_sign_makes_their_number_even() {
        for seven in 0..128 {
            let all = with_even_sign(seven);
            assert_eq!((all & 127, all.count_ones() % 2), (seven, 0));
        }
    }

    #[test]
    fn the_least_of_an_odd_number_is_flipped() {
        let x = [3.0, -2.0, 1.0, -1.0, -4.0, 5.0, 0.5, 2.0];
        let mut magnitudes = [0.0; 8];
        assert_eq!(split(&x, &mut magnitudes), 0b0001_1010);
        assert_eq!(magnitudes, x.map(f32::abs));
        let mut weight = [1.0; 8];
        assert_eq!(split_even(&x, &weight, &mut magnitudes), 0b0101_1010);
        assert_eq!(magnitudes[6], -0.5);
        weight[1] = 1e-3;
        assert_eq!(split_even(&x, &weight, &mut magnitudes), 0b0001_1000);
        assert_eq!((magnitudes[1], magnitudes[6]), (-2.0, 0.5));
    }
}
