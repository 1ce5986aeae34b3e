//! Four rows at a time in portable Rust: the least that an instruction set needs to be one, and quicker than the
//! definitions where a processor has nothing else, because the rows' sums do not wait for one another.

use trine_formats::types::num::f16_at;
use trine_formats::types::{TypeId, info};

use super::kernels::Kernels;
use super::rows::{Call, RowKernel};
use crate::{Level, Needs};

pub(super) const KERNELS: Kernels = Kernels { row_kernels: &[ROWS], ..Kernels::NONE };

const ROWS: &[RowKernel] = &[row::<Q8_0, EIGHT, EIGHT>(TypeId::Q8_0), row::<Q4_0, NIBBLES, EIGHT>(TypeId::Q4_0)];
const EIGHT: usize = info::Q8_0.bytes;
const NIBBLES: usize = info::Q4_0.bytes;

/// Rows that are multiplied together.
const FOUR: usize = 4;

const fn row<C: Codes<W, X>, const W: usize, const X: usize>(ty: TypeId) -> RowKernel {
    RowKernel { ty, needs: Needs::new(Level::Scalar4, false), lanes: FOUR, by_row: multiply::<C, W, X>, panel: multiply::<C, W, X> }
}

/// A type with blocks of `W` bytes that are multiplied with blocks of `X`.
trait Codes<const W: usize, const X: usize> {
    /// The sum of products of two blocks' integers.
    fn sum(w: &[u8; W], x: &[u8; X]) -> i32;
    /// Returns the term of a sum in the dot product of the rows.
    fn scaled(sum: i32, w: &[u8; W], x: &[u8; X]) -> f32;
}

struct Q8_0;

impl Codes<EIGHT, EIGHT> for Q8_0 {
    #[inline(always)]
    fn sum(w: &[u8; EIGHT], x: &[u8; EIGHT]) -> i32 {
        w[2..].iter().zip(&x[2..]).map(|(&w, &x)| i32::from(w as i8) * i32::from(x as i8)).sum()
    }

    #[inline(always)]
    fn scaled(sum: i32, w: &[u8; EIGHT], x: &[u8; EIGHT]) -> f32 {
        sum as f32 * (f16_at(w, 0) * f16_at(x, 0))
    }
}

struct Q4_0;

impl Codes<NIBBLES, EIGHT> for Q4_0 {
    #[inline(always)]
    fn sum(w: &[u8; NIBBLES], x: &[u8; EIGHT]) -> i32 {
        let (low, high) = x[2..].split_at(16);
        let pairs = w[2..].iter().zip(low).zip(high);
        pairs.map(|((&q, &l), &h)| code(q & 15) * i32::from(l as i8) + code(q >> 4) * i32::from(h as i8)).sum()
    }

    #[inline(always)]
    fn scaled(sum: i32, w: &[u8; NIBBLES], x: &[u8; EIGHT]) -> f32 {
        sum as f32 * f16_at(w, 0) * f16_at(x, 0)
    }
}

#[inline(always)]
fn code(nibble: u8) -> i32 {
    i32::from(nibble) - 8
}

/// All products of a call. Every output has its own chain of sums, in the order of the blocks.
fn multiply<C: Codes<W, X>, const W: usize, const X: usize>(call: Call<'_>) {
    let Call { w, acts, tokens, out, .. } = call;
    let w_row = w.len() / (out.len() / tokens);
    for (w, out) in w.chunks(FOUR * w_row).zip(out.chunks_mut(FOUR * tokens)) {
        let rows: Vec<&[[u8; W]]> = w.chunks_exact(w_row).map(|row| row.as_chunks().0).collect();
        for (t, x) in acts.chunks_exact(acts.len() / tokens).enumerate() {
            let x = x.as_chunks().0;
            match rows[..] {
                [a, b, c, d] => {
                    let dots = dots::<C, W, X, FOUR>([a, b, c, d], x);
                    (0..FOUR).for_each(|r| out[r * tokens + t] = dots[r]);
                }
                _ => rows.iter().enumerate().for_each(|(r, &row)| [out[r * tokens + t]] = dots::<C, W, X, 1>([row], x)),
            }
        }
    }
}

#[inline(always)]
fn dots<C: Codes<W, X>, const W: usize, const X: usize, const R: usize>(
    rows: [&[[u8; W]]; R],
    x: &[[u8; X]],
) -> [f32; R] {
    let mut acc = [0f32; R];
    for (b, x) in x.iter().enumerate() {
        let sums = rows.map(|row| C::sum(&row[b], x));
        (0..R).for_each(|r| acc[r] += C::scaled(sums[r], &rows[r][b], x));
    }
    acc
}
