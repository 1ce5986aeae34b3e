//! Four rows times two tokens, 32 columns at a time: what tiles of many tokens are made of.
//!
//! A pair has two registers of sums. By [`Dot`] each has four rows of one token; by `SMMLA` the first has rows 0 and 1, the
//! second rows 2 and 3, of both tokens in turns. Every lane is a row and a token either way, so that no sum knows which.

#![allow(
    clippy::needless_range_loop,
    reason = "registers are indexed by dword and by half alike"
)]

use std::arch::aarch64::*;
use std::marker::PhantomData;

use super::super::dot::{Dot, two_by_two};

/// Of two tokens, such as their scales.
pub(super) type Two<T> = [T; 2];
/// 32 columns of four rows: eight registers.
pub(super) type Weights = [int8x16_t; 8];
/// 32 columns of two tokens: four registers.
pub(super) type Columns = [int8x16_t; 4];
/// Sums of a pair, or what they are multiplied by.
pub(super) type Floats = [float32x4_t; 2];

/// How rows and tokens lie in the lanes of a pair's registers.
///
/// # Safety
/// All functions ask for the instruction set, and for pointers to what they read.
pub(super) trait Pair {
    /// A number of each token.
    type Token: Copy;

    /// The columns of two tokens, side by side.
    unsafe fn columns(first: [int8x16_t; 2], second: [int8x16_t; 2]) -> Columns;
    /// Weights, of which register k has dword k of each row.
    unsafe fn weights(w: Weights) -> Weights;
    /// `sums` and the products of 32 columns. Two products of a row have to fit 16 bits where there is no instruction for
    /// four, as in [`Dot::lane`].
    unsafe fn add(sums: [int32x4_t; 2], w: &Weights, y: &Columns) -> [int32x4_t; 2];
    /// What each row has, for both tokens.
    unsafe fn by_row(x: float32x4_t) -> Floats;
    /// What each token has.
    unsafe fn by_token(x: Two<f32>) -> Self::Token;
    /// Register `i` of a pair times what each token has.
    unsafe fn times(x: float32x4_t, y: Self::Token, i: usize) -> float32x4_t;
    /// What the sums of each token begin with, for all rows.
    unsafe fn starts(x: Two<i32>) -> [int32x4_t; 2];
    /// The rows of each token.
    unsafe fn apart(x: Floats) -> Two<float32x4_t>;
    /// The other way.
    unsafe fn together(x: Two<float32x4_t>) -> Floats;
}

/// By sums of four products: a register for each token.
pub(super) struct Rows<D>(PhantomData<D>);

impl<D: Dot> Pair for Rows<D> {
    type Token = Two<f32>;

    #[inline(always)]
    unsafe fn columns(first: [int8x16_t; 2], second: [int8x16_t; 2]) -> Columns {
        [first[0], first[1], second[0], second[1]]
    }
    #[inline(always)]
    unsafe fn weights(w: Weights) -> Weights {
        w
    }
    #[inline(always)]
    unsafe fn add(mut sums: [int32x4_t; 2], w: &Weights, y: &Columns) -> [int32x4_t; 2] {
        for half in 0..2 {
            let w = &w[4 * half..];
            for t in 0..2 {
                let y = y[2 * t + half];
                // SAFETY: the caller has the instructions of `D`.
                unsafe {
                    sums[t] = D::lane::<0>(sums[t], w[0], y);
                    sums[t] = D::lane::<1>(sums[t], w[1], y);
                    sums[t] = D::lane::<2>(sums[t], w[2], y);
                    sums[t] = D::lane::<3>(sums[t], w[3], y);
                }
            }
        }
        sums
    }
    #[inline(always)]
    unsafe fn by_row(x: float32x4_t) -> Floats {
        [x, x]
    }
    #[inline(always)]
    unsafe fn by_token(x: Two<f32>) -> Two<f32> {
        x
    }
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn times(x: float32x4_t, y: Two<f32>, i: usize) -> float32x4_t {
        vmulq_n_f32(x, y[i])
    }
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn starts(x: Two<i32>) -> [int32x4_t; 2] {
        x.map(|x| vdupq_n_s32(x))
    }
    #[inline(always)]
    unsafe fn apart(x: Floats) -> Two<float32x4_t> {
        x
    }
    #[inline(always)]
    unsafe fn together(x: Two<float32x4_t>) -> Floats {
        x
    }
}

/// By `SMMLA`: two rows and two tokens in a register.
pub(super) struct Matrix;

impl Pair for Matrix {
    type Token = float32x4_t;

    #[inline]
    #[target_feature(enable = "neon,i8mm")]
    unsafe fn columns(first: [int8x16_t; 2], second: [int8x16_t; 2]) -> Columns {
        let [a, b] = first.map(|v| vreinterpretq_s64_s8(v));
        let [c, d] = second.map(|v| vreinterpretq_s64_s8(v));
        [
            vzip1q_s64(a, c),
            vzip2q_s64(a, c),
            vzip1q_s64(b, d),
            vzip2q_s64(b, d),
        ]
        .map(|v| vreinterpretq_s8_s64(v))
    }
    #[inline]
    #[target_feature(enable = "neon,i8mm")]
    unsafe fn weights(mut w: Weights) -> Weights {
        for two in w.as_chunks_mut::<2>().0 {
            let [a, b] = two.map(|v| vreinterpretq_s32_s8(v));
            *two = [vzip1q_s32(a, b), vzip2q_s32(a, b)].map(|v| vreinterpretq_s8_s32(v));
        }
        w
    }
    #[inline]
    #[target_feature(enable = "neon,i8mm")]
    unsafe fn add(mut sums: [int32x4_t; 2], w: &Weights, y: &Columns) -> [int32x4_t; 2] {
        for k in 0..4 {
            for h in 0..2 {
                sums[h] = two_by_two(sums[h], w[2 * k + h], y[k]);
            }
        }
        sums
    }
    #[inline]
    #[target_feature(enable = "neon,i8mm")]
    unsafe fn by_row(x: float32x4_t) -> Floats {
        [vzip1q_f32(x, x), vzip2q_f32(x, x)]
    }
    #[inline]
    #[target_feature(enable = "neon,i8mm")]
    unsafe fn by_token(x: Two<f32>) -> float32x4_t {
        vreinterpretq_f32_u64(vdupq_n_u64(two_words(x.map(f32::to_bits))))
    }
    #[inline]
    #[target_feature(enable = "neon,i8mm")]
    unsafe fn times(x: float32x4_t, y: float32x4_t, _: usize) -> float32x4_t {
        vmulq_f32(x, y)
    }
    #[inline]
    #[target_feature(enable = "neon,i8mm")]
    unsafe fn starts(x: Two<i32>) -> [int32x4_t; 2] {
        let x = vdupq_n_u64(two_words(x.map(i32::cast_unsigned)));
        [vreinterpretq_s32_u64(x); 2]
    }
    #[inline]
    #[target_feature(enable = "neon,i8mm")]
    unsafe fn apart(x: Floats) -> Two<float32x4_t> {
        [vuzp1q_f32(x[0], x[1]), vuzp2q_f32(x[0], x[1])]
    }
    #[inline]
    #[target_feature(enable = "neon,i8mm")]
    unsafe fn together(x: Two<float32x4_t>) -> Floats {
        [vzip1q_f32(x[0], x[1]), vzip2q_f32(x[0], x[1])]
    }
}

/// Two words of 32 bits, the first in the lower half.
#[inline(always)]
fn two_words([a, b]: Two<u32>) -> u64 {
    u64::from(a) | u64::from(b) << 32
}
