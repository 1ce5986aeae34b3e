//! The tile of a dense matrix product, for the backward pass and for rounding with error feedback.
//!
//! Every element is one chain, `s = s + a * b` in order of k with the product rounded first, so that the
//! bits do not depend on the instruction set: lanes are columns of the result. Zen 4 multiplies and adds
//! in separate pipes, so that without FMA 80 % of its peak is still reached; other processors lose half.

use std::ops::{Add, Mul};

use crate::Isa;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::dense::tile as wide;
use crate::proof::compiled_for_avx2;

/// Rows of a tile.
pub const ROWS: usize = 4;
/// Columns of a tile.
pub const COLUMNS: usize = 16;

/// `ROWS` x `COLUMNS` elements of a product.
pub type Tile<T> = [[T; COLUMNS]; ROWS];

/// `sum_k a[k][i] * b[k][j]` for every `i` and `j`, from 0 on. `a` holds lines of [`ROWS`], `b` lines of
/// [`COLUMNS`] elements; the shorter decides.
pub fn tile(isa: Isa, a: &[f32], b: &[f32]) -> Tile<f32> {
    compiled_for_avx2!(isa, wide(a: &[f32], b: &[f32]) -> Tile<f32>, portable)
}

/// [`tile`] in `f64`.
pub fn tile_f64(isa: Isa, a: &[f64], b: &[f64]) -> Tile<f64> {
    compiled_for_avx2!(isa, portable(a: &[f64], b: &[f64]) -> Tile<f64>, portable)
}

/// [`tile`] in any precision, two rows at a time: more sums would not fit into 128-bit registers.
#[inline(always)]
pub fn portable<T>(a: &[T], b: &[T]) -> Tile<T>
where
    T: Copy + Default + Add<Output = T> + Mul<Output = T>,
{
    let mut out = Tile::default();
    rows::<T, 2>(a, b, 0, &mut out);
    rows::<T, 2>(a, b, 2, &mut out);
    out
}

/// Rows `first..first + R` of a tile.
#[inline(always)]
fn rows<T, const R: usize>(a: &[T], b: &[T], first: usize, out: &mut Tile<T>)
where
    T: Copy + Default + Add<Output = T> + Mul<Output = T>,
{
    let mut sums = [[T::default(); COLUMNS]; R];
    let lines = a.as_chunks::<ROWS>().0.iter().zip(b.as_chunks::<COLUMNS>().0);
    for (a, b) in lines {
        for i in 0..R {
            for j in 0..COLUMNS {
                sums[i][j] = sums[i][j] + a[first + i] * b[j];
            }
        }
    }
    out[first..first + R].copy_from_slice(&sums);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let mut seed = 1u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from_bits((seed >> 9) | 0x3f80_0000) - 1.5
        };
        let a: Vec<f32> = (0..77 * ROWS).map(|_| next()).collect();
        let b: Vec<f32> = (0..77 * COLUMNS).map(|_| next()).collect();
        let mut want = Tile::<f32>::default();
        for k in 0..77 {
            for i in 0..ROWS {
                for j in 0..COLUMNS {
                    want[i][j] += a[k * ROWS + i] * b[k * COLUMNS + j];
                }
            }
        }
        let bits = |t: Tile<f32>| t.map(|row| row.map(f32::to_bits));
        let widen = |v: &[f32]| v.iter().map(|&x| f64::from(x) / 3.0).collect::<Vec<f64>>();
        let (a64, b64) = (widen(&a), widen(&b));
        let mut want64 = Tile::<f64>::default();
        for k in 0..77 {
            for i in 0..ROWS {
                for j in 0..COLUMNS {
                    want64[i][j] += a64[k * ROWS + i] * b64[k * COLUMNS + j];
                }
            }
        }
        let bits64 = |t: Tile<f64>| t.map(|row| row.map(f64::to_bits));
        for isa in crate::testing::isas() {
            assert_eq!(bits(tile(isa, &a, &b)), bits(want), "{isa:?}");
            assert_eq!(bits64(tile_f64(isa, &a64, &b64)), bits64(want64), "{isa:?}");
        }
    }
}
