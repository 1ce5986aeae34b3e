//! Clustering with the very numbers of the any-precision reference.
//!
//! The seed is greedy k-means++ with a Mersenne Twister and at most 50 steps of Lloyd's algorithm, upscaling
//! is bisection: each step is local and can end well above the best (see [`super::exact`]).
//! Source: Park et al., "Any-Precision LLM", 2024, and the authors' programs.

mod mt19937;
mod seed;
mod split;
mod sums;

use mt19937::Mt19937;
pub use seed::Crossed;

use super::sorted::Sorted;
use sums::Sums;

/// Clusters one group of weights after another.
#[derive(Debug)]
pub struct Reference {
    /// Every group's random numbers start here, so that groups do not depend on each other.
    random: Mt19937,
    sorted: Sorted,
    x: Vec<f32>,
    s: Vec<f32>,
    sums: Sums,
}

impl Reference {
    /// Starts with the random numbers of `seed` for every group.
    pub fn new(seed: u32) -> Reference {
        Reference {
            random: Mt19937::new(seed),
            sorted: Sorted::default(),
            x: Vec::new(),
            s: Vec::new(),
            sums: Sums::default(),
        }
    }

    /// Clusters a group: `luts[i]` gets the centroids of `2^(seed_bits + i)` clusters, each weight the code of
    /// the finest. Weights that are 0 do not count: the reference marks outliers so.
    ///
    /// # Errors
    /// Borders that cross.
    pub fn cluster(
        &mut self,
        weights: &[f32],
        sensitivities: &[f32],
        seed_bits: u8,
        luts: &mut [Vec<f32>],
        codes: &mut [u8],
    ) -> Result<(), Crossed> {
        let start = self.first_centroids(weights, sensitivities, seed_bits);
        self.finish(&start, luts, codes)
    }

    /// The first centroids that `k-means++` draws for a group, in the order in which it draws them.
    pub fn first_centroids(&mut self, weights: &[f32], sensitivities: &[f32], seed_bits: u8) -> Vec<f32> {
        self.load(weights, sensitivities);
        let mut random = self.random.clone();
        seed::plus_plus(&self.x, &self.sums, 1 << seed_bits, &mut random)
    }

    /// [`Reference::cluster`] from given first centroids, in any order.
    ///
    /// # Errors
    /// Borders that cross.
    #[cfg(test)]
    pub fn cluster_from(
        &mut self,
        weights: &[f32],
        sensitivities: &[f32],
        start: &[f32],
        luts: &mut [Vec<f32>],
        codes: &mut [u8],
    ) -> Result<(), Crossed> {
        self.load(weights, sensitivities);
        self.finish(start, luts, codes)
    }

    fn finish(&self, start: &[f32], luts: &mut [Vec<f32>], codes: &mut [u8]) -> Result<(), Crossed> {
        let borders = self.grow(start, luts)?;
        self.label(&borders, codes);
        Ok(())
    }

    fn label(&self, borders: &[usize], codes: &mut [u8]) {
        let mut columns = self.sorted.columns();
        for (code, pair) in borders.windows(2).enumerate() {
            for column in columns.by_ref().take(pair[1] - pair[0]) {
                codes[column] = code as u8;
            }
        }
    }

    fn load(&mut self, weights: &[f32], sensitivities: &[f32]) {
        self.sorted.load(weights);
        let sorted = &self.sorted;
        self.x.clear();
        self.x.extend(sorted.columns().map(|c| weights[c]));
        self.s.clear();
        let counted = |c: usize| {
            if weights[c] == 0.0 { 0.0 } else { sensitivities[c] }
        };
        self.s.extend(sorted.columns().map(counted));
        self.sums.load(&self.x, &self.s);
    }

    fn grow(&self, start: &[f32], luts: &mut [Vec<f32>]) -> Result<Vec<usize>, Crossed> {
        let (centroids, mut borders) = seed::lloyd(&self.x, &self.sums, start)?;
        let mut plain = None;
        let [seed, finer @ ..] = luts else {
            return Ok(borders);
        };
        *seed = centroids;
        let mut parents = &*seed;
        for lut in finer {
            let mut split_borders = Vec::with_capacity(2 * borders.len());
            lut.clear();
            for (pair, &parent) in borders.windows(2).zip(parents) {
                let &[from, to] = pair else { continue };
                let split = split::split(&self.x, &self.sums, &mut plain, from, to, parent);
                split_borders.extend([from, split.border]);
                lut.extend(split.centroids);
            }
            split_borders.extend(borders.last());
            borders = split_borders;
            parents = lut;
        }
        Ok(borders)
    }
}
