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

/// The same where queries attend backwards alone: all buckets, fewer than 256, are those of distances back.
#[derive(Clone, Debug)]
pub struct RelativeBack {
    /// The biases by distance, as far as these differ, head by head; all greater distances have the last one.
    by_distance: Vec<Vec<f32>>,
}

impl RelativeBack {
    /// The buckets of `relative`.
    pub fn new(relative: &Relative) -> RelativeBack {
        let Relative { heads, biases } = relative;
        let buckets = biases.len() / heads;
        let of = |head: usize| move |distance: usize| biases[back(buckets, distance) * heads + head];
        RelativeBack { by_distance: (0..*heads).map(|head| (0..=FAR as usize).map(of(head)).collect()).collect() }
    }

    /// The bias of a head for a cell that many positions back.
    pub fn of(&self, head: usize, distance: usize) -> f32 {
        self.by_distance[head][distance.min(FAR as usize)]
    }
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

/// The bucket of a distance, below `buckets`, of which each direction has half.
fn bucket(buckets: usize, distance: usize, ahead: bool) -> usize {
    let own = buckets / 2;
    back(own, distance) + if ahead { own } else { 0 }
}

/// The bucket of a distance in one direction, which has so many (llama.cpp `llama_relative_position_bucket`): half of
/// them are of one distance each; the quotient of logarithms is `f32` over `f64`.
fn back(own: usize, distance: usize) -> usize {
    let exact = own / 2;
    if distance < exact {
        return distance;
    }
    let exact_f64 = exact as f64;
    let shared = logf((distance as f64 / exact_f64) as f32) * (own - exact) as f32;
    let place = (exact_f64 + f64::from(shared) / log(FAR / exact_f64)) as f32;
    (place.floor() as usize).min(own - 1)
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
    fn all_buckets_are_of_distances_back_where_none_are_ahead() {
        let relative = Relative { heads: 1, biases: (0..32).map(|i| i as f32).collect() };
        let of = |distance: usize| RelativeBack::new(&relative).of(0, distance);
        assert_eq!(
            [0, 1, 15, 16, 20, 40, 100, 127, 128, 9999].map(of),
            [0, 1, 15, 16, 17, 23, 30, 31, 31, 31].map(|n| n as f32)
        );
        for distance in 0..1000 {
            assert_eq!(of(distance), back(32, distance) as f32);
        }
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
