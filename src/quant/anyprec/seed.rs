//! The best division of sorted weights into `k` clusters: weighted k-means in one dimension, solved exactly.
//!
//! A cluster of runs `i..j` with mass `P`, moment `A = Σ s x` and energy `B = Σ s x²` costs `B − A²/P` when it
//! is replaced by its mean. The energy is the same for every division, so the best one has the largest sum of
//! `A²/P`. With `T_c(j)` the largest such sum of the first `j` points in `c` clusters,
//!
//! ```text
//! T_1(j) = A(0,j)² / P(0,j)        T_c(j) = max over i < j of T_{c-1}(i) + A(i,j)² / P(i,j)
//! ```
//!
//! The best `i` never moves left when `j` or `c` grows, which leaves `O(k m log m)` terms of the maximum to be
//! looked at for `m` points. Moments are taken about the median to keep digits; of equal sums the lowest `i`
//! wins. Only points of positive mass take part.

use super::sorted::Run;

/// Room for the tables, kept between groups.
#[derive(Debug, Default)]
pub struct Seeder {
    points: Vec<usize>,
    mass: Vec<f64>,
    moment: Vec<f64>,
    /// `T_{c-1}` and `T_c`.
    before: Vec<f64>,
    now: Vec<f64>,
    /// For each `c` and `j` the best `i`.
    choice: Vec<u32>,
}

impl Seeder {
    /// Divides the runs into `k` clusters: cluster `c` has the runs `borders[c]..borders[c+1]`. Clusters are
    /// empty only when fewer than `k` values have mass, and those come last. Runs without mass go to the
    /// nearer mean, the upper one when it is as near.
    pub fn divide(&mut self, runs: &[Run], k: usize, borders: &mut Vec<usize>) {
        self.points.clear();
        self.points.extend((0..runs.len()).filter(|&r| runs[r].mass > 0.0));
        let m = self.points.len();
        // point numbers first: cluster c has the points borders[c]..borders[c+1]
        borders.clear();
        if m <= k {
            borders.extend((0..=k).map(|c| c.min(m)));
        } else {
            self.sum_up(runs);
            self.fill_tables(k);
            borders.resize(k + 1, m);
            let mut end = m;
            for c in (1..k).rev() {
                end = self.choice[c * (m + 1) + end] as usize;
                borders[c] = end;
            }
            borders[0] = 0;
        }
        self.to_runs(runs, borders);
    }

    /// Sums over the first points of mass and of moment about the median.
    fn sum_up(&mut self, runs: &[Run]) {
        let median = runs[self.points[self.points.len() / 2]].value;
        self.mass.clear();
        self.moment.clear();
        let (mut mass, mut moment) = (0.0, 0.0);
        self.mass.push(mass);
        self.moment.push(moment);
        for &r in &self.points {
            mass += runs[r].mass;
            moment += runs[r].mass * (runs[r].value - median);
            self.mass.push(mass);
            self.moment.push(moment);
        }
    }

    /// `T_c` and the choices for all `c` up to `k`; of the last only what the whole needs.
    fn fill_tables(&mut self, k: usize) {
        let m = self.points.len();
        self.now.clear();
        self.now.extend(self.mass.iter().zip(&self.moment).map(|(&p, &a)| explained(a, p)));
        self.before.resize(m + 1, 0.0);
        self.choice.clear();
        self.choice.resize(k * (m + 1), 0);
        for c in 1..k {
            std::mem::swap(&mut self.before, &mut self.now);
            let (done, row) = self.choice.split_at_mut(c * (m + 1));
            let mut layer = Layer {
                clusters: c,
                mass: &self.mass,
                moment: &self.moment,
                before: &self.before,
                now: &mut self.now,
                choice_before: &done[(c - 1) * (m + 1)..],
                choice: &mut row[..m + 1],
            };
            if c + 1 == k {
                layer.solve(m, c, m - 1);
            } else {
                // the last k - 1 - c points are taken by the clusters after this
                layer.solve_all(c + 1, m - (k - 1 - c), c, m - 1);
            }
        }
    }

    /// Turns point numbers into run numbers.
    fn to_runs(&self, runs: &[Run], borders: &mut [usize]) {
        let k = borders.len() - 1;
        let mut means = vec![0.0; k];
        for c in 0..k {
            let points = &self.points[borders[c]..borders[c + 1]];
            let mass: f64 = points.iter().map(|&r| runs[r].mass).sum();
            let moment: f64 = points.iter().map(|&r| runs[r].mass * runs[r].value).sum();
            means[c] = moment / mass;
        }
        let n = self.points.len();
        for c in 1..k {
            borders[c] = if borders[c] == n {
                runs.len()
            } else {
                let first = self.points[borders[c]];
                let last = self.points[borders[c] - 1];
                let middle = (means[c - 1] + means[c]) / 2.0;
                let between = &runs[last + 1..first];
                last + 1 + between.partition_point(|r| r.value < middle)
            };
        }
        borders[0] = 0;
        borders[k] = runs.len();
    }
}

/// The energy that remains when a cluster is replaced by its mean; 0 without mass.
fn explained(moment: f64, mass: f64) -> f64 {
    if mass > 0.0 { moment * moment / mass } else { 0.0 }
}

/// One step from `clusters` to `clusters + 1`.
struct Layer<'a> {
    clusters: usize,
    mass: &'a [f64],
    moment: &'a [f64],
    before: &'a [f64],
    now: &'a mut [f64],
    choice_before: &'a [u32],
    choice: &'a mut [u32],
}

