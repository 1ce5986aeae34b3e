//! Memory for packed weights: few large anonymous maps, with 2 MB pages where the system gives them.
//!
//! A core reads a quarter more from memory with 2 MB pages than with 4 KB ones; single matrices
//! of small models are too small for them, so all share a map, in the order in which they are read.

use std::io;
use std::slice;
use std::sync::Arc;

use memmap2::{MmapMut, MmapOptions, MmapRaw};
use trine_formats::gguf::{Blob, ByteStore};

use crate::AlignedBytes;

/// Size of a map; untouched parts take no memory.
const CHUNK: usize = 256 << 20;
/// Start of every region: a line of the cache, so that vector loads do not straddle two.
const ALIGN: usize = 64;
/// A large page.
const PAGE: usize = 2 << 20;

/// A part of a map that was written and is only read from now on. It keeps the map alive.
///
/// The map is shared with regions that other threads read while the next one is written, so no slice of the whole map
/// exists at any time: each region has one of its own bytes alone.
struct Region {
    map: Arc<MmapRaw>,
    start: usize,
    len: usize,
}

impl AsRef<[u8]> for Region {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `Arena::region` makes a value only for bytes that lie in the map and were all written or zero, hands
        // each byte to one region, and does not write to it again; `self.map` keeps the map for as long as the slice is
        // borrowed.
        unsafe { slice::from_raw_parts(self.map.as_ptr().add(self.start), self.len) }
    }
}

impl ByteStore for Region {}

/// A region where there are no maps.
struct Heap(AlignedBytes);

impl AsRef<[u8]> for Heap {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl ByteStore for Heap {}

/// Hands out regions of large maps.
#[derive(Default)]
pub struct Arena {
    map: Option<Arc<MmapRaw>>,
    /// First byte of the map that was not handed out.
    used: usize,
    total: usize,
}

impl Arena {
    /// A region of `len` bytes, written once by `fill` and read-only from then on; `None` when `fill`
    /// says that it did not succeed, and the region goes back.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn region(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> io::Result<Option<Blob>> {
        let map = match self.map.take() {
            Some(map) if map.len() - self.used >= len => map,
            _ => match new_map(len.max(CHUNK)) {
                Ok(map) => {
                    // Maps need not start at a large page; what lies before the first is as good as any.
                    self.used = 0;
                    Arc::new(map)
                }
                // There are no maps in WebAssembly: each region has memory of its own there.
                Err(e) if e.kind() == io::ErrorKind::Unsupported => return Ok(self.in_heap(len, fill)),
                Err(e) => return Err(e),
            },
        };
        let start = self.used;
        // SAFETY: `start + len` is at most the map's length, which was compared above or is that of a new map. The
        // bytes from `used` on belong to no `Region`, and `self` is borrowed alone, so nothing else reads or writes
        // them meanwhile.
        let bytes = unsafe { slice::from_raw_parts_mut(map.as_mut_ptr().add(start), len) };
        let region = fill(bytes).then(|| Region { map: map.clone(), start, len });
        if region.is_some() {
            self.used = (start + len).next_multiple_of(ALIGN).min(map.len());
            self.total += len;
        }
        self.map = Some(map);
        Ok(region.and_then(|region| Blob::new(Arc::new(region), 0..len)))
    }

    /// [`Arena::region`] in memory of the heap.
    fn in_heap(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> Option<Blob> {
        let mut bytes = AlignedBytes::new(len);
        fill(&mut bytes).then_some(())?;
        self.total += len;
        Blob::new(Arc::new(Heap(bytes)), 0..len)
    }

    /// Bytes of all regions.
    pub fn bytes(&self) -> usize {
        self.total
    }
}

/// A map of at least `len` bytes of zeros, which only pointers reach.
fn new_map(len: usize) -> io::Result<MmapRaw> {
    let len = len.checked_next_multiple_of(PAGE);
    let len = len.ok_or(io::ErrorKind::OutOfMemory)?;
    // Swap space is not reserved for what is never touched.
    let map: MmapMut = MmapOptions::new().len(len).no_reserve_swap().map_anon()?;
    #[cfg(target_os = "linux")]
    {
        // Only a wish: without large pages everything works, a little slower.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    Ok(map.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_keep_their_bytes_and_do_not_overlap() {
        let mut arena = Arena::default();
        let mut regions = Vec::new();
        for i in 0..200u32 {
            let len = (i * i % 977) as usize;
            let fill = |r: &mut [u8]| {
                r.fill(i as u8);
                i % 3 != 0
            };
            let region = arena.region(len, fill).expect("memory");
            assert_eq!(region.is_some(), i % 3 != 0);
            regions.extend(region.map(|r| (i, len, r)));
        }
        for (i, len, region) in &regions {
            assert_eq!(region.len(), *len);
            assert_eq!(region.as_ptr() as usize % 64, 0);
            assert!(region.iter().all(|&b| b == *i as u8));
        }
        let total: usize = regions.iter().map(|r| r.1).sum();
        assert_eq!(arena.bytes(), total);
    }

    #[test]
    fn regions_of_the_heap_are_aligned_too() {
        let mut arena = Arena::default();
        assert!(arena.in_heap(100, |_| false).is_none());
        let region = arena.in_heap(100, |r| {
            r.fill(7);
            true
        });
        let region = region.expect("filled");
        assert!(region.as_ptr().addr().is_multiple_of(ALIGN) && region.iter().all(|&b| b == 7));
        assert_eq!((region.len(), arena.bytes()), (100, 100));
    }

    #[test]
    fn a_region_may_be_larger_than_a_chunk() {
        let mut arena = Arena::default();
        let len = CHUNK + 1;
        let region = arena.region(len, |r| {
            r[len - 1] = 7;
            true
        });
        let region = region.expect("memory").expect("filled");
        assert_eq!((region.len(), region[len - 1]), (len, 7));
    }
}
