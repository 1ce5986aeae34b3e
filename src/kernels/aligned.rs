//! Working memory: buffers that start on a cache line and are used again.
//!
//! A forward pass wants the same few dozen buffers for every layer. Memory fresh from the system costs
//! a page fault per 4 KB, as much as writing it several times, so a buffer that is dropped is kept
//! by its thread for the next one.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Buffers that a thread keeps; the forward pass has fewer at a time.
const KEPT: usize = 24;

thread_local! {
    static FREE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes aligned to 64.
#[derive(Default)]
pub struct AlignedBytes {
    lines: Vec<Line>,
    len: usize,
}

impl AlignedBytes {
    /// `len` zeros.
    pub fn new(len: usize) -> AlignedBytes {
        let mut bytes = AlignedBytes::scratch(len);
        bytes.fill(0);
        bytes
    }

    /// `len` bytes of anything, for who writes all of them before reading.
    pub fn scratch(len: usize) -> AlignedBytes {
        let count = len.div_ceil(64);
        let kept = FREE.with_borrow_mut(|free| {
            let fits = free.iter().enumerate().filter(|(_, l)| l.len() >= count);
            let best = fits.min_by_key(|(_, l)| l.len()).map(|(i, _)| i);
            best.map(|i| free.swap_remove(i))
        });
        AlignedBytes { lines: kept.unwrap_or_else(|| vec![Line([0; 64]); count]), len }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        if lines.is_empty() {
            return;
        }
        // At the end of a thread there is no list any more; then the memory just goes.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            free.push(lines);
            if free.len() > KEPT {
                let least = free.iter().enumerate().min_by_key(|(_, l)| l.len());
                if let Some(i) = least.map(|(i, _)| i) {
                    free.swap_remove(i);
                }
            }
        });
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes of whole lines, which are plain bytes.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes of whole lines, which are plain bytes; `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

/// Whole `f64` in bytes.
///
/// # Panics
/// When the bytes are not aligned to them.
pub(crate) fn doubles(bytes: &[u8]) -> &[f64] {
    assert!(bytes.as_ptr().cast::<f64>().is_aligned(), "alignment");
    // SAFETY: whole `f64`, aligned as just seen; any bits are one.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / 8) }
}

/// Floats aligned to 64 bytes.
#[derive(Default)]
pub struct Floats {
    bytes: AlignedBytes,
}

impl Floats {
    /// `len` floats of any value, for who writes all of them before reading.
    pub fn scratch(len: usize) -> Floats {
        Floats { bytes: AlignedBytes::scratch(4 * len) }
    }
}

impl Deref for Floats {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: whole floats, aligned to 64 bytes; any bits are a float.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.bytes.len() / 4) }
    }
}

impl DerefMut for Floats {
    fn deref_mut(&mut self) -> &mut [f32] {
        let len = self.bytes.len() / 4;
        // SAFETY: whole floats, aligned to 64 bytes; any bits are a float; `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_mut_ptr().cast(), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let mut first = AlignedBytes::new(1000);
        assert!(first.len() == 1000 && first.as_ptr().addr().is_multiple_of(64));
        first[999] = 7;
        let at = first.as_ptr();
        drop(first);
        let again = AlignedBytes::scratch(961);
        assert_eq!((again.as_ptr(), again.len()), (at, 961));
        let other = Floats::scratch(3);
        assert_eq!(other.len(), 3);
        assert!(AlignedBytes::new(1000).iter().all(|&b| b == 0));
    }
}