impl Layer<'_> {
    /// Solves for `from..=to`, whose best choices are known to lie in `low..=high`.
    fn solve_all(&mut self, from: usize, to: usize, low: usize, high: usize) {
        let middle = from + (to - from) / 2;
        let best = self.solve(middle, low, high);
        if from < middle {
            self.solve_all(from, middle - 1, low, best);
        }
        if middle < to {
            self.solve_all(middle + 1, to, best, high);
        }
    }

    /// Solves for the first `j` points with the last cluster starting in `low..=high`.
    fn solve(&mut self, j: usize, low: usize, high: usize) -> usize {
        let low = low.max(self.clusters).max(self.choice_before[j] as usize);
        let high = high.min(j - 1);
        let (best, value) = self.best(j, low.min(high), high);
        self.now[j] = value;
        self.choice[j] = best as u32;
        best
    }

    /// The lowest `i` in `low..=high` with the largest sum, and that sum.
    fn best(&self, j: usize, low: usize, high: usize) -> (usize, f64) {
        let (mass, moment) = (self.mass[j], self.moment[j]);
        let sum = |before_i: f64, mass_i: f64, moment_i: f64| {
            let (p, a) = (mass - mass_i, moment - moment_i);
            let term = a * a / p;
            // Masses far apart can leave a difference of 0 although every point has some.
            before_i + if p > 0.0 { term } else { 0.0 }
        };
        let (befores, befores_left) = self.before[low..=high].as_chunks::<BLOCK>();
        let (masses, masses_left) = self.mass[low..=high].as_chunks::<BLOCK>();
        let (moments, moments_left) = self.moment[low..=high].as_chunks::<BLOCK>();
        let mut best = (low, f64::NEG_INFINITY);
        for (block, ((t, p), a)) in befores.iter().zip(masses).zip(moments).enumerate() {
            let sums: [f64; BLOCK] = std::array::from_fn(|i| sum(t[i], p[i], a[i]));
            let top = top(&sums);
            if top > best.1 {
                let place = sums.iter().position(|&s| s == top).unwrap_or(0);
                best = (low + block * BLOCK + place, top);
            }
        }
        let left = befores_left.iter().zip(masses_left).zip(moments_left);
        for (i, ((&t, &p), &a)) in (low + befores.len() * BLOCK..).zip(left) {
            let s = sum(t, p, a);
            if s > best.1 {
                best = (i, s);
            }
        }
        best
    }
}

/// Sums that are computed together.
const BLOCK: usize = 8;

/// The largest of a block, in the shape that compiles to vector code.
fn top(sums: &[f64; BLOCK]) -> f64 {
    let larger = |a: f64, b: f64| if a > b { a } else { b };
    let four: [f64; 4] = std::array::from_fn(|i| larger(sums[i], sums[i + 4]));
    larger(larger(four[0], four[2]), larger(four[1], four[3]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(points: &[(f64, f64)]) -> Vec<Run> {
        let run = |(&(value, mass), start)| Run { value, mass, start, count: 1 };
        points.iter().zip(0..).map(run).collect()
    }

    fn divide(runs: &[Run], k: usize) -> Vec<usize> {
        let mut borders = Vec::new();
        Seeder::default().divide(runs, k, &mut borders);
        borders
    }

    fn cost(runs: &[Run]) -> f64 {
        let mass: f64 = runs.iter().map(|r| r.mass).sum();
        let mean = runs.iter().map(|r| r.mass * r.value).sum::<f64>() / mass;
        let term = |r: &Run| r.mass * (r.value - mean) * (r.value - mean);
        if mass > 0.0 { runs.iter().map(term).sum() } else { 0.0 }
    }

    /// The least cost of `k` clusters, by trying all.
    fn brute_force(runs: &[Run], k: usize) -> f64 {
        if k == 1 {
            return cost(runs);
        }
        let first = (0..=runs.len()).map(|i| cost(&runs[..i]) + brute_force(&runs[i..], k - 1));
        first.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn as_good_as_trying_all() {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for round in 0..300 {
            let n = 1 + random(12) as usize;
            let mut value = -3.0;
            let points: Vec<(f64, f64)> = (0..n)
                .map(|_| {
                    value += 0.25 * (1 + random(9)) as f64;
                    (value, random(5) as f64)
                })
                .collect();
            let runs = runs(&points);
            for k in [1, 2, 4] {
                let borders = divide(&runs, k);
                assert_eq!((borders[0], borders[k]), (0, n));
                let got: f64 = borders.windows(2).map(|p| cost(&runs[p[0]..p[1]])).sum();
                let want = brute_force(&runs, k);
                assert!(
                    (got - want).abs() <= 1e-12 * (1.0 + want),
                    "round {round}, {k} clusters of {points:?}: {got}, {want}"
                );
            }
        }
    }

    #[test]
    fn ties_go_to_the_lowest_border() {
        let points: Vec<(f64, f64)> = (0..6).map(|i| (f64::from(i), 1.0)).collect();
        // sizes 1, 1, 2, 2 in any order cost the same
        assert_eq!(divide(&runs(&points), 4), [0, 1, 2, 4, 6]);
    }

    #[test]
    fn few_values_fill_the_first_clusters() {
        assert_eq!(divide(&runs(&[(-1.0, 1.0), (0.0, 0.0), (2.0, 1.0)]), 4), [0, 2, 3, 3, 3]);
        assert_eq!(divide(&runs(&[(5.0, 1.0)]), 2), [0, 1, 1]);
    }

    #[test]
    fn masses_decades_apart() {
        let points = [(0.0, 1e6), (1.0, 1e-30), (2.0, 1e-30), (3.0, 1e6), (4.0, 1.0)];
        // what the light ones cost is below the last digit of the whole: the lowest border wins
        assert_eq!(divide(&runs(&points), 2), [0, 1, 5]);
        assert_eq!(divide(&runs(&points), 4), [0, 1, 2, 4, 5]);
    }
}
