//! One file of a model: its header and the bytes behind it, shared by all who use a part of them.

use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::Arc;

use super::file::SourceFile;
use super::{Gguf, TensorInfo};

/// Shared ownership of the bytes of one file, mapped or read.
pub type Bytes = Arc<dyn ByteStore>;

/// Where a file's bytes are.
pub trait ByteStore: AsRef<[u8]> + Send + Sync {
    /// Says that the bytes `range` are not needed for now: a mapped file may drop the pages and read them
    /// again should they be wanted after all.
    fn release(&self, range: Range<usize>) {
        let _ = range;
    }

    /// Announces that the bytes `range` will be read soon: a mapped file may prefetch them.
    fn need(&self, range: Range<usize>) {
        let _ = range;
    }

    /// The open file that the bytes lie in, for who reads them once and does not want them mapped; `None` when they
    /// are in memory.
    fn file(&self) -> Option<&SourceFile> {
        None
    }
}

impl ByteStore for Vec<u8> {}

/// A part of a file's bytes that keeps the file alive.
#[derive(Clone)]
pub struct Blob {
    owner: Bytes,
    range: Range<usize>,
}

impl Blob {
    /// The bytes `range` of `owner`; `None` when they are not all there.
    pub fn new(owner: Bytes, range: Range<usize>) -> Option<Blob> {
        (*owner).as_ref().get(range.clone())?;
        Some(Blob { owner, range })
    }

    /// A part of this blob; `None` when it is not all there.
    pub fn slice(&self, range: Range<usize>) -> Option<Blob> {
        self.get(range.clone())?;
        let start = self.range.start + range.start;
        Some(Blob { owner: self.owner.clone(), range: start..start + range.len() })
    }

    /// Tells the owner that these bytes are not needed for now ([`ByteStore::release`]).
    pub fn release(&self) {
        self.owner.release(self.range.clone());
    }

    /// Tells the owner that these bytes will be wanted soon ([`ByteStore::need`]).
    pub fn need(&self) {
        self.owner.need(self.range.clone());
    }

    /// The blob from the beginning of the first of the two to the end of the last; `None` when they are not of one
    /// file.
    pub fn span(&self, other: &Blob) -> Option<Blob> {
        let (a, b) = (&self.range, &other.range);
        Arc::ptr_eq(&self.owner, &other.owner)
            .then(|| Blob { owner: self.owner.clone(), range: a.start.min(b.start)..a.end.max(b.end) })
    }

    /// Bytes that nothing else owns.
    pub fn from_vec(bytes: Vec<u8>) -> Blob {
        let range = 0..bytes.len();
        Blob { owner: Arc::new(bytes), range }
    }
}

impl Deref for Blob {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

/// One file of a model.
pub struct Shard {
    /// Where it came from, for messages.
    pub path: PathBuf,
    /// Its header.
    pub gguf: Gguf,
    /// Its bytes.
    pub bytes: Bytes,
}

impl Shard {
    /// The data of a tensor of this shard.
    pub fn data(&self, info: &TensorInfo) -> Option<Blob> {
        let start = self.gguf.data_offset.checked_add(info.offset)?;
        let end = start.checked_add(info.bytes)?;
        Blob::new(self.bytes.clone(), usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }
}
