//! The best division of one cluster into two, found by looking at every border.
//!
//! With moments about the cluster's mean, `A` of the lower part is minus that of the upper, and the division
//! takes `A² P / (P_low P_high)` off the error. Sums start anew in each cluster, so that small masses beside
//! large ones keep their digits. Of equal gains the lowest border wins.

use super::sorted::Run;

/// A cluster cut in two: the border, as the number of runs below it, and the two centroids.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Runs in the lower part; all of them when the cluster is one value.
    pub below: usize,
    /// The centroids.
    pub centroids: [f32; 2],
}

/// The mean of runs, not empty: plain when they have no mass.
pub fn mean(runs: &[Run]) -> f64 {
    let origin = runs[0].value;
    let (mut mass, mut moment) = (0.0, 0.0);
    let (mut count, mut plain) = (0.0, 0.0);
    for r in runs {
        let x = r.value - origin;
        mass += r.mass;
        moment += r.mass * x;
        let n = f64::from(r.count);
        count += n;
        plain += n * x;
    }
    origin + if mass > 0.0 { moment / mass } else { plain / count }
}

/// Splits a cluster whose centroid is `parent`.
pub fn split(runs: &[Run], parent: f32) -> Split {
    let [first, .., last] = runs else {
        // one value, or none: the upper part stays empty
        let centroid = runs.first().map_or(parent, |r| r.value as f32);
        return Split { below: runs.len(), centroids: [centroid; 2] };
    };
    let all_mass: f64 = runs.iter().map(|r| r.mass).sum();
    // Values of no mass beside none or one that has some: only the plain error is left to be made smaller.
    let heavy = runs.iter().filter(|r| r.mass > 0.0).count();
    let weight = |r: &Run| {
        if heavy > 1 { r.mass } else { f64::from(r.count) }
    };
    let total = if heavy > 1 { all_mass } else { runs.iter().map(weight).sum() };
    let moment: f64 = runs.iter().map(|r| weight(r) * (r.value - first.value)).sum();
    let mean_above_first = moment / total;
    let (mut below, mut best) = (1, f64::NEG_INFINITY);
    let (mut mass, mut moment) = (0.0, 0.0);
    for (i, r) in runs[..runs.len() - 1].iter().enumerate() {
        let m = weight(r);
        mass += m;
        moment += m * (r.value - first.value - mean_above_first);
        let product = mass * (total - mass);
        let gain = if product > 0.0 { moment * moment / product } else { 0.0 };
        if gain > best {
            (below, best) = (i + 1, gain);
        }
    }
    let (low, high) = runs.split_at(below);
    let weightless = |runs: &[Run]| runs.iter().all(|r| r.mass == 0.0);
    let centroid = |runs: &[Run], other: &[Run]| {
        if weightless(other) && !weightless(runs) {
            parent // the mean of the mass has not moved
        } else {
            mean(runs).clamp(first.value, last.value) as f32
        }
    };
    Split { below, centroids: [centroid(low, high), centroid(high, low)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(points: &[(f64, f64)]) -> Vec<Run> {
        let run = |(&(value, mass), start)| Run { value, mass, start, count: 1 };
        points.iter().zip(0..).map(run).collect()
    }

    #[test]
    fn ties_go_to_the_lowest_border() {
        let s = split(&runs(&[(-1.0, 1.0), (0.0, 1.0), (1.0, 1.0)]), 0.0);
        assert_eq!((s.below, s.centroids), (1, [-1.0, 0.5]));
    }

    #[test]
    fn one_value_stays_whole() {
        let s = split(&runs(&[(0.25, 3.0)]), 0.5);
        assert_eq!((s.below, s.centroids), (1, [0.25, 0.25]));
        let s = split(&[], 0.5);
        assert_eq!((s.below, s.centroids), (0, [0.5, 0.5]));
    }

    #[test]
    fn weightless_clusters_are_split_plainly() {
        let s = split(&runs(&[(0.0, 0.0), (1.0, 0.0), (10.0, 0.0), (11.0, 0.0)]), 5.5);
        assert_eq!((s.below, s.centroids), (2, [0.5, 10.5]));
        let s = split(&runs(&[(0.0, 0.0), (1.0, 0.0), (10.0, 2.0)]), 10.0);
        assert_eq!((s.below, s.centroids), (2, [0.5, 10.0]));
    }

    #[test]
    fn small_masses_beside_large_ones_count() {
        let s = split(&runs(&[(1.0, 1e-30), (2.0, 1e-30), (4.0, 1e-30), (4.5, 1e-30)]), 2.875);
        assert_eq!((s.below, s.centroids), (2, [1.5, 4.25]));
    }
}
