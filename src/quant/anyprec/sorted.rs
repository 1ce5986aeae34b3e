//! A group of weights in ascending order, as clustering wants them.
//!
//! The order is by value and then by column, so it is the same on every machine; −0 and +0 are one value.

use std::ops::Range;

/// Weights that are one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// The value.
    pub value: f64,
    /// Sum of their sensitivities.
    pub mass: f64,
    /// The first of them in sorted order.
    pub start: u32,
    /// Number of weights in the run.
    pub count: u32,
}

/// A sorted group, and its runs of equal values. Room is kept between groups.
#[derive(Debug, Default)]
pub struct Sorted {
    /// Value in the upper half, mapped so that it sorts as an integer; column in the lower.
    keys: Vec<u64>,
    spare: Vec<u64>,
    runs: Vec<Run>,
}

/// The bits of a finite `x` as an integer that sorts as `x` does, both zeros alike.
fn ordered(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    bits ^ ((bits as i32 >> 31) as u32 | 0x8000_0000)
}

impl Sorted {
    /// Sorts a group of at most 2^32 weights. All of them are finite.
    pub fn load(&mut self, weights: &[f32]) {
        self.keys.clear();
        let keys = weights.iter().zip(0u64..);
        self.keys.extend(keys.map(|(&x, column)| u64::from(ordered(x)) << 32 | column));
        self.sort();
    }

    /// Least significant digit first, which keeps columns in order: 11 bits at a time.
    fn sort(&mut self) {
        const BITS: u32 = 11;
        const DIGITS: [u32; 3] = [32, 32 + BITS, 32 + 2 * BITS];
        if self.keys.len() < 256 {
            self.keys.sort_unstable();
            return;
        }
        self.spare.resize(self.keys.len(), 0);
        for shift in DIGITS {
            let digit = |key: u64| (key >> shift) as usize & ((1 << BITS) - 1);
            let mut places = [0u32; 1 << BITS];
            for &key in &self.keys {
                places[digit(key)] += 1;
            }
            let mut total = 0;
            for place in &mut places {
                total += std::mem::replace(place, total);
            }
            for &key in &self.keys {
                let place = &mut places[digit(key)];
                self.spare[*place as usize] = key;
                *place += 1;
            }
            std::mem::swap(&mut self.keys, &mut self.spare);
        }
    }

    /// Columns of the weights, in sorted order.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.keys.iter().map(|&key| key as u32 as usize)
    }

    /// Finds the runs of equal values; `sensitivities` are finite and not negative.
    pub fn find_runs(&mut self, weights: &[f32], sensitivities: &[f32]) {
        self.runs.clear();
        let mut value = None;
        for (&key, start) in self.keys.iter().zip(0u32..) {
            let column = key as u32 as usize;
            let mass = f64::from(sensitivities[column]);
            match self.runs.last_mut() {
                Some(run) if value == Some(key >> 32) => {
                    run.mass += mass;
                    run.count += 1;
                }
                _ => {
                    value = Some(key >> 32);
                    self.runs.push(Run { value: f64::from(weights[column]) + 0.0, mass, start, count: 1 });
                }
            }
        }
    }

    /// The runs, in ascending order of their values.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Makes every weight count alike.
    pub fn weigh_alike(&mut self) {
        for run in &mut self.runs {
            run.mass = f64::from(run.count);
        }
    }

    /// Gives the weights of these runs a code.
    pub fn label(&self, runs: Range<usize>, code: u8, codes: &mut [u8]) {
        let start = |run: usize| self.runs.get(run).map_or(self.keys.len(), |r| r.start as usize);
        for &key in &self.keys[start(runs.start)..start(runs.end)] {
            codes[key as u32 as usize] = code;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(weights: &[f32]) -> Vec<usize> {
        let mut sorted = Sorted::default();
        sorted.load(weights);
        sorted.columns().collect()
    }

    #[test]
    fn order_is_by_value_then_column() {
        let weights = [0.5, -0.0, f32::MIN, 0.0, -1e-45, 0.5, -2.0, f32::MAX];
        assert_eq!(sorted(&weights), [2, 6, 4, 1, 3, 0, 5, 7]);
    }

    #[test]
    fn both_sorts_agree() {
        let mut state = 1u32;
        let weights: Vec<f32> = (0..1000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // few values, so that columns decide often
                ((state >> 24) as f32 - 128.0) * 0.25
            })
            .collect();
        let mut want: Vec<usize> = (0..weights.len()).collect();
        want.sort_by(|&a, &b| weights[a].total_cmp(&weights[b]));
        assert_eq!(sorted(&weights), want);
    }

    #[test]
    fn runs_are_values() {
        let weights = [1.0, -0.0, 1.0, 0.0, 2.0];
        let mut sorted = Sorted::default();
        sorted.load(&weights);
        sorted.find_runs(&weights, &[1.0, 2.0, 4.0, 8.0, 0.0]);
        let found: Vec<_> = sorted.runs().iter().map(|r| (r.value, r.mass, r.start, r.count)).collect();
        assert_eq!(found, [(0.0, 10.0, 0, 2), (1.0, 5.0, 2, 2), (2.0, 0.0, 4, 1)]);
        let mut codes = [9; 5];
        sorted.label(0..1, 3, &mut codes);
        sorted.label(1..3, 4, &mut codes);
        assert_eq!(codes, [4, 3, 4, 3, 4]);
    }
}
