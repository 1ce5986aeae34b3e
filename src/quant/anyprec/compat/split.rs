//! The reference's upscaling: each cluster is divided by bisection at a border that Lloyd's algorithm would keep.

use super::sums::Sums;

/// A cluster `from..to` of sorted weights cut in two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Where the upper part begins.
    pub border: usize,
    /// The centroids.
    pub centroids: [f32; 2],
}

/// Splits the cluster `from..to` of sorted weights whose centroid is `parent`. `plain` are the sums with
/// every sensitivity 1, made when needed.
pub fn split(x: &[f32], sums: &Sums, plain: &mut Option<Sums>, from: usize, to: usize, parent: f32) -> Split {
    match to - from {
        0 => {
            return Split { border: from, centroids: [parent; 2] };
        }
        1 => {
            return Split { border: to, centroids: [x[from]; 2] };
        }
        2 => {
            return Split { border: from + 1, centroids: [x[from], x[from + 1]] };
        }
        _ => {}
    }
    let total = sums.mass(from, to);
    if total == 0.0 {
        let plain = plain.get_or_insert_with(|| {
            let mut sums = Sums::default();
            sums.load_plain(x);
            sums
        });
        return bisect(x, plain, [from, to], [from + 1, to - 1]);
    }
    let masses = &sums.masses()[from..to];
    let all = masses[masses.len() - 1];
    let last = from + masses.partition_point(|&p| p < all);
    if total == sums.mass(last, last + 1) {
        // nothing but the last weight counts
        return Split { border: to, centroids: [x[last]; 2] };
    }
    let none = sums.mass(0, from);
    let first = from + masses.partition_point(|&p| p <= none);
    bisect(x, sums, [from, to], [first + 1, last])
}

fn bisect(x: &[f32], sums: &Sums, [from, to]: [usize; 2], bounds: [usize; 2]) -> Split {
    let means = |border| {
        let mean = |from, to| sums.moment(from, to) / sums.mass(from, to);
        [mean(from, border), mean(border, to)]
    };
    let [mut floor, mut ceiling] = bounds;
    while floor < ceiling {
        let border = (floor + ceiling) / 2;
        let [low, high] = means(border);
        let middle = (low + high) / 2.0;
        if f64::from(x[border - 1]) > middle {
            ceiling = floor.max(border - 1);
        } else if middle <= f64::from(x[border]) {
            break;
        } else {
            floor = border + 1;
        }
    }
    let border = (floor + ceiling) / 2;
    Split { border, centroids: means(border).map(|m| m as f32) }
}
