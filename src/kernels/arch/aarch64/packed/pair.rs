//! Four rows times two tokens, 32 columns at a time: what tiles of many tokens are made of.
//!
//! A pair has two registers of sums. By [`Dot`] each has four rows of one token; by `SMMLA` the first has rows 0 and 1,
//! the second rows 2 and 3, of both tokens in turns. Every lane is a row and a token either way, so that no sum knows
//! which.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by dword and by half alike")]

use std::arch::aarch64::*;
use std::marker::PhantomData;

use super::super::dot::{Dot, two_by_two};
use crate::arch::functions::{functions, unsafe_functions};

/// A value of each of two tokens, such as its scale.
pub(super) type Two<T> = [T; 2];
/// 32 columns of four rows: eight registers.
pub(super) type Weights = [int8x16_t; 8];
/// 32 columns of two tokens: four registers.
pub(super) type Columns = [int8x16_t; 4];
/// Sums of a pair, or what they are multiplied by.
pub(super) type Floats = [float32x4_t; 2];

/// How rows and tokens lie in the lanes of a pair's registers.
pub(super) trait Pair {
    /// A number of each token.
    type Token: Copy;

    unsafe_functions! { "The processor has the instructions of the implementation.";
        /// The columns of two tokens, side by side.
        columns(first: [int8x16_t; 2], second: [int8x16_t; 2]) -> Columns;
        /// Eight columns of weights, of which register k has dword k of each row.
        weights(w: [int8x16_t; 2]) -> [int8x16_t; 2];
        /// `sums` and the products of columns `8 K .. 8 K + 8` with such weights. Two products of a row have to fit
        /// 16 bits where there is no instruction for four, as in [`Dot::lane`].
        add[const K: usize](sums: [int32x4_t; 2], w: [int8x16_t; 2], y: &Columns) -> [int32x4_t; 2];
        /// The value of each row, for both tokens.
        by_row(x: float32x4_t) -> Floats;
        /// Lane `LANE` of each token's register.
        by_token[const LANE: i32](x: Two<float32x4_t>) -> Self::Token;
        /// Register `i` of a pair times what each token has.
        times(x: float32x4_t, y: Self::Token, i: usize) -> float32x4_t;
        /// Initial sums of each token, for all rows: lane `LANE` of its register.
        starts[const LANE: i32](x: Two<int32x4_t>) -> [int32x4_t; 2];
        /// The rows of each token.
        apart(x: Floats) -> Two<float32x4_t>;
    }

    /// [`Self::weights`] of 32 columns.
    ///
    /// # Safety
    /// The processor has the instructions of the implementation.
    #[inline(always)]
    unsafe fn all_weights(mut w: Weights) -> Weights {
        for two in w.as_chunks_mut().0 {
            // SAFETY: the caller's promise.
            *two = unsafe { Self::weights(*two) };
        }
        w
    }
    /// [`Self::add`] of all 32 columns.
    ///
    /// # Safety
    /// The processor has the instructions of the implementation.
    #[inline(always)]
    unsafe fn add_all(sums: [int32x4_t; 2], w: &Weights, y: &Columns) -> [int32x4_t; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let sums = Self::add::<0>(sums, [w[0], w[1]], y);
            let sums = Self::add::<1>(sums, [w[2], w[3]], y);
            let sums = Self::add::<2>(sums, [w[4], w[5]], y);
            Self::add::<3>(sums, [w[6], w[7]], y)
        }
    }
}

/// Dot products of four bytes by lanes ([`Dot::lane`]): one register of sums for each token.
pub(super) struct LanePair<D>(PhantomData<D>);

impl<D: Dot> Pair for LanePair<D> {
    type Token = Two<f32>;

