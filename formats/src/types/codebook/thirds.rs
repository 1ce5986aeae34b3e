//! The search of the IQ1 encoders: weights are split into three classes, for -1, 0 and 1, all three shifted a little up
//! or down.
//!
//! With the weights of a group in order, classes are two boundaries; each pair of them is tried with each shift, from
//! sums over the weights before a boundary. Then each eight take the nearest point of the codebook.
//!
//! Source: ggml `quantize_row_iq1_s_impl`, `quantize_row_iq1_m_impl`, `iq1_find_best_neighbour2`.

use std::sync::OnceLock;

use super::grids;
use super::neighbours::{Codebook, Nearest, Target, nearest};
use crate::types::lanes::Simd;

/// How far the three values are shifted.
const SHIFT: f32 = 0.125;

/// The codebook, with the values of its points shifted up and down.
pub(in crate::types) struct TernaryCodebook {
    book: Codebook<8>,
    shifted: [Vec<[f32; 8]>; 2],
}

/// The codebook of IQ1_S and IQ1_M, made at first use.
pub(in crate::types) fn ternary_codebook() -> &'static TernaryCodebook {
    static BOOK: OnceLock<TernaryCodebook> = OnceLock::new();
    BOOK.get_or_init(|| {
        let book = Codebook::new(&grids::IQ1, 2, 3);
        let shifted = [SHIFT, -SHIFT].map(|shift| {
            let values = |point: &[f32; 8]| point.map(|odd| (odd - 3.0) / 2.0 + shift);
            book.values().iter().map(values).collect()
        });
        TernaryCodebook { book, shifted }
    })
}

impl TernaryCodebook {
    /// The values of a point, shifted down or up.
    #[inline(always)]
    pub fn values(&self, point: u16, down: bool) -> &[f32; 8] {
        &self.shifted[usize::from(down)][usize::from(point)]
    }

    /// The point for eight weights that were classed, and whether it is not just these classes.
    #[inline(always)]
    fn find<S: Simd>(
        &self,
        simd: S,
        classes: &[u8; 8],
        down: bool,
        (x, weight): (&[f32; 8], &[f32; 8]),
        scale: f32,
    ) -> (u16, bool) {
        let packed = (0..8).fold(0, |all, i| all | usize::from(classes[i]) << (2 * i));
        match self.book.at(packed) {
            Nearest::Point(point) => (point, false),
            Nearest::Between(around) => {
                let shift = if down { -SHIFT } else { SHIFT };
                let target = Target { x, weight, scale };
                (nearest::<S, 8, true>(simd, around, target, shift), true)
            }
        }
    }
}

/// The order of a group's weights, smallest first; equal ones stay in order.
pub(in crate::types) fn ascending<const SIZE: usize>(x: &[f32; SIZE]) -> [u8; SIZE] {
    let mut order = std::array::from_fn(|i| i as u8);
    // Adding zero makes negative zeros positive, which are equal to the reference; the order of the rest is total.
    order.sort_by(|&a, &b| {
        let value = |i: u8| x[usize::from(i)] + 0.0;
        value(a).total_cmp(&value(b))
    });
    order
}

/// The best split of a group found so far.
#[derive(Clone, Copy)]
pub(in crate::types) struct Split {
    /// Weights of class 0, and of classes 0 and 1, in order of size.
    pub ends: (usize, usize),
    /// True for each half of the group that is shifted down.
    pub down: [bool; 2],
    /// May be negative.
    pub scale: f32,
    score: f32,
}

impl Split {
    /// The split before any try.
    pub fn none() -> Split {
        Split { ends: (0, 0), down: [false; 2], scale: 0.0, score: -f32::MAX }
    }

    /// True if any try was better than nothing.
    pub fn is_some(&self) -> bool {
        self.score > -f32::MAX
    }

    /// Takes a split if it is better; `sum_qx` and `sum_q2` are the sums of `w q x` and `w q q` of its values.
    #[inline(always)]
    pub fn offer(&mut self, sum_qx: f32, sum_q2: f32, ends: (usize, usize), down: [bool; 2]) {
        if sum_q2 > 0.0 && sum_qx * sum_qx > self.score * sum_q2 {
            let scale = sum_qx / sum_q2;
            *self = Split { ends, down, scale, score: scale * sum_qx };
        }
    }

    /// A split as points: the scale, which is not negative, the points of each eight weights, and the shifts.
    #[inline(always)]
    pub fn place<S: Simd, const SIZE: usize>(
        self,
        simd: S,
        book: &TernaryCodebook,
        (x, weight): (&[f32; SIZE], &[f32; SIZE]),
        order: &[u8; SIZE],
    ) -> Placed {
        let mut classes = [0; SIZE];
        for (rank, &i) in order.iter().enumerate() {
            let class = u8::from(rank >= self.ends.0) + u8::from(rank >= self.ends.1);
            classes[usize::from(i)] = if self.scale < 0.0 { 2 - class } else { class };
        }
        let flip = self.scale < 0.0;
        let mut placed = Placed { scale: self.scale.abs(), points: [0; 4], down: self.down.map(|down| down != flip) };
        let eights = x.as_chunks::<8>().0.iter().zip(weight.as_chunks::<8>().0);
        let mut moved = false;
        for (k, (classes, group)) in classes.as_chunks::<8>().0.iter().zip(eights.clone()).enumerate() {
            let down = placed.down_at::<SIZE>(k);
            let (point, is_off) = book.find(simd, classes, down, group, placed.scale);
            placed.points[k] = point;
            moved |= is_off;
        }
        if moved {
            let (mut sum_qx, mut sum_q2) = (0.0, 0.0);
            for (k, (x, weight)) in eights.enumerate() {
                let values = book.values(placed.points[k], placed.down_at::<SIZE>(k));
                for i in 0..8 {
                    let (w, q) = (weight[i], values[i]);
                    sum_qx += w * q * x[i];
                    sum_q2 += w * q * q;
                }
            }
            if sum_qx > 0.0 && sum_q2 > 0.0 {
                placed.scale = sum_qx / sum_q2;
            }
        }
        placed
    }
}

/// A group as points of the codebook.
#[derive(Clone, Copy, Default)]
pub(in crate::types) struct Placed {
    pub scale: f32,
    pub points: [u16; 4],
    /// True for each half that is shifted down.
    pub down: [bool; 2],
}

impl Placed {
    /// True if the `k`-th eight weights of a group of `SIZE` are shifted down.
    #[inline(always)]
    pub fn down_at<const SIZE: usize>(&self, k: usize) -> bool {
        self.down[k * 16 / SIZE]
    }
}
