//! The nearest level of a table, looked up.

use super::forms;

/// Values that are told apart: twice a level, and half of them negative.
const SPAN: usize = 512;

/// The levels nearest to numbers: place `i` has that of `(i - SPAN / 2) / 2` and what lies up to the next place.
///
/// Levels are integers, so that numbers half-way between two of them are multiples of one half, and the table is exact.
pub(super) struct Nearest {
    levels: [f32; SPAN],
    codes: [u8; SPAN],
}

impl Nearest {
    const fn new(table: &[i8]) -> Nearest {
        let (mut levels, mut codes) = ([0.0; SPAN], [0; SPAN]);
        let (mut i, mut code) = (0, 0);
        while i < SPAN {
            let twice = i as i32 - SPAN as i32 / 2;
            while code + 1 < table.len() && table[code] as i32 + table[code + 1] as i32 <= twice {
                code += 1;
            }
            levels[i] = table[code] as f32;
            codes[i] = code as u8;
            i += 1;
        }
        Nearest { levels, codes }
    }

    /// The level nearest to `x`; at the middle of two either of them, and some level for what is no number.
    #[inline(always)]
    pub fn of(&self, x: f32) -> f32 {
        self.levels[place(x)]
    }

    /// Its code.
    #[inline(always)]
    pub fn code(&self, x: f32) -> u8 {
        self.codes[place(x)]
    }

    /// The lowest and the highest level.
    pub fn ends(&self) -> [f32; 2] {
        [self.levels[0], self.levels[SPAN - 1]]
    }
}

/// The place of a number in the tables.
#[inline(always)]
fn place(x: f32) -> usize {
    // Adding 2^23 leaves the number rounded to an integer in the lowest bits.
    const SHIFT: f32 = 8_388_608.0;
    const LAST: f32 = SPAN as f32 - 1.0;
    let place = 2.0 * x + (SPAN as f32 / 2.0 - 0.5);
    // What is no number has the first place, on every processor.
    let place = if place > 0.0 { place } else { 0.0 };
    (place.min(LAST) + SHIFT).to_bits() as usize % SPAN
}

/// Both halves of a table of levels.
const fn halves<const TWICE: usize>(table: &[i8; TWICE]) -> [Nearest; 2] {
    let (first, second) = table.split_at(TWICE / 2);
    [Nearest::new(first), Nearest::new(second)]
}

/// Points of the codebook of IQ2_KL.
pub(super) const POINTS_OF_PAIRS: usize = 32;

/// The first levels of all points, and the second ones.
pub(super) type Points = [[f32; POINTS_OF_PAIRS]; 2];

/// The points of IQ2_KL.
pub(super) static POINTS: Points = {
    let mut points = [[0.0; POINTS_OF_PAIRS]; 2];
    let mut i = 0;
    while i < POINTS_OF_PAIRS {
        points[0][i] = forms::POINTS[i][0] as f32;
        points[1][i] = forms::POINTS[i][1] as f32;
        i += 1;
    }
    points
};
pub(super) static IQ2: [Nearest; 2] = halves(&forms::IQ2);
pub(super) static IQ3: [Nearest; 2] = halves(&forms::IQ3);
pub(super) static IQ4: [Nearest; 2] = halves(&forms::IQ4);
pub(super) static IQ5: [Nearest; 2] = halves(&forms::IQ5);
pub(super) static IQ6: [Nearest; 2] = halves(&forms::IQ6);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_level_is_nearer() {
        let all: [(&[i8], &[Nearest; 2]); 5] =
            [(&forms::IQ2, &IQ2), (&forms::IQ3, &IQ3), (&forms::IQ4, &IQ4), (&forms::IQ5, &IQ5), (&forms::IQ6, &IQ6)];
        for (table, halves) in all {
            for (levels, nearest) in table.chunks(table.len() / 2).zip(halves) {
                for i in -2000..=2000 {
                    let x = i as f32 / 8.0;
                    let least = levels.iter().map(|l| (f32::from(*l) - x).abs()).fold(f32::INFINITY, f32::min);
                    assert_eq!((nearest.of(x) - x).abs(), least, "{x}");
                    assert_eq!(f32::from(levels[usize::from(nearest.code(x))]), nearest.of(x), "{x}");
                }
                assert_eq!(nearest.ends(), [levels[0], levels[levels.len() - 1]].map(f32::from));
                assert_eq!(nearest.of(f32::INFINITY), nearest.ends()[1]);
                assert!(levels.iter().any(|l| nearest.of(f32::NAN) == f32::from(*l)));
            }
        }
    }
}
