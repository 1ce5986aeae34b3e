//! Queries times the keys of a tile.

use std::arch::x86_64::*;

use super::left::{self, Row};
use super::right::{self, Lanes, Words};
use super::{BUFFER, EXACT, LEVELS, Product, ROUNDING, SUMS, sixteen, sixteen_certain};
use crate::AlignedBytes;
use crate::arch::x86_64::packed::half_levels::value;
use crate::arch::x86_64::tiles::{ROWS, Tiles};
use crate::shared::halves::{F16Encoding, LANES, Line, STEPS};

/// [`EXACT`], a little less once more for single precision.
const EXACT_NORMS: f32 = (EXACT * (1.0 - 1e-6)) as f32;

/// Rows of queries as digits.
pub struct Queries {
    k: usize,
    rows: Vec<Row>,
    planes: AlignedBytes,
    scratch: AlignedBytes,
}

/// Where scores go: rows of floats, `stride` from one to the next.
#[derive(Clone, Copy)]
pub struct Out {
    pub at: *mut f32,
    pub stride: usize,
}

/// Rows of a tile whose levels are there.
#[derive(Clone, Copy)]
struct Done {
    buffer: *const i32,
    levels: usize,
    first: usize,
    /// Error bound of sums, for each unit of both norms' product.
    error: f64,
}

impl Queries {
    /// # Safety
    /// AVX-512; `k` is a multiple of 16.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub unsafe fn new<'q>(q: impl ExactSizeIterator<Item = &'q [f32]>, k: usize) -> Queries {
        let (stride, count) = (left::stride(k), q.len());
        let mut planes = AlignedBytes::scratch(count.next_multiple_of(ROWS) * stride);
        let mut rows = Vec::with_capacity(count);
        for (q, to) in q.zip(planes.chunks_exact_mut(stride)) {
            assert!(q.len() == k, "a query of {} elements, not {k}", q.len());
            // SAFETY: whole sixteens, and room for a row.
            rows.push(unsafe { left::put(q, to.as_mut_ptr()) });
        }
        assert!(rows.len() == count, "fewer queries than there were to be");
        planes[count * stride..].fill(0);
        let scratch = AlignedBytes::scratch(2 * right::half(k) + BUFFER * 4);
        Queries { k, rows, planes, scratch }
    }

    /// Scores of the rows of `rows` and their neighbours in tiles for 32 keys, of which those behind `lanes` are
    /// anything. Marks rows whose scores are not.
    ///
    /// # Safety
    /// The process has the tiles, and AVX-512; keys of `k` elements, and all rows of `out`.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub unsafe fn scores<T: Tiles>(
        &mut self,
        (keys, form): (&[Line], F16Encoding),
        lanes: usize,
        rows: std::ops::Range<usize>,
        out: Out,
        open: &mut [bool],
    ) {
        let (planes, buffers) = self.scratch.split_at_mut(2 * right::half(self.k));
        let right = planes.as_mut_ptr();
        let words = Words {
            first: keys.as_ptr(),
            tile: 0,
            quads: self.k / STEPS,
            forms: &[form],
            count: self.k / STEPS,
            lanes,
        };
        // SAFETY: the caller has the keys; there is room for both halves.
        let Some(lanes) = (unsafe { right::expand(words, self.k, right) }) else {
            return open[rows].fill(true);
        };
        // SAFETY: the caller has the tiles.
        let mut t = unsafe { T::with_rows([ROWS as u8; 8]) };
        let buffer = buffers.as_mut_ptr().cast::<i32>();
        for first in (rows.start / ROWS * ROWS..rows.end).step_by(ROWS) {
            let tile = &self.rows[first..self.rows.len().min(first + ROWS)];
            let digits = tile.iter().filter_map(|row| row.digits).max();
            for (row, open) in tile.iter().zip(&mut open[first..]) {
                *open |= row.digits.is_none();
            }
            let product = Product {
                // SAFETY: rows of the planes.
                left: unsafe { self.planes.as_ptr().add(first * left::stride(self.k)) },
                left_stride: left::stride(self.k),
                left_digits: digits.unwrap_or(2).max(3),
                right,
                right_digits: lanes.digits,
                k: self.k,
                seen: self.k,
            };
            let done = Done {
                buffer,
                levels: product.levels(),
                first,
                // One rounding for each step, and one here.
                error: ROUNDING * (self.k + 1) as f64,
            };
            // SAFETY: both sides are there, and room for the levels.
            unsafe {
                product.multiply(&mut t, buffer);
                let open = &mut open[first..];
                match done.levels {
                    4 => settle::<4>(done, tile, &lanes, out, open),
                    5 => settle::<5>(done, tile, &lanes, out, open),
                    6 => settle::<6>(done, tile, &lanes, out, open),
                    _ => settle::<7>(done, tile, &lanes, out, open),
                }
            }
        }
    }
}

/// Scores of the rows of a tile.
///
/// # Safety
/// AVX-512; levels of the tile, and 32 floats of each row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn settle<const N: usize>(done: Done, rows: &[Row], lanes: &Lanes, out: Out, open: &mut [bool]) {
    for (row, query) in rows.iter().enumerate() {
        for half in 0..LANES / 16 {
            // SAFETY: sixteen sums of each level, sixteen units and norms, sixteen floats.
            unsafe {
                let at = done.buffer.add(half * LEVELS * SUMS + ROWS * row);
                let sums = [value::<N>(at), value::<N>(at.add(8))];
                let norms = _mm512_loadu_ps(lanes.norms.as_ptr().add(16 * half));
                let most = EXACT_NORMS / query.norm;
                let units = _mm512_loadu_ps(lanes.units.as_ptr().add(16 * half));
                let units = _mm512_mul_ps(units, _mm512_set1_ps(query.unit));
                let far = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(norms, _mm512_set1_ps(most));
                let scores = if far == 0 {
                    sixteen(sums)
                } else {
                    let error = |norms: __m256, far: u8| {
                        let factor = f64::from(query.norm) * done.error;
                        let error = _mm512_mul_pd(_mm512_cvtps_pd(norms), _mm512_set1_pd(factor));
                        _mm512_maskz_mov_pd(far, error)
                    };
                    let low = error(_mm512_castps512_ps256(norms), far as u8);
                    let high = error(_mm512_extractf32x8_ps::<1>(norms), (far >> 8) as u8);
                    let (scores, certain) = sixteen_certain(sums, [low, high]);
                    open[row] |= !certain;
                    scores
                };
                let to = out.at.add((done.first + row) * out.stride + 16 * half);
                _mm512_storeu_ps(to, _mm512_mul_ps(scores, units));
            }
        }
    }
}
