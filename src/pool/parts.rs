//! Slices and matrices whose parts are written by different tasks.

use super::handle::for_each;

/// A slice whose disjoint parts are written by different tasks.
pub struct Parts<'a, T> {
    data: *mut T,
    len: usize,
    borrow: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: a part is handed out as `&mut [T]`, which may move between threads when `T` may; `part` leaves
// it to its caller that parts do not overlap.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    /// Parts of `data`.
    pub fn new(data: &'a mut [T]) -> Parts<'a, T> {
        Parts { data: data.as_mut_ptr(), len: data.len(), borrow: std::marker::PhantomData }
    }

    /// Elements `range`.
    ///
    /// # Safety
    /// No two parts that are alive at the same time overlap.
    ///
    /// # Panics
    /// When the range is not inside the slice.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part(&self, range: std::ops::Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part outside its slice");
        // SAFETY: inside the slice, as just checked, and not aliased, as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(range.start), range.len()) }
    }
}

/// Calls `f(i, chunk i)` for the chunks of `size` elements of `data`, the last of which may be shorter.
pub fn chunks_mut<T: Send>(data: &mut [T], size: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    let len = data.len();
    let parts = Parts::new(data);
    for_each(len.div_ceil(size.max(1)), |i| {
        // SAFETY: chunk i is asked for once, and chunks do not overlap.
        f(i, unsafe { parts.part(i * size..len.min((i + 1) * size)) });
    });
}

/// Calls `f(i, chunk i of a, chunk i of b)` for the chunks of `size` elements of two slices of one length, the last of
/// which may be shorter.
///
/// # Panics
/// When the lengths differ.
pub fn chunk_pairs_mut<T: Send>(a: &mut [T], b: &mut [T], size: usize, f: impl Fn(usize, &mut [T], &mut [T]) + Sync) {
    let len = a.len();
    assert_eq!(len, b.len(), "lengths of a pair of slices");
    let (a, b) = (Parts::new(a), Parts::new(b));
    for_each(len.div_ceil(size.max(1)), |i| {
        let chunk = i * size..len.min((i + 1) * size);
        // SAFETY: chunk i is asked for once, and chunks do not overlap.
        let [a, b] = unsafe { [a.part(chunk.clone()), b.part(chunk)] };
        f(i, a, b);
    });
}

/// A rectangle of a matrix, for one task to write.
pub struct Tile<'a, T> {
    parts: &'a Parts<'a, T>,
    width: usize,
    /// Its rows of the matrix.
    pub rows: std::ops::Range<usize>,
    /// Its columns.
    pub cols: std::ops::Range<usize>,
}

impl<T> Tile<'_, T> {
    /// The tile's part of its row `i`, counted from the first of its rows.
    ///
    /// # Panics
    /// When the tile has no such row.
    pub fn row(&mut self, i: usize) -> &mut [T] {
        assert!(i < self.rows.len(), "row outside its tile");
        let at = (self.rows.start + i) * self.width;
        // SAFETY: tiles do not overlap, and the borrow of this one lasts as long as the row's.
        unsafe { self.parts.part(at + self.cols.start..at + self.cols.end) }
    }
}

/// Calls `f` for all tiles of `size` = (rows, columns) of a matrix with rows of `width`, the last of which may be
/// smaller; the bottom rows are handed out first.
pub fn tiles_mut<T: Send>(data: &mut [T], width: usize, size: (usize, usize), f: impl Fn(Tile<'_, T>) + Sync) {
    let height = data.len().checked_div(width).unwrap_or(0);
    let (rows, cols) = (size.0.max(1), size.1.max(1));
    let (down, across) = (height.div_ceil(rows), width.div_ceil(cols));
    let parts = Parts::new(data);
    for_each(down * across, |i| {
        let (row, col) = ((down - 1 - i / across) * rows, i % across * cols);
        f(Tile { parts: &parts, width, rows: row..height.min(row + rows), cols: col..width.min(col + cols) });
    });
}

/// Calls `f(block, tile)` for every block of rows, cut into tiles of `cols` columns, of a matrix with rows of `width`;
/// the blocks are handed out in order.
///
/// # Panics
/// When two blocks overlap.
pub fn blocks_mut<T: Send>(
    data: &mut [T],
    width: usize,
    blocks: &[std::ops::Range<usize>],
    cols: usize,
    f: impl Fn(usize, Tile<'_, T>) + Sync,
) {
    let mut sorted: Vec<_> = blocks.iter().map(|b| (b.start, b.end)).collect();
    sorted.sort_unstable();
    let apart = sorted.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    assert!(apart, "blocks of rows overlap");
    let cols = cols.max(1);
    let across = width.div_ceil(cols);
    let parts = Parts::new(data);
    for_each(blocks.len() * across, |i| {
        let col = i % across * cols;
        let tile = Tile { parts: &parts, width, rows: blocks[i / across].clone(), cols: col..width.min(col + cols) };
        f(i / across, tile);
    });
}
