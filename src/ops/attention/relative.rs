//! Biases of scores by distance (T5, Raffel and others 2020).

use crate::math::{log, logf};

/// From this distance on all have one bias.
const FAR: f64 = 128.0;

/// Numbers that are added to the scores of a layer, by head and by bucket of the distance: short distances have a
/// bucket each, longer ones share them by their logarithm, and those ahead have others than those back.
#[derive(Clone, Debug)]
pub struct Relative {
    /// Query heads.
    pub heads: usize,
    /// `[buckets][heads]`, of an even number of buckets, at least four.
    pub biases: Vec<f32>,
}

impl Relative {
    /// The biases of all heads in a sequence of `cells` positions, by the distance of a cell from the query: the last one
    /// back first, that of the query itself at `cells - 1`.
    pub fn by_distance(&self, cells: usize) -> Vec<&[f32]> {
        let last = cells.saturating_sub(1);
        (0..cells + last).map(|cell| self.of(last, cell)).collect()
    }

    /// The biases of all heads for the cell at position `cell`, which the query at `position` attends to.
    fn of(&self, position: usize, cell: usize) -> &[f32] {
        let bucket = bucket(self.biases.len() / self.heads, position.abs_diff(cell), cell > position);
        &self.biases[bucket * self.heads..][..self.heads]
    }
}

/// The bucket of a distance, below `buckets` (llama.cpp `llama_relative_position_bucket`): half of those of one
/// direction are of one distance each; the quotient of logarithms is `f32` over `f64`.
fn bucket(buckets: usize, distance: usize, ahead: bool) -> usize {
    let own = buckets / 2;
    let exact = own / 2;
    let first = if ahead { own } else { 0 };
    if distance < exact {
        return first + distance;
    }
    let exact_f64 = exact as f64;
    let shared = logf((distance as f64 / exact_f64) as f32) * (own - exact) as f32;
    let place = (exact_f64 + f64::from(shared) / log(FAR / exact_f64)) as f32;
    first + (place.floor() as usize).min(own - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_distances_have_buckets_of_their_own_and_far_ones_share() {
        let back: Vec<usize> = [0, 1, 7, 8, 11, 12, 16, 32, 64, 127, 128, 9999].map(|d| bucket(32, d, false)).into();
        assert_eq!(back, [0, 1, 7, 8, 8, 9, 10, 12, 14, 15, 15, 15]);
        let ahead: Vec<usize> = [1, 8, 9999].map(|d| bucket(32, d, true)).into();
        assert_eq!(ahead, [17, 24, 31]);
    }

    #[test]
    fn heads_have_biases_of_their_own() {
        let relative = Relative { heads: 2, biases: (0..8).map(|i| i as f32).collect() };
        assert_eq!(relative.of(5, 5), [0.0, 1.0]);
        assert_eq!(relative.of(5, 4), [2.0, 3.0]);
        assert_eq!(relative.of(5, 300), [6.0, 7.0]);
        assert_eq!(relative.by_distance(2), [[2.0, 3.0], [0.0, 1.0], [6.0, 7.0]]);
        assert!(relative.by_distance(0).is_empty());
    }
}
