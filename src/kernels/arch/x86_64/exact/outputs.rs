//! Probabilities times the values of a chunk of cells.

use std::arch::x86_64::*;
use std::ops::Range;

use super::right::{self, Words};
use super::{BUFFER, DIGITS, LEVELS, Product, ROUNDING, SUMS, digits, left, sixteen_certain};
use crate::AlignedBytes;
use crate::arch::x86_64::packed::half_levels::value;
use crate::arch::x86_64::tiles::{ROW, ROWS, Tiles};
use crate::shared::halves::{self, F16Encoding, LANES};

/// Cells of a chunk, at most.
pub const CELLS: usize = 128;
/// Probabilities are whole multiples of this, the lowest bit of half floats.
const UNIT: f32 = 1.0 / (1u32 << 24) as f32;
/// A row's probabilities may add up to this; bounds are for 2.
const TOTAL: f32 = 1.5;
/// Greatest value of a lane, in units: times all probabilities, at most 2^25 of their units, that is 2^53.
const EXACT: f32 = (1u32 << 28) as f32;

/// A row's probabilities as far as they were seen.
#[derive(Clone, Copy)]
struct Row {
    total: f32,
    open: bool,
}

/// Sums of some rows.
pub struct Outputs {
    /// Lowest units of the lanes, and their greatest magnitudes.
    units: Vec<f32>,
    greatest: Vec<f32>,
    rows: Vec<Row>,
    /// `[rows][lanes]`
    sums: AlignedBytes,
    scratch: AlignedBytes,
    cells: usize,
}

/// Probabilities of a chunk: rows of floats, `stride` from one to the next.
#[derive(Clone, Copy)]
pub struct Probabilities {
    pub at: *const f32,
    pub stride: usize,
    /// Whole sixteens.
    pub cells: usize,
}

/// Rows of a tile whose levels are there.
#[derive(Clone, Copy)]
struct Done {
    buffer: *const i32,
    levels: usize,
    sums: *mut f64,
    units: *const f64,
}

impl Outputs {
    /// Zeros, of a whole number of 32 lanes.
    pub fn new(rows: usize, lanes: usize) -> Outputs {
        let right = lanes / LANES * 2 * right::half(CELLS);
        let left = ROWS * left::stride(CELLS);
        Outputs {
            units: vec![f32::INFINITY; lanes],
            greatest: vec![0.0; lanes],
            rows: vec![Row { total: 0.0, open: false }; rows],
            sums: AlignedBytes::new(rows * lanes * 8),
            scratch: AlignedBytes::scratch(right + left + BUFFER * 4 + lanes * 8),
            cells: 0,
        }
    }

    /// Adds a chunk of cells, of which `there` have values, for some rows; `seen` says how many of them a row sees at
    /// most. False where the values are not to be had as digits.
    ///
    /// # Safety
    /// The process has the tiles, and AVX-512; `values` from the chunk on, a form of each tile, and probabilities of
    /// all rows.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub unsafe fn add<T: Tiles>(
        &mut self,
        values: halves::Tiles<'_>,
        forms: &[F16Encoding],
        there: usize,
        p: Probabilities,
        rows: Range<usize>,
        seen: impl Fn(usize) -> usize,
    ) -> bool {
        let k = p.cells.next_multiple_of(ROW);
        let lanes = self.units.len();
        let (right, rest) = self.scratch.split_at_mut(lanes / LANES * 2 * right::half(CELLS));
        let (left, rest) = rest.split_at_mut(ROWS * left::stride(CELLS));
        let (buffers, units) = rest.split_at_mut(BUFFER * 4);
        let (right, left) = (right.as_mut_ptr(), left.as_mut_ptr());
        let buffer = buffers.as_mut_ptr().cast::<i32>();
        let units = units.as_mut_ptr().cast::<f64>();
        let mut widths = [0; 64];
        for (block, width) in widths[..lanes / LANES].iter_mut().enumerate() {
            let words = Words {
                // SAFETY: a block of lines of the first tile.
                first: unsafe { values.words.as_ptr().add(block * halves::BLOCK * values.quads) },
                tile: values.quads * values.lines,
                quads: values.quads,
                forms,
                count: there.div_ceil(halves::STEPS),
                lanes: LANES,
            };
            // SAFETY: the caller has the values; there is room for the block.
            let expanded = unsafe { right::expand(words, k, right.add(block * 2 * right::half(CELLS))) };
            let Some(found) = expanded else {
                return false;
            };
            *width = found.digits;
            let here = block * LANES..(block + 1) * LANES;
            let all = self.units[here.clone()].iter_mut().zip(found.units);
            all.for_each(|(all, unit)| *all = all.min(unit));
            let all = self.greatest[here].iter_mut().zip(found.greatest);
            all.for_each(|(all, greatest)| *all = all.max(greatest));
            for (lane, unit) in found.units.iter().enumerate() {
                // SAFETY: a unit for each lane.
                unsafe { units.add(block * LANES + lane).write(f64::from(unit * UNIT)) };
            }
        }
        self.cells += p.cells;
        let sums = self.sums.as_mut_ptr().cast::<f64>();
        // SAFETY: the caller has the tiles.
        let mut t = unsafe { T::with_rows([ROWS as u8; 8]) };
        for first in (rows.start / ROWS * ROWS..rows.end).step_by(ROWS) {
            let count = ROWS.min(self.rows.len() - first);
            let seen = (first..first + count).map(&seen).max().unwrap_or(0);
            let seen = seen.next_multiple_of(ROW).min(k);
            if seen == 0 {
                continue;
            }
            // SAFETY: rows with their probabilities, and room for a tile.
            let most = unsafe { put(p, first, &mut self.rows[first..][..count], seen, k, left) };
            for (block, width) in widths[..lanes / LANES].iter().enumerate() {
                let product = Product {
                    left,
                    left_stride: left::stride(k),
                    left_digits: most.max(5 - width),
                    // SAFETY: what was expanded.
                    right: unsafe { right.add(block * 2 * right::half(CELLS)) },
                    right_digits: *width,
                    k,
                    seen,
                };
                // SAFETY: both sides are there, room for the levels, and sums and units of the block.
                unsafe {
                    product.multiply(&mut t, buffer);
                    let done = Done {
                        buffer,
                        levels: product.levels(),
                        sums: sums.add(first * lanes + block * LANES),
                        units: units.add(block * LANES),
                    };
                    match done.levels {
                        4 => settle::<4>(done, count, lanes),
                        5 => settle::<5>(done, count, lanes),
                        6 => settle::<6>(done, count, lanes),
                        _ => settle::<7>(done, count, lanes),
                    }
                }
            }
        }
        true
    }

    /// Outputs of a row; false where they may be others than those of the sums in order.
    ///
    /// # Safety
    /// AVX-512.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub unsafe fn finish(&self, row: usize, out: &mut [f32]) -> bool {
        let lanes = self.units.len();
        let Row { total, open } = self.rows[row];
        if open || total.is_nan() || total > TOTAL {
            return false;
        }
        let sums = &self.sums[row * lanes * 8..][..lanes * 8];
        let mut all = true;
        for (i, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            // SAFETY: sixteen sums and as many outputs.
            unsafe {
                let sums = sums.as_ptr().cast::<f64>().add(16 * i);
                let sums = [_mm512_loadu_pd(sums), _mm512_loadu_pd(sums.add(8))];
                let errors = self.errors(16 * i);
                let (sums, certain) = sixteen_certain(sums, errors);
                _mm512_storeu_ps(out.as_mut_ptr(), sums);
                all &= certain;
            }
        }
        all
    }

    /// Error bounds of the sums of sixteen lanes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn errors(&self, lane: usize) -> [__m512d; 2] {
        // One rounding for each cell, and two for each chunk here, of sums below twice the greatest value.
        let roundings = (2 * self.cells + 2) as f64;
        let factor = _mm512_set1_pd(2.0 * roundings * ROUNDING);
        // SAFETY: sixteen lanes.
        let [units, greatest] =
            [&self.units, &self.greatest].map(|all| unsafe { _mm512_loadu_ps(all[lane..][..16].as_ptr()) });
        let exact = _mm512_mul_ps(units, _mm512_set1_ps(EXACT));
        let far = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(greatest, exact);
        let greatest = _mm512_maskz_mov_ps(far, greatest);
        let halves = [_mm512_castps512_ps256(greatest), _mm512_extractf32x8_ps::<1>(greatest)];
        halves.map(|greatest| _mm512_mul_pd(_mm512_cvtps_pd(greatest), factor))
    }
}

