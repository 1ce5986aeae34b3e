//! Dense matrix products over strided views.
//!
//! An element of a product is summed in blocks of [`BLOCK`] terms: each block in order of k from 0, the
//! blocks one after the other. Tasks own rows of the result, so no number of threads changes a bit.

use rayon::prelude::*;

use super::real::Real;
use crate::kernels::Isa;
use crate::kernels::gemm::{COLUMNS, ROWS};

/// Terms that are summed on their own before they are added to an element.
pub const BLOCK: usize = 256;

/// A matrix inside a slice: element `(i, j)` is `data[i * strides[0] + j * strides[1]]`.
#[derive(Clone, Copy)]
pub struct View<'a, T> {
    data: &'a [T],
    rows: usize,
    columns: usize,
    strides: [usize; 2],
}

impl<'a, T> View<'a, T> {
    /// Rows of `columns` elements, one after the other.
    pub fn new(data: &'a [T], columns: usize) -> View<'a, T> {
        let rows = data.len() / columns.max(1);
        View { data, rows, columns, strides: [columns, 1] }
    }

    /// Columns and rows exchanged.
    pub fn transposed(self) -> View<'a, T> {
        View { rows: self.columns, columns: self.rows, strides: [self.strides[1], self.strides[0]], ..self }
    }

    /// Number of rows.
    pub fn height(self) -> usize {
        self.rows
    }

    /// A range of the rows.
    pub fn rows(self, range: std::ops::Range<usize>) -> View<'a, T> {
        let start = (range.start * self.strides[0]).min(self.data.len());
        View { data: &self.data[start..], rows: range.len(), ..self }
    }

    /// A range of the columns.
    pub fn columns(self, range: std::ops::Range<usize>) -> View<'a, T> {
        let turned = self.transposed().rows(range);
        turned.transposed()
    }
}

/// A right-hand side, rearranged: panels of [`COLUMNS`] columns, each with its rows one after the other,
/// the last filled up with zeros.
pub struct Packed<T> {
    data: Vec<T>,
    rows: usize,
    columns: usize,
}

impl<T: Real> Packed<T> {
    /// Rearranges `b`, in parallel.
    pub fn new(b: View<'_, T>) -> Packed<T> {
        let panel = (b.rows * COLUMNS).max(1);
        let mut data = vec![T::default(); b.columns.div_ceil(COLUMNS) * panel];
        data.par_chunks_mut(panel)
            .enumerate()
            .for_each(|(p, out)| pack::<T, COLUMNS>(b.transposed(), p * COLUMNS, out));
        Packed { data, rows: b.rows, columns: b.columns }
    }
}

/// Lines `first..first + N` of `m` side by side: `out[k][i] = m[first + i][k]`; zeros past the end.
fn pack<T: Real, const N: usize>(m: View<'_, T>, first: usize, out: &mut [T]) {
    let [across, along] = m.strides;
    let lines = N.min(m.rows - first);
    let (out, _) = out.as_chunks_mut::<N>();
    let data = &m.data[first * across..];
    if across == 1 && lines == N {
        for (k, out) in out.iter_mut().enumerate() {
            out.copy_from_slice(&data[k * along..][..N]);
        }
        return;
    }
    // A few k at a time, so that what is written stays in the first cache.
    const STEPS: usize = 64;
    for (step, out) in out.chunks_mut(STEPS).enumerate() {
        for i in 0..lines {
            let line = &data[i * across + step * STEPS * along..];
            for (out, &x) in out.iter_mut().zip(line.iter().step_by(along)) {
                out[i] = x;
            }
        }
    }
}

/// Where a product's elements go: rows of `stride` elements, of which those from `offset` on are covered.
#[derive(Clone, Copy)]
pub struct Place {
    /// From one row to the next.
    pub stride: usize,
    /// First column.
    pub offset: usize,
    /// True if the product is added to what is there.
    pub add: bool,
}

impl Place {
    /// Whole rows of `columns` elements, overwritten.
    pub fn whole(columns: usize) -> Place {
        Place { stride: columns, offset: 0, add: false }
    }
}

/// `c = a b`, or `c += a b`, in parallel. Where `a` has fewer columns than `b` has rows, the other rows of
/// `b` are left out.
pub fn multiply<T: Real>(isa: Isa, a: View<'_, T>, b: &Packed<T>, c: &mut [T], place: Place) {
    let rows = rows_per_task(a.rows, BLOCK);
    c.par_chunks_mut((rows * place.stride).max(1)).enumerate().for_each(|(task, c)| {
        let first = task * rows;
        let a = a.rows(first..first + c.len() / place.stride);
        multiply_here(isa, a, b, b.columns, c, place);
    });
}

/// Adds `fold` of every element of `a b` to an accumulator: `c[i][j] = fold(c[i][j], (a b)[i][j])`, in
/// parallel; the product is never in memory as a whole.
pub fn accumulate<T: Real>(isa: Isa, a: View<'_, T>, b: &Packed<T>, c: &mut [T], fold: fn(T, T) -> T) {
    let columns = b.columns;
    let rows = rows_per_task(a.rows, columns);
    c.par_chunks_mut((rows * columns).max(1)).enumerate().for_each(|(task, c)| {
        let mut part = vec![T::default(); c.len()];
        let first = task * rows;
        let a = a.rows(first..first + c.len() / columns);
        multiply_here(isa, a, b, columns, &mut part, Place::whole(columns));
        for (c, x) in c.iter_mut().zip(part) {
            *c = fold(*c, x);
        }
    });
}

