//! The reference's seed clusters: greedy k-means++ and Lloyd's algorithm on sorted weights.
//!
//! Borders, potentials and means come from prefix sums in f64; centroids are kept in f32. The rounding of
//! every step is the reference's (flash1dkmeans 0.2.5 under numba), and the random numbers are drawn in its
//! order: one for the first centroid, then the selectors of all candidates of a centroid at once.

use super::mt19937::Mt19937;
use super::sums::Sums;

/// Most steps of Lloyd's algorithm.
pub const MAX_STEPS: usize = 50;

/// Two borders have crossed: rounding has put centroids out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossed;

/// Candidates per centroid: 2 + ⌊ln k⌋, for `k` a power of two up to 256.
fn trials(k: usize) -> usize {
    2 + [0, 0, 1, 2, 2, 3, 4, 4, 5][k.ilog2() as usize]
}

/// Draws `k` of the weights `x` as first centroids, in the order in which they are drawn.
pub fn plus_plus(x: &[f32], sums: &Sums, k: usize, random: &mut Mt19937) -> Vec<f32> {
    let n = x.len();
    let first = random.next_f64() * sums.mass(0, n);
    let first = sums.masses().partition_point(|&p| p < first);
    let mut centroids = Vec::with_capacity(k);
    centroids.push(x[first.min(n - 1)]);
    let mut sorted = Vec::with_capacity(k);
    let mut borders = Vec::with_capacity(k + 1);
    while centroids.len() < k {
        sort_into(&centroids, &mut sorted);
        find_borders(x, &sorted, &mut borders);
        let total = potential(&sorted, &borders, sums, n);
        let selectors: Vec<f64> = (0..trials(k)).map(|_| random.next_f64() * total).collect();
        let candidates: Vec<f32> =
            selectors.iter().map(|&selector| x[select(selector, &sorted, &borders, sums) - 1]).collect();
        let mut best = (f64::INFINITY, candidates[0]);
        for &candidate in &candidates {
            centroids.push(candidate);
            sort_into(&centroids, &mut sorted);
            centroids.pop();
            find_borders(x, &sorted, &mut borders);
            let value = potential(&sorted, &borders, sums, n);
            if value < best.0 {
                best = (value, candidate);
            }
        }
        centroids.push(best.1);
    }
    centroids
}

fn sort_into(centroids: &[f32], sorted: &mut Vec<f32>) {
    sorted.clear();
    sorted.extend_from_slice(centroids);
    sorted.sort_by(f32::total_cmp);
}

/// How many weights it takes for the potential to reach `selector`.
fn select(selector: f64, centroids: &[f32], borders: &[usize], sums: &Sums) -> usize {
    let (mut floor, mut ceiling) = (1, sums.len());
    while floor < ceiling {
        let middle = (floor + ceiling) / 2;
        if potential(centroids, borders, sums, middle) < selector {
            floor = middle + 1;
        } else {
            ceiling = middle;
        }
    }
    floor
}

/// Where the weights nearest to each sorted centroid begin; one in the middle belongs to the upper.
fn find_borders(x: &[f32], centroids: &[f32], borders: &mut Vec<usize>) {
    borders.clear();
    borders.push(0);
    for pair in centroids.windows(2) {
        let middle = f64::from(pair[0] + pair[1]) / 2.0;
        borders.push(x.partition_point(|&x| f64::from(x) < middle));
    }
    borders.push(x.len());
}

/// The weighted squared distance of the first `end` weights to their centroids.
fn potential(centroids: &[f32], borders: &[usize], sums: &Sums, end: usize) -> f64 {
    let mut potential = 0.0;
    for (i, &c) in centroids.iter().enumerate() {
        let (from, to) = (borders[i], borders[i + 1].min(end));
        if from >= end {
            break;
        }
        if from == to {
            continue;
        }
        let square = c * c; // rounded to f32
        potential += sums.energy(from, to) - 2.0 * f64::from(c) * sums.moment(from, to)
            + f64::from(square) * sums.mass(from, to);
    }
    potential
}

/// Moves centroids to the means of what is nearest to them until the borders stay. Returns the centroids in
/// ascending order of where they started, and the borders of their clusters.
///
/// # Errors
/// Borders that cross.
pub fn lloyd(x: &[f32], sums: &Sums, start: &[f32]) -> Result<(Vec<f32>, Vec<usize>), Crossed> {
    let mut centroids = Vec::new();
    sort_into(start, &mut centroids);
    let mut borders = Vec::new();
    let mut next = Vec::new();
    for _ in 0..MAX_STEPS {
        find_borders(x, &centroids, &mut next);
        if next == borders {
            break;
        }
        std::mem::swap(&mut borders, &mut next);
        for (c, pair) in centroids.iter_mut().zip(borders.windows(2)) {
            let &[from, to] = pair else { continue };
            if to < from {
                return Err(Crossed);
            }
            if from == to {
                continue; // an empty cluster's centroid stays where it was
            }
            let mass = sums.mass(from, to);
            *c = if mass == 0.0 { plain_mean(&x[from..to]) } else { (sums.moment(from, to) / mass) as f32 };
        }
    }
    Ok((centroids, borders))
}

/// The mean with a sum in f32.
fn plain_mean(x: &[f32]) -> f32 {
    let sum: f32 = x.iter().fold(0.0, |sum, &x| sum + x);
    (f64::from(sum) / x.len() as f64) as f32
}