/// A tile of probabilities of a chunk, up to `seen`; how many digits they take.
///
/// # Safety
/// AVX-512; rows of probabilities from `first` on, and room for a tile.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn put(p: Probabilities, first: usize, rows: &mut [Row], seen: usize, k: usize, left: *mut u8) -> usize {
    let (zero, ones) = (_mm512_setzero_si512(), _mm512_set1_ps((1u32 << 24) as f32));
    let mut most = zero;
    for (i, row) in rows.iter_mut().enumerate() {
        let (mut bits, mut total) = (zero, _mm512_setzero_ps());
        // SAFETY: the caller has the row and room for it.
        unsafe {
            let (from, to) = (p.at.add((first + i) * p.stride), left.add(i * left::stride(k)));
            for at in (0..seen).step_by(16) {
                let mut x = _mm512_setzero_ps();
                if at < p.cells {
                    x = left::rounded(&from.add(at).cast::<[f32; 16]>().read_unaligned());
                }
                bits = _mm512_max_epu32(bits, _mm512_castps_si512(x));
                total = _mm512_add_ps(total, x);
                let x = _mm512_cvtps_epi32(_mm512_mul_ps(x, ones));
                left::put_sixteen(x, to.add(at), k);
            }
            _mm512_storeu_si512(to.add(DIGITS * k).cast(), zero);
        }
        most = _mm512_max_epu32(most, bits);
        row.total += _mm512_reduce_add_ps(total);
        row.open |= _mm512_reduce_max_epu32(bits) > 1f32.to_bits();
    }
    let most = f32::from_bits(_mm512_reduce_max_epu32(most).min(1f32.to_bits()));
    // More than 1, or bits of no probability: then the row is open, and its digits are not wanted.
    digits(most * (1u32 << 24) as f32).unwrap_or(DIGITS)
}

/// Adds the levels of the rows of a tile to their sums.
///
/// # Safety
/// AVX-512; levels of the tile, and 32 sums of each row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn settle<const N: usize>(done: Done, rows: usize, lanes: usize) {
    for row in 0..rows {
        for eights in 0..LANES / 8 {
            // SAFETY: eight sums of each level, eight units and eight sums.
            unsafe {
                let at = eights / 2 * LEVELS * SUMS + ROWS * row + eights % 2 * 8;
                let sums = value::<N>(done.buffer.add(at));
                let units = _mm512_loadu_pd(done.units.add(8 * eights));
                let to = done.sums.add(row * lanes + 8 * eights);
                _mm512_storeu_pd(to, _mm512_fmadd_pd(sums, units, _mm512_loadu_pd(to)));
            }
        }
    }
}
