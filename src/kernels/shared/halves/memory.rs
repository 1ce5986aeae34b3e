//! Memory of the cache.

use std::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};

use super::Line;

/// From this many bytes on a region asks for large pages: read by one core in sequence they give a quarter more.
/// The last of them may be empty, which is to be little of the whole.
const LARGE: usize = 8 << 20;
/// A large page.
const PAGE: usize = 2 << 20;

/// Zeroed lines; as many as asked for or a few more.
pub struct Lines(Backing);

/// Memory of the lines: of the heap, or a map of large pages.
enum Backing {
    Heap(Vec<Line>),
    Map(MmapMut),
}

impl Lines {
    /// At least `len` zeros.
    pub fn new(len: usize) -> Lines {
        let bytes = len * size_of::<Line>();
        if bytes >= LARGE {
            // Without a map, or without large pages, all is as well, a little slower.
            let map = MmapOptions::new().len(bytes.next_multiple_of(PAGE)).map_anon();
            if let Ok(map) = map {
                #[cfg(target_os = "linux")]
                let _ = map.advise(memmap2::Advice::HugePage);
                return Lines(Backing::Map(map));
            }
        }
        Lines(Backing::Heap(vec![Line::default(); len]))
    }
}

impl Deref for Lines {
    type Target = [Line];

    fn deref(&self) -> &[Line] {
        match &self.0 {
            Backing::Heap(lines) => lines,
            // SAFETY: a map starts at a page and its size is whole lines; any bytes are words.
            Backing::Map(map) => unsafe {
                std::slice::from_raw_parts(map.as_ptr().cast(), map.len() / size_of::<Line>())
            },
        }
    }
}

impl DerefMut for Lines {
    fn deref_mut(&mut self) -> &mut [Line] {
        match &mut self.0 {
            Backing::Heap(lines) => lines,
            Backing::Map(map) => {
                let len = map.len() / size_of::<Line>();
                // SAFETY: a map starts at a page and its size is whole lines; any bytes are words; `self` is borrowed
                // alone.
                unsafe { std::slice::from_raw_parts_mut(map.as_mut_ptr().cast(), len) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_regions_are_zeroed_and_writable() {
        for bytes in [0, 64, 4096, LARGE - 64, LARGE, LARGE + 64] {
            let len = bytes / size_of::<Line>();
            let mut lines = Lines::new(len);
            assert!(lines.len() >= len && lines.len() <= len + PAGE / size_of::<Line>());
            assert!(lines.iter().all(|line| line.0 == [0; 8]));
            if let Some(last) = lines.last_mut() {
                last.0[7] = 1;
                assert_eq!(lines.iter().map(|line| line.0[7]).sum::<u64>(), 1);
            }
        }
    }
}
