//! Memory for packed weights: few large anonymous maps, with 2 MB pages where the system gives them.
//!
//! A core reads a quarter more from memory with 2 MB pages than with 4 KB ones; single matrices
//! of small models are too small for them, so all share a map, in the order in which they are read.

use std::io;
use std::sync::Arc;

use memmap2::{MmapMut, MmapOptions};
use trine_formats::gguf::{Blob, ByteStore};

/// Size of a map; untouched parts take no memory.
const CHUNK: usize = 256 << 20;
/// Start of every region: a line of the cache, so that vector loads do not straddle two.
const ALIGN: usize = 64;
/// A large page.
const PAGE: usize = 2 << 20;

struct Chunk {
    map: MmapMut,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

impl ByteStore for Chunk {}

/// Hands out regions of large maps.
#[derive(Default)]
pub struct Arena {
    chunk: Option<Arc<Chunk>>,
    /// First byte of the chunk that was not handed out.
    used: usize,
    total: usize,
}

impl Arena {
    /// A region of `len` bytes, written once by `fill` and read-only from then on; `None` when `fill`
    /// says that it did not succeed, and the region goes back.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn region(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> io::Result<Option<Blob>> {
        let chunk = match self.chunk.take() {
            Some(chunk) if chunk.map.len() - self.used >= len => chunk,
            _ => {
                let chunk = Chunk {
                    map: map(len.max(CHUNK))?,
                };
                // Maps need not start at a large page; what lies before the first is as good as any.
                self.used = 0;
                Arc::new(chunk)
            }
        };
        let start = self.used;
        let at = chunk.map.as_ptr().wrapping_add(start).cast_mut();
        // SAFETY: the region lies in the map (checked above), nobody else has seen it (`used` only
        // grows within a chunk, except for a region nobody kept), and the map is writable memory
        // of its own that the chunk keeps alive.
        let region = unsafe { std::slice::from_raw_parts_mut(at, len) };
        let blob = fill(region)
            .then(|| Blob::new(chunk.clone(), start..start + len))
            .flatten();
        if blob.is_some() {
            self.used = (start + len).next_multiple_of(ALIGN).min(chunk.map.len());
            self.total += len;
        }
        self.chunk = Some(chunk);
        Ok(blob)
    }

    /// Bytes of all regions.
    pub fn bytes(&self) -> usize {
        self.total
    }
}

fn map(len: usize) -> io::Result<MmapMut> {
    // Swap space is not reserved for what is never touched.
    let map = MmapOptions::new()
        .len(len.next_multiple_of(PAGE))
        .no_reserve_swap()
        .map_anon()?;
    #[cfg(target_os = "linux")]
    {
        // Only a wish: without large pages everything works, a little slower.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    Ok(map)
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
