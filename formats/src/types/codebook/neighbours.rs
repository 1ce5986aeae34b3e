//! From codes to the points of a codebook: the point itself, or the points around.
//!
//! Source: ggml `iq2xs_init_impl`, `iq3xs_init_impl`, `iq2_find_best_neighbour`, `iq3_find_best_neighbour`.

use super::code_bits;
use crate::types::lanes::{LANES, Simd, Vector};

/// A codebook as encoders search it. In the search a coordinate with code `l` has the value `2 l + 1`.
pub(in crate::types) struct Codebook<const N: usize> {
    /// The coordinates of each point.
    values: Vec<[f32; N]>,
    /// By the packed codes of a place: the point that lies there, or else the complement of its place in `ends`.
    places: Vec<i32>,
    /// Where in `around` the neighbours of a place without a point begin and end.
    ends: Vec<(u32, u32)>,
    around: Vec<Sixteen<N>>,
}

/// Up to sixteen points side by side; the last is repeated where there are fewer.
pub(super) struct Sixteen<const N: usize> {
    points: [u16; LANES],
    /// Values, `[coordinate][point]`.
    values: [[f32; LANES]; N],
}

/// The points of a codebook that are nearest to a place.
pub(super) enum Nearest<'a, const N: usize> {
    /// The point that lies there.
    Point(u16),
    /// The points around a place without one.
    Between(&'a [Sixteen<N>]),
}

impl<const N: usize> Codebook<N> {
    /// Makes the tables. The neighbours of a place are all points with the `shells` smallest distances to it, nearest
    /// first and those as near in the order of the codebook; `top` is the largest code.
    pub fn new(points: &[u16], top: u16, shells: usize) -> Self {
        let bits = code_bits(N);
        let codes = |packed: u16| -> [u16; N] { std::array::from_fn(|i| packed >> (bits * i) & ((1 << bits) - 1)) };
        let unpacked: Vec<[u16; N]> = points.iter().map(|&p| codes(p)).collect();
        let odd = |codes: &[u16; N]| codes.map(|l| f32::from(2 * l + 1));
        let last = (0..N).fold(0, |all, i| all | usize::from(top) << (bits * i));
        let mut book = Codebook {
            values: unpacked.iter().map(odd).collect(),
            places: vec![0; last + 1],
            ends: Vec::new(),
            around: Vec::new(),
        };
        let mut distances = vec![0; points.len()];
        let mut near = Vec::new();
        for packed in 0..=last {
            let here = codes(packed as u16);
            if here.iter().any(|&l| l > top) {
                continue;
            }
            if let Ok(point) = points.binary_search(&(packed as u16)) {
                book.places[packed] = point as i32;
                continue;
            }
            for (distance, point) in distances.iter_mut().zip(&unpacked) {
                let differences = here.iter().zip(point).map(|(a, b)| a.abs_diff(*b));
                *distance = differences.map(|d| u32::from(d) * u32::from(d)).sum();
            }
            near.clear();
            let mut inner = None;
            for _ in 0..shells {
                let beyond = distances.iter().filter(|&&d| inner.is_none_or(|inner| d > inner));
                let Some(&shell) = beyond.min() else { break };
                let on_shell = distances.iter().enumerate().filter(|&(_, &d)| d == shell);
                near.extend(on_shell.map(|(point, _)| point as u16));
                inner = Some(shell);
            }
            book.places[packed] = !(book.ends.len() as i32);
            let begin = book.around.len() as u32;
            for some in near.chunks(LANES) {
                let sixteen = book.side_by_side(some);
                book.around.push(sixteen);
            }
            book.ends.push((begin, book.around.len() as u32));
        }
        book
    }

    fn side_by_side(&self, some: &[u16]) -> Sixteen<N> {
        let points: [u16; LANES] = std::array::from_fn(|k| some[k.min(some.len() - 1)]);
        let values = std::array::from_fn(|i| points.map(|p| self.values[usize::from(p)][i]));
        Sixteen { points, values }
    }

    /// The coordinates of all points.
    #[inline(always)]
    pub fn values(&self) -> &[[f32; N]] {
        &self.values
    }

    /// The point or points at a place, whose codes are packed as a codebook's are, none of them above the largest.
    #[inline(always)]
    pub(super) fn at(&self, packed: usize) -> Nearest<'_, N> {
        let place = self.places[packed];
        if place >= 0 {
            return Nearest::Point(place as u16);
        }
        let (begin, end) = self.ends[!place as usize];
        Nearest::Between(&self.around[begin as usize..end as usize])
    }
}

/// The coordinates that points are compared with.
#[derive(Clone, Copy)]
pub(super) struct Target<'a, const N: usize> {
    pub x: &'a [f32; N],
    pub weight: &'a [f32; N],
    /// Factor on the points' coordinates.
    pub scale: f32,
}

/// The point `around` a place with the least `sum of weight * (scale * value - x)^2`, the first of equals. The values
/// are those of the codebook or, where `TERNARY`, -1, 0 and 1 moved by `shift`.
///
/// Where no sum is a number, for which the reference ends the program, it is the first point.
#[inline(always)]
pub(super) fn nearest<S: Simd, const N: usize, const TERNARY: bool>(
    simd: S,
    around: &[Sixteen<N>],
    target: Target<'_, N>,
    shift: f32,
) -> u16 {
    let scale = simd.splat(target.scale);
    let mut best = (f32::MAX, around[0].points[0]);
    for some in around {
        let mut sums = simd.splat(0.0);
        for i in 0..N {
            let mut value = simd.load(&some.values[i]);
            if TERNARY {
                // Exact: the codes 0, 1 and 2 are there as 1, 3 and 5.
                value = (value - simd.splat(3.0)) * simd.splat(0.5) + simd.splat(shift);
            }
            let difference = scale * value - simd.splat(target.x[i]);
            sums = sums + simd.splat(target.weight[i]) * difference * difference;
        }
        let (lane, sum) = sums.lowest();
        if sum < best.0 {
            best = (sum, some.points[lane]);
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
        assert!(matches!(at([2, 0, 0, 0]), Nearest::Point(p) if p == place([2, 0, 0, 0])));
        let Nearest::Between(around) = at([1, 0, 0, 0]) else {
            panic!("no point is here");
        };
        let mut near = [[0, 0, 0, 0], [2, 0, 0, 0], [1, 1, 0, 0]].map(place);
        near.sort_unstable();
        let [around_it] = around else {
            panic!("more points than there are");
        };
        assert_eq!(around_it.points[..3], near);
        assert_eq!(around_it.points[3..], [place(far[0]); LANES - 3]);
        let target = Target { x: &[2.9, 2.8, 1.1, 1.0], weight: &[1.0; 4], scale: 1.0 };
        let found = nearest::<_, 4, false>(Portable, around, target, 0.0);
        assert_eq!(found, place([1, 1, 0, 0]));
        assert_eq!(book.values()[usize::from(found)], [3.0, 3.0, 1.0, 1.0]);
    }
}