    functions! { [#[inline(always)]]
        columns(first: [int8x16_t; 2], second: [int8x16_t; 2]) -> Columns { [first[0], first[1], second[0], second[1]] }
        weights(w: [int8x16_t; 2]) -> [int8x16_t; 2] { w }
        add[const K: usize](mut sums: [int32x4_t; 2], w: [int8x16_t; 2], y: &Columns) -> [int32x4_t; 2] {
            for t in 0..2 {
                let y = y[2 * t + K / 2];
                sums[t] = match K % 2 {
                    0 => D::lane::<1>(D::lane::<0>(sums[t], w[0], y), w[1], y),
                    _ => D::lane::<3>(D::lane::<2>(sums[t], w[0], y), w[1], y),
                };
            }
            sums
        }
        by_row(x: float32x4_t) -> Floats { [x, x] }
        apart(x: Floats) -> Two<float32x4_t> { x }
    }

    functions! { [#[inline] #[target_feature(enable = "neon")]]
        by_token[const LANE: i32](x: Two<float32x4_t>) -> Two<f32> { x.map(|x| vgetq_lane_f32::<LANE>(x)) }
        times(x: float32x4_t, y: Two<f32>, i: usize) -> float32x4_t { vmulq_n_f32(x, y[i]) }
        starts[const LANE: i32](x: Two<int32x4_t>) -> [int32x4_t; 2] { x.map(|x| vdupq_laneq_s32::<LANE>(x)) }
    }
}

/// Products of 2 x 8 matrices of bytes (`SMMLA`): a register holds the sums of two rows and two tokens.
pub(super) struct SmmlaPair;

impl Pair for SmmlaPair {
    type Token = float32x4_t;

    functions! { [#[inline] #[target_feature(enable = "neon,i8mm")]]
        columns(first: [int8x16_t; 2], second: [int8x16_t; 2]) -> Columns {
            let [a, b] = first.map(|v| vreinterpretq_s64_s8(v));
            let [c, d] = second.map(|v| vreinterpretq_s64_s8(v));
            [vzip1q_s64(a, c), vzip2q_s64(a, c), vzip1q_s64(b, d), vzip2q_s64(b, d)].map(|v| vreinterpretq_s8_s64(v))
        }
        weights(w: [int8x16_t; 2]) -> [int8x16_t; 2] {
            let [a, b] = w.map(|v| vreinterpretq_s32_s8(v));
            [vzip1q_s32(a, b), vzip2q_s32(a, b)].map(|v| vreinterpretq_s8_s32(v))
        }
        add[const K: usize](sums: [int32x4_t; 2], w: [int8x16_t; 2], y: &Columns) -> [int32x4_t; 2] {
            [two_by_two(sums[0], w[0], y[K]), two_by_two(sums[1], w[1], y[K])]
        }
        by_row(x: float32x4_t) -> Floats { [vzip1q_f32(x, x), vzip2q_f32(x, x)] }
        by_token[const LANE: i32](x: Two<float32x4_t>) -> float32x4_t {
            vreinterpretq_f32_u64(both::<LANE>(x.map(|x| vreinterpretq_u32_f32(x))))
        }
        times(x: float32x4_t, y: float32x4_t, _i: usize) -> float32x4_t { vmulq_f32(x, y) }
        starts[const LANE: i32](x: Two<int32x4_t>) -> [int32x4_t; 2] {
            [vreinterpretq_s32_u64(both::<LANE>(x.map(|x| vreinterpretq_u32_s32(x)))); 2]
        }
        apart(x: Floats) -> Two<float32x4_t> { [vuzp1q_f32(x[0], x[1]), vuzp2q_f32(x[0], x[1])] }
    }
}

/// Lane `LANE` of both registers, twice.
#[inline]
#[target_feature(enable = "neon")]
fn both<const LANE: i32>([a, b]: Two<uint32x4_t>) -> uint64x2_t {
    let lower = vreinterpretq_u64_u32(vzip1q_u32(a, b));
    let upper = vreinterpretq_u64_u32(vzip2q_u32(a, b));
    match LANE {
        0 => vdupq_laneq_u64::<0>(lower),
        1 => vdupq_laneq_u64::<1>(lower),
        2 => vdupq_laneq_u64::<0>(upper),
        _ => vdupq_laneq_u64::<1>(upper),
    }
}
