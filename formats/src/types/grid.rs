//! Blocks whose scales are decided: what each element may still become, and where its code goes.
//!
//! An encoder finds scales and codes together. Rounding with error feedback takes the scales of an encoder and then
//! chooses the codes one after the other, each after the errors of those before it were passed on.

use super::num::f16_at;

/// How the codes of a type stand for values: `value = level(code) * scale - offset`, in `f32` with the product rounded
/// first, which gives the bits of the type's decoder.
pub struct Grid {
    /// Elements that share a [`Step`].
    pub group: usize,
    /// The values of the codes, in units of the scale.
    pub levels: Levels,
    /// Reads the steps of a block, one for each group; of types whose scale stands before the row, in units of that.
    pub(super) steps: fn(block: &[u8], steps: &mut [Step]),
    /// Writes the codes of all elements of a block and leaves its scales.
    pub(super) place: fn(codes: &[u8], block: &mut [u8]),
}

/// How the steps of a super-block are kept: `scale = d * multiple`, `offset = dmin * multiple`, with the floats of the
/// block ([`Part::Scale`](super::Part::Scale), [`Part::Min`](super::Part::Min)) and small integers of each group.
pub struct Multiples {
    /// The lowest and the highest multiple that a scale may be.
    pub scales: (i16, i16),
    /// The highest multiple that a minimum may be, the lowest being 0; 0 for types without minima.
    pub minima: i16,
    /// Reads the multiples of a block, those of the scale and the minimum of each group.
    pub(super) read: fn(block: &[u8], multiples: &mut [[i16; 2]]),
    /// Writes them.
    pub(super) write: fn(multiples: &[[i16; 2]], block: &mut [u8]),
}

impl Multiples {
    /// The multiples of `block`: of the scale and of the minimum of each group.
    ///
    /// # Panics
    /// When there are not as many places as groups.
    pub fn read(&self, block: &[u8], multiples: &mut [[i16; 2]]) {
        (self.read)(block, multiples);
    }

    /// Writes `multiples` within their bounds into `block`.
    ///
    /// # Panics
    /// When there are not as many as groups.
    pub fn write(&self, multiples: &[[i16; 2]], block: &mut [u8]) {
        (self.write)(multiples, block);
    }
}

/// Pairs of neighbouring elements as points of a codebook, under scales that are decided: `value = level * scale`.
pub struct Pairs {
    /// Elements that share a [`Step`].
    pub group: usize,
    /// The points, in units of the scale.
    pub points: &'static [[i8; 2]; 32],
    /// As [`Grid`]'s.
    pub(super) steps: fn(block: &[u8], steps: &mut [Step]),
    /// Writes the points of all pairs of a block and leaves its scales.
    pub(super) place: fn(points: &[u8], block: &mut [u8]),
}

impl Pairs {
    /// The steps of `block`, a whole block with scales, in units of the scale of the row.
    ///
    /// # Panics
    /// When `steps` has not one place for each group.
    pub fn steps(&self, block: &[u8], steps: &mut [Step]) {
        (self.steps)(block, steps);
    }

    /// Writes `points`, one for each pair, into `block`.
    ///
    /// # Panics
    /// When there are more of them than pairs.
    pub fn place(&self, points: &[u8], block: &mut [u8]) {
        (self.place)(points, block);
    }

    /// The values of a point, as the type's decoder computes them.
    pub fn values(&self, step: Step, point: u8) -> [f32; 2] {
        self.points[usize::from(point)].map(|level| step.scale * f32::from(level))
    }
}

/// The scale of a group, and what is subtracted from its elements.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    /// Distance of levels that are 1 apart.
    pub scale: f32,
    /// The negated minimum; 0 for types without one.
    pub offset: f32,
    /// True if codes are places in the second half of [`Levels::Halves`].
    pub second: bool,
}

/// The levels of the codes, ascending.
#[derive(Clone, Copy, Debug)]
pub enum Levels {
    /// Consecutive integers.
    Even {
        /// The level of code 0.
        lowest: i16,
        /// How many codes may be used.
        count: u16,
    },
    /// A codebook, whose indices are the codes.
    Table(&'static [i8]),
    /// Two codebooks one behind the other, of which each group uses one.
    Halves(&'static [i8]),
}

impl Levels {
    /// The codebook of a group; none where levels are consecutive.
    fn table(&self, step: Step) -> &'static [i8] {
        match *self {
            Levels::Even { .. } => &[],
            Levels::Table(levels) => levels,
            Levels::Halves(both) => {
                let (first, second) = both.split_at(both.len() / 2);
                if step.second { second } else { first }
            }
        }
    }

    fn of(&self, step: Step, code: u8) -> i16 {
        match self {
            Levels::Even { lowest, .. } => lowest + i16::from(code),
            _ => i16::from(self.table(step)[usize::from(code)]),
        }
    }
}

impl Grid {
    /// The steps of `block`, a whole block with scales.
    ///
    /// # Panics
    /// When `steps` has not one place for each group.
    pub fn steps(&self, block: &[u8], steps: &mut [Step]) {
        (self.steps)(block, steps);
    }