/// [`multiply`] in the calling thread, for the first `columns` columns of `b`.
pub fn multiply_here<T: Real>(isa: Isa, a: View<'_, T>, b: &Packed<T>, columns: usize, c: &mut [T], place: Place) {
    let (k, stride) = (a.columns, place.stride);
    assert!(k <= b.rows && columns <= b.columns, "extents");
    assert!(place.offset + columns <= stride, "width of the result");
    assert!(a.rows * stride <= c.len(), "height of the result");
    if k == 0 {
        if !place.add {
            let rows = c.chunks_mut(stride).take(a.rows);
            rows.for_each(|row| row[place.offset..][..columns].fill(T::default()));
        }
        return;
    }
    let mut panels = vec![T::default(); a.rows.div_ceil(ROWS) * ROWS * k.min(BLOCK)];
    for block in (0..k).step_by(BLOCK) {
        let end = (block + BLOCK).min(k);
        let height = ROWS * (end - block);
        for (p, out) in panels.chunks_exact_mut(height).enumerate() {
            if p * ROWS < a.rows {
                pack::<T, ROWS>(a.columns(block..end), p * ROWS, out);
            }
        }
        let add = place.add || block > 0;
        for j in (0..columns).step_by(COLUMNS) {
            let panel = &b.data[j * b.rows..][..b.rows * COLUMNS];
            let panel = &panel[block * COLUMNS..end * COLUMNS];
            let width = COLUMNS.min(columns - j);
            let lines = panels.chunks_exact(height).take(a.rows.div_ceil(ROWS));
            for (i, lines) in lines.enumerate() {
                let tile = T::tile(isa, lines, panel);
                let rows = c[i * ROWS * stride..a.rows * stride].chunks_mut(stride);
                for (row, sums) in rows.zip(&tile) {
                    let row = &mut row[place.offset + j..][..width];
                    if add {
                        row.iter_mut().zip(sums).for_each(|(c, s)| *c += *s);
                    } else {
                        row.copy_from_slice(&sums[..width]);
                    }
                }
            }
        }
    }
}

/// Rows of one task: enough to share the reading of `b`, few enough that all threads have work and that
/// they stay in the second cache.
fn rows_per_task(rows: usize, width: usize) -> usize {
    let even = rows.div_ceil(2 * rayon::current_num_threads());
    let fitting = (1 << 17) / width.max(1);
    even.clamp(4 * ROWS, 128).min(fitting.max(4 * ROWS)).next_multiple_of(ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize, seed: u32) -> Vec<f32> {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from_bits((x >> 9) | 0x3f80_0000) - 1.5
        };
        (0..n).map(|_| next()).collect()
    }

    /// The definition: blocks of 256 terms.
    fn element(a: impl Fn(usize) -> f32, b: impl Fn(usize) -> f32, k: usize) -> f32 {
        let block = |from: usize| (from..(from + BLOCK).min(k)).fold(0f32, |s, t| s + a(t) * b(t));
        let mut blocks = (0..k).step_by(BLOCK).map(block);
        let first = blocks.next().unwrap_or(0.0);
        blocks.fold(first, |s, x| s + x)
    }

    #[test]
    #[cfg_attr(miri, ignore = "millions of products")]
    fn products_are_those_of_the_definition_at_any_thread_count() {
        for (m, k, n) in [(1, 1, 1), (5, 7, 3), (33, 300, 21), (70, 513, 40), (3, 256, 16)] {
            let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
            let bt: Vec<f32> = (0..n * k).map(|i| b[i % k * n + i / k]).collect();
            let at: Vec<f32> = (0..m * k).map(|i| a[i % m * k + i / m]).collect();
            let want: Vec<u32> =
                (0..m * n).map(|i| element(|t| a[i / n * k + t], |t| b[t * n + i % n], k).to_bits()).collect();
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
                pool.expect("threads").install(|| {
                    let lefts = [View::new(&a, k), View::new(&at, m).transposed()];
                    let rights = [View::new(&b, n), View::new(&bt, k).transposed()];
                    for (left, right) in lefts.into_iter().zip(rights) {
                        let packed = Packed::new(right);
                        let isa = Isa::detect();
                        let mut c = vec![9.0; m * n];
                        multiply(isa, left, &packed, &mut c, Place::whole(n));
                        let bits: Vec<u32> = c.iter().map(|v| v.to_bits()).collect();
                        assert_eq!(bits, want, "{m} x {k} x {n}");
                        let mut sums = vec![0.0; m * n];
                        accumulate(isa, left, &packed, &mut sums, |s, x| s + x * x);
                        let squares: Vec<f32> = c.iter().map(|v| 0.0 + v * v).collect();
                        assert_eq!(sums, squares);
                    }
                });
            }
        }
    }

    #[test]
    fn a_part_of_a_wider_result() {
        let (a, b) = (numbers(6 * 4, 3), numbers(8 * 5, 4));
        let packed = Packed::new(View::new(&b, 5));
        let mut c = vec![1.0; 6 * 9];
        let place = Place { stride: 9, offset: 2, add: true };
        multiply(Isa::scalar(), View::new(&a, 4), &packed, &mut c, place);
        for (i, row) in c.chunks_exact(9).enumerate() {
            let inside = |j: usize| {
                let sum = element(|t| a[i * 4 + t], |t| b[t * 5 + j], 4);
                1.0 + sum
            };
            let want = [1.0, 1.0, inside(0), inside(1), inside(2), inside(3), inside(4), 1.0, 1.0];
            assert_eq!(row, want);
        }
    }
}
