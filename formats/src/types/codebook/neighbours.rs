//! From codes to the points of a codebook: the point itself, or the points around.
//!
//! Source: ggml `iq2xs_init_impl`, `iq3xs_init_impl`, `iq2_find_best_neighbour`, `iq3_find_best_neighbour`.

use super::code_bits;
use crate::types::lanes::{LANES, Simd, Vector};

/// A codebook as encoders search it. In the search a coordinate with code `l` has the value `2 l + 1`.
pub(in crate::types) struct Codebook<const N: usize> {
    /// The coordinates of each point; those beyond `N` are zero.
    odd: Vec<[f32; 8]>,
    /// By the packed codes of a place: the point that lies there, or else the complement of where its neighbours are in
    /// `lists`.
    places: Vec<i32>,
    /// For each place without a point the number of its neighbours, then these.
    lists: Vec<u16>,
}

/// What is at a place.
pub(super) enum Place<'a> {
    /// This point.
    Point(u16),
    /// Nothing; these points are nearest.
    Between(&'a [u16]),
}

impl<const N: usize> Codebook<N> {
    /// Makes the tables. The neighbours of a place are all points with the `shells` smallest distances to it, nearest
    /// first and those as near in the order of the codebook; `top` is the largest code.
    pub fn new(points: &[u16], top: u16, shells: usize) -> Self {
        let bits = code_bits(N);
        let codes = |packed: u16| -> [u16; N] {
            std::array::from_fn(|i| packed >> (bits * i) & ((1 << bits) - 1))
        };
        let unpacked: Vec<[u16; N]> = points.iter().map(|&p| codes(p)).collect();
        let odd = unpacked
            .iter()
            .map(|codes| {
                std::array::from_fn(|i| codes.get(i).map_or(0.0, |&l| f32::from(2 * l + 1)))
            })
            .collect();
        let last = (0..N).fold(0, |all, i| all | usize::from(top) << (bits * i));
        let mut places = vec![0; last + 1];
        let mut lists = Vec::new();
        let mut distances = vec![0; points.len()];
        for (packed, place) in places.iter_mut().enumerate() {
            let here = codes(packed as u16);
            if here.iter().any(|&l| l > top) {
                continue;
            }
            if let Ok(point) = points.binary_search(&(packed as u16)) {
                *place = point as i32;
                continue;
            }
            *place = !(lists.len() as i32);
            for (distance, point) in distances.iter_mut().zip(&unpacked) {
                let differences = here.iter().zip(point).map(|(a, b)| a.abs_diff(*b));
                *distance = differences.map(|d| u32::from(d) * u32::from(d)).sum();
            }
            let head = lists.len();
            lists.push(0);
            let mut inner = None;
            for _ in 0..shells {
                let beyond = distances
                    .iter()
                    .filter(|&&d| inner.is_none_or(|inner| d > inner));
                let Some(&shell) = beyond.min() else { break };
                let on_shell = distances.iter().enumerate().filter(|&(_, &d)| d == shell);
                lists.extend(on_shell.map(|(point, _)| point as u16));
                inner = Some(shell);
            }
            lists[head] = (lists.len() - head - 1) as u16;
        }
        Codebook { odd, places, lists }
    }

    /// The coordinates of all points.
    #[inline(always)]
    pub fn values(&self) -> &[[f32; 8]] {
        &self.odd
    }

    /// What is at a place whose codes are packed as a codebook's are, none of them above the largest.
    #[inline(always)]
    pub(super) fn at(&self, packed: usize) -> Place<'_> {
        let place = self.places[packed];
        if place >= 0 {
            return Place::Point(place as u16);
        }
        let head = !place as usize;
        let count = usize::from(self.lists[head]);
        Place::Between(&self.lists[head + 1..][..count])
    }
}

/// Of `points` the one with the least `sum of weight * (scale * value - x)^2`, the first of equals; `values` are the
/// coordinates of all points, of which `N` count.
///
/// Where no sum is a number, for which the reference ends the program, it is the first point.
#[inline(always)]
pub(super) fn nearest<S: Simd, const N: usize>(
    simd: S,
    points: &[u16],
    values: &[[f32; 8]],
    (x, weight): (&[f32; N], &[f32; N]),
    scale: f32,
) -> u16 {
    let scale = simd.splat(scale);
    let mut best = (f32::MAX, points[0]);
    for some in points.chunks(LANES) {
        let mut rows = [&[0.0; 8]; LANES];
        for (row, point) in rows.iter_mut().zip(some) {
            *row = &values[usize::from(*point)];
        }
        let columns = simd.columns(rows);
        let mut sums = simd.splat(0.0);
        for i in 0..N {
            let difference = scale * columns[i] - simd.splat(x[i]);
            sums = sums + simd.splat(weight[i]) * difference * difference;
        }
        for (point, sum) in some.iter().zip(sums.to_array()) {
            if sum < best.0 {
                best = (sum, *point);
            }
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::lanes::Portable;

    #[test]
    fn neighbours_come_shell_by_shell() {
        // Four coordinates of three bits, the first in the low bits.
        let pack = |c: [u16; 4]| c[0] | c[1] << 3 | c[2] << 6 | c[3] << 9;
        let far = [[3, 0, 0, 0], [7, 7, 7, 7]];
        let mut points = [[0, 0, 0, 0], [2, 0, 0, 0], [1, 1, 0, 0], far[0], far[1]].map(pack);
        points.sort_unstable();
        let place = |c| points.binary_search(&pack(c)).unwrap() as u16;
        let book = Codebook::<4>::new(&points, 7, 2);
        let at = |c| book.at(usize::from(pack(c)));
        assert!(matches!(at([2, 0, 0, 0]), Place::Point(p) if p == place([2, 0, 0, 0])));
        let Place::Between(around) = at([1, 0, 0, 0]) else {
            panic!("no point is here");
        };
        let mut near = [[0, 0, 0, 0], [2, 0, 0, 0], [1, 1, 0, 0]].map(place);
        near.sort_unstable();
        assert_eq!(around, [&near[..], &[place(far[0])]].concat());
        let (x, weight) = ([2.9, 2.8, 1.1, 1.0], [1.0; 4]);
        let nearest = nearest(Portable, around, book.values(), (&x, &weight), 1.0);
        assert_eq!(nearest, place([1, 1, 0, 0]));
        assert_eq!(
            book.values()[usize::from(nearest)][..4],
            [3.0, 3.0, 1.0, 1.0]
        );
    }
}