    /// Writes `codes`, one for each element, into `block`.
    ///
    /// # Panics
    /// When there are not as many codes as elements.
    pub fn place(&self, codes: &[u8], block: &mut [u8]) {
        (self.place)(codes, block);
    }

    /// The value of a code, as the type's decoder computes it.
    pub fn value(&self, step: Step, code: u8) -> f32 {
        f32::from(self.levels.of(step, code)) * step.scale - step.offset
    }

    /// The code whose value is nearest to `x`: between two levels the even one, in a codebook the upper one. Where all
    /// values are equal, because the scale is 0, it is the code of level 0 or of the level above it.
    pub fn nearest(&self, step: Step, x: f64) -> u8 {
        let scale = f64::from(step.scale);
        let level = if scale == 0.0 { 0.0 } else { (x + f64::from(step.offset)) / scale };
        match self.levels {
            Levels::Even { lowest, count } => {
                let (lowest, above) = (f64::from(lowest), f64::from(count - 1));
                (level - lowest).clamp(0.0, above).round_ties_even() as u8
            }
            _ => {
                let below = self.levels.table(step).windows(2).filter(|pair| {
                    let middle = (f64::from(pair[0]) + f64::from(pair[1])) / 2.0;
                    level >= middle
                });
                below.count() as u8
            }
        }
    }
}

/// The step of a block that begins with its scale, for [`Grid::steps`].
pub(super) fn scale_first(block: &[u8], steps: &mut [Step]) {
    steps[0] = Step { scale: f16_at(block, 0), offset: 0.0, second: false };
}

/// The steps of a super-block without minima: its float times the scales of its groups.
pub(super) fn multiples_of(d: f32, scales: &[i32], steps: &mut [Step]) {
    for (step, &scale) in steps.iter_mut().zip(scales) {
        *step = Step { scale: d * scale as f32, offset: 0.0, second: false };
    }
}

/// The scales of its groups, for [`Multiples::read`].
pub(super) fn without_minima(scales: &[i32], multiples: &mut [[i16; 2]]) {
    for (pair, &scale) in multiples.iter_mut().zip(scales) {
        *pair = [scale as i16, 0];
    }
}

/// The step of a block that ends with its scale.
pub(super) fn scale_last(block: &[u8], steps: &mut [Step]) {
    steps[0] = Step { scale: f16_at(block, block.len() - 2), offset: 0.0, second: false };
}

/// The same of a block that begins with its scale, which the minimum follows.
pub(super) fn scale_and_minimum_first(block: &[u8], steps: &mut [Step]) {
    steps[0] = Step { scale: f16_at(block, 0), offset: -f16_at(block, 2), second: false };
}

/// A whole block, or its codes, as an array.
///
/// # Panics
/// When there are more or fewer.
pub(super) fn whole<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    match bytes.try_into() {
        Ok(bytes) => bytes,
        Err(_) => panic!("{} bytes where a block has {N}", bytes.len()),
    }
}

