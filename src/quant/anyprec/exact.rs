//! Clustering without chance: the best clusters of one width, then the best split of each, width after width. Where
//! that is not the narrowest width, narrower codes join pairs of clusters.

use super::seed::Seeder;
use super::sorted::Sorted;
use super::split;

/// Clusters one group of weights after another.
#[derive(Debug)]
pub struct Exact {
    /// The width whose clusters are the best there are.
    best_bits: u8,
    sorted: Sorted,
    seeder: Seeder,
}

impl Exact {
    /// The best clusters are those of `best_bits` bits.
    pub fn best_at(best_bits: u8) -> Exact {
        Exact { best_bits, sorted: Sorted::default(), seeder: Seeder::default() }
    }

    /// Clusters a group: `luts[i]` gets the centroids of `2^(seed_bits + i)` clusters, each weight the code of
    /// the finest. Equal weights get equal codes; codes ascend with the weights. The best width is one of these.
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
        self.seeder.divide(self.sorted.runs(), 1 << self.best_bits, &mut borders);
        let joins = usize::from(self.best_bits - seed_bits);
        let (narrower, rest) = luts.split_at_mut(joins);
        for (i, lut) in narrower.iter_mut().enumerate() {
            let wide: Vec<usize> = borders.iter().copied().step_by(1 << (joins - i)).collect();
            self.means(&wide, lut);
        }
        self.grow(&mut borders, rest);
        for (code, pair) in borders.windows(2).enumerate() {
            self.sorted.label(pair[0]..pair[1], code as u8, codes);
        }
    }

    /// The centroids of the clusters between `borders`.
    fn means(&self, borders: &[usize], lut: &mut Vec<f32>) {
        lut.clear();
        let mut last = 0.0;
        for pair in borders.windows(2) {
            let cluster = &self.sorted.runs()[pair[0]..pair[1]];
            if let (Some(low), Some(high)) = (cluster.first(), cluster.last()) {
                last = split::mean(cluster).clamp(low.value, high.value) as f32;
            }
            lut.push(last); // an empty cluster repeats the one before
        }
    }

    /// Fills the tables from the borders of the first, which become those of the finest.
    fn grow(&self, borders: &mut Vec<usize>, luts: &mut [Vec<f32>]) {
        let runs = self.sorted.runs();
        let [first, finer @ ..] = luts else { return };
        self.means(borders, first);
        let mut parents = &*first;
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
