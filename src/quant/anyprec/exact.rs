//! Clustering without chance: the best seed clusters, then the best split of each, width after width.

use super::seed::Seeder;
use super::sorted::Sorted;
use super::split;

/// Clusters one group of weights after another.
#[derive(Debug, Default)]
pub struct Exact {
    sorted: Sorted,
    seeder: Seeder,
}

impl Exact {
    /// Clusters a group: `luts[i]` gets the centroids of `2^(seed_bits + i)` clusters, each weight the code of
    /// the finest. Equal weights get equal codes; codes ascend with the weights.
    pub fn cluster(
        &mut self,
        weights: &[f32],
        sensitivities: &[f32],
        seed_bits: u8,
        luts: &mut [Vec<f32>],
        codes: &mut [u8],
    ) {
        self.sorted.load(weights);
        self.sorted.find_runs(weights, sensitivities);
        if self.sorted.runs().iter().all(|r| r.mass == 0.0) {
            self.sorted.weigh_alike();
        }
        let mut borders = Vec::new();
        self.seeder
            .divide(self.sorted.runs(), 1 << seed_bits, &mut borders);
        self.grow(&mut borders, luts);
        for (code, pair) in borders.windows(2).enumerate() {
            self.sorted.label(pair[0]..pair[1], code as u8, codes);
        }
    }

    /// Fills the tables from the borders of the seed clusters, which become those of the finest.
    fn grow(&self, borders: &mut Vec<usize>, luts: &mut [Vec<f32>]) {
        let runs = self.sorted.runs();
        let [seed, finer @ ..] = luts else { return };
        seed.clear();
        let mut last = 0.0;
        for pair in borders.windows(2) {
            let cluster = &runs[pair[0]..pair[1]];
            if let (Some(low), Some(high)) = (cluster.first(), cluster.last()) {
                last = split::mean(cluster).clamp(low.value, high.value) as f32;
            }
            seed.push(last); // an empty cluster repeats the one before
        }
        let mut parents = &*seed;
        for lut in finer {
            lut.clear();
            let mut split_borders = Vec::with_capacity(2 * borders.len());
            for (pair, &parent) in borders.windows(2).zip(parents) {
                let split = split::split(&runs[pair[0]..pair[1]], parent);
                split_borders.extend([pair[0], pair[0] + split.below]);
                lut.extend(split.centroids);
            }
            split_borders.extend(borders.last());
            *borders = split_borders;
            parents = lut;
        }
    }
}