/// The same to be written to.
///
/// # Panics
/// When there are more or fewer bytes.
pub(super) fn whole_mut<const N: usize>(bytes: &mut [u8]) -> &mut [u8; N] {
    let len = bytes.len();
    match bytes.try_into() {
        Ok(bytes) => bytes,
        Err(_) => panic!("{len} bytes where a block has {N}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::num::put_f16;
    use crate::types::{Part, REGISTRY, TypeId, TypeInfo};

    fn random(seed: &mut u64) -> u8 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*seed >> 56) as u8
    }

    /// A scale of the row of 1, in the form that the type has.
    fn of_row(info: &TypeInfo) -> &'static [u8] {
        match info.head {
            0 => &[],
            2 => &[0, 0x3C],
            _ => &[0, 0, 0x80, 0x3F],
        }
    }

    #[test]
    fn pairs_are_the_decoders_and_scales_stay() {
        let mut seed = 3;
        let (pairs, info) = (TypeId::IQ2_KL.pairs().unwrap(), TypeId::IQ2_KL.info().unwrap());
        for _ in 0..200 {
            let mut block: Vec<u8> = (0..info.bytes).map(|_| random(&mut seed)).collect();
            let points: Vec<u8> = (0..info.block / 2).map(|_| random(&mut seed) % 32).collect();
            let (mut before, mut steps) = ([Step::default(); 8], [Step::default(); 8]);
            pairs.steps(&block, &mut before);
            pairs.place(&points, &mut block);
            pairs.steps(&block, &mut steps);
            assert_eq!(steps, before);
            let mut out = vec![0.0; info.block];
            info.decode.unwrap()(&[of_row(info), &block].concat(), &mut out);
            for (p, (y, &point)) in out.as_chunks::<2>().0.iter().zip(&points).enumerate() {
                let values = pairs.values(steps[2 * p / pairs.group], point);
                assert_eq!(y.map(f32::to_bits), values.map(f32::to_bits), "pair {p}");
            }
        }
        assert!(REGISTRY.iter().all(|info| info.id.pairs().is_none() || info.id == TypeId::IQ2_KL));
    }

    #[test]
    fn values_are_the_decoders_and_codes_come_back() {
        let mut seed = 1;
        let mut seen = 0;
        for info in REGISTRY.iter() {
            let Some(grid) = info.id.grid() else {
                continue;
            };
            seen += 1;
            let decode = info.decode.unwrap();
            let groups = info.block / grid.group;
            let top = match grid.levels {
                Levels::Even { count, .. } => (count - 1) as u8,
                Levels::Table(levels) => (levels.len() - 1) as u8,
                Levels::Halves(both) => (both.len() / 2 - 1) as u8,
            };
            for _ in 0..200 {
                let mut block: Vec<u8> = (0..info.bytes).map(|_| random(&mut seed)).collect();
                let codes: Vec<u8> = (0..info.block)
                    .map(|_| (u16::from(random(&mut seed)) * (u16::from(top) + 1) / 256) as u8)
                    .collect();
                let mut before = vec![Step::default(); groups];
                grid.steps(&block, &mut before);
                grid.place(&codes, &mut block);
                let mut steps = vec![Step::default(); groups];
                grid.steps(&block, &mut steps);
                let mut out = vec![0.0; info.block];
                let row = [of_row(info), &block].concat();
                decode(&row, &mut out);
                for (e, (&y, &code)) in out.iter().zip(&codes).enumerate() {
                    let (step, old) = (steps[e / grid.group], before[e / grid.group]);
                    assert_eq!(step.scale.to_bits(), old.scale.to_bits(), "{}", info.name);
                    assert_eq!(step.offset.to_bits(), old.offset.to_bits(), "{}", info.name);
                    let value = grid.value(step, code);
                    if y.is_nan() && value.is_nan() {
                        continue;
                    }
                    assert_eq!(y.to_bits(), value.to_bits(), "{} element {e}", info.name);
                    let apart = y.is_finite()
                        && step.scale.is_finite()
                        && step.offset.is_finite()
                        && step.scale.abs() > 1e-3 * step.offset.abs();
                    if apart {
                        let nearest = grid.nearest(step, y.into());
                        assert_eq!(nearest, code, "{} element {e}", info.name);
                    }
                }
            }
        }
        assert_eq!(seen, 30);
    }

    #[test]
    fn multiples_are_those_of_the_steps_and_come_back() {
        let mut seed = 2;
        let mut seen = 0;
        for info in REGISTRY.iter() {
            let (Some(grid), Some(multiples)) = (info.id.grid(), info.id.multiples()) else {
                continue;
            };
            seen += 1;
            let groups = info.block / grid.group;
            for _ in 0..200 {
                let mut block: Vec<u8> = (0..info.bytes).map(|_| random(&mut seed)).collect();
                put_f16(&mut block, info.at(Part::Scale), 0.5);
                if multiples.minima > 0 {
                    put_f16(&mut block, info.at(Part::Min), 0.25);
                }
                let before = block.clone();
                let (mut steps, mut all) = (vec![Step::default(); groups], vec![[0; 2]; groups]);
                multiples.read(&block, &mut all);
                multiples.write(&all, &mut block);
                assert!(block == before, "{}", info.name);
                let (low, high) = multiples.scales;
                let drawn = |from: i16, to: i16, byte: u8| from + i16::from(byte) % (to - from + 1);
                for pair in &mut all {
                    *pair = [drawn(low, high, random(&mut seed)), drawn(0, multiples.minima, random(&mut seed))];
                }
                multiples.write(&all, &mut block);
                grid.steps(&block, &mut steps);
                for (step, [scale, minimum]) in steps.iter().zip(&all) {
                    assert_eq!(step.scale, 0.5 * f32::from(*scale), "{}", info.name);
                    assert_eq!(step.offset, 0.25 * f32::from(*minimum), "{}", info.name);
                }
                // Codes stay.
                for (byte, (new, old)) in block.iter().zip(&before).enumerate() {
                    let codes = [Part::Codes, Part::HighBits].map(|part| info.fields.iter().find(|f| f.part == part));
                    let starts = codes.into_iter().flatten().map(|f| f.at);
                    let next =
                        |at: usize| info.fields.iter().map(|f| f.at).filter(|n| *n > at).min().unwrap_or(info.bytes);
                    let holds_codes = starts.clone().any(|at| (at..next(at)).contains(&byte));
                    assert!(!holds_codes || new == old, "{} byte {byte}", info.name);
                }
            }
        }
        assert_eq!(seen, 6);
    }

    #[test]
    fn what_lies_outside_becomes_the_nearest_end() {
        let step = Step { scale: -0.5, offset: 0.0, second: false };
        let grid = TypeId::Q4_0.grid().unwrap();
        let of = |x: f64| grid.nearest(step, x);
        assert_eq!([of(100.0), of(-100.0), of(0.25), of(-0.75)], [0, 15, 8, 10]);
        let nl = TypeId::IQ4_NL.grid().unwrap();
        assert_eq!(nl.nearest(step, 127.0 / 2.0), 0);
        assert_eq!(nl.nearest(step, -1e9), 15);
        let flat = Step::default();
        assert_eq!(grid.value(flat, grid.nearest(flat, 3.0)), 0.0);
    }
}
