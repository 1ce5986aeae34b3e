//! A model on disk: one file or a set of shards, with the bytes behind it.

use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::Arc;

use super::split;
use super::{Dialect, ErrorKind, Gguf, GgufError, Metadata, TensorInfo};

/// Shared ownership of the bytes of one file, mapped or read.
pub type Bytes = Arc<dyn ByteStore>;

/// Where a file's bytes are.
pub trait ByteStore: AsRef<[u8]> + Send + Sync {
    /// Says that the bytes `range` are not needed for now: a mapped file may drop the pages and read them
    /// again should they be wanted after all.
    fn release(&self, range: Range<usize>) {
        let _ = range;
    }

    /// Says that the bytes `range` will be wanted soon: of a mapped file they may be read ahead.
    fn need(&self, range: Range<usize>) {
        let _ = range;
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
        Some(Blob {
            owner: self.owner.clone(),
            range: start..start + range.len(),
        })
    }

    /// Tells the owner that these bytes are not needed for now ([`ByteStore::release`]).
    pub fn release(&self) {
        self.owner.release(self.range.clone());
    }

    /// Tells the owner that these bytes will be wanted soon ([`ByteStore::need`]).
    pub fn need(&self) {
        self.owner.need(self.range.clone());
    }

    /// The blob from the beginning of the first of the two to the end of the last; `None` when they are not of one file.
    pub fn span(&self, other: &Blob) -> Option<Blob> {
        let (a, b) = (&self.range, &other.range);
        Arc::ptr_eq(&self.owner, &other.owner).then(|| Blob {
            owner: self.owner.clone(),
            range: a.start.min(b.start)..a.end.max(b.end),
        })
    }

    /// Bytes that nothing else owns.
    pub fn from_vec(bytes: Vec<u8>) -> Blob {
        let range = 0..bytes.len();
        Blob {
            owner: Arc::new(bytes),
            range,
        }
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
        Blob::new(
            self.bytes.clone(),
            usize::try_from(start).ok()?..usize::try_from(end).ok()?,
        )
    }
}

/// A model: one file, or all shards of a split set in order. Metadata is the first shard's.
pub struct ModelFile {
    shards: Vec<Shard>,
    /// Tensor name to shard and row.
    index: HashMap<String, (usize, usize)>,
}

/// A tensor with its data.
#[derive(Clone)]
pub struct TensorView {
    /// The row of the tensor table.
    pub info: TensorInfo,
    /// Exactly `info.bytes` bytes.
    pub data: Blob,
}

impl ModelFile {
    /// Joins the shards of a model, which must be all there and in order; one unsplit file is a set of one.
    ///
    /// # Errors
    /// Shards missing, of another set or in the wrong place, a tensor that two shards hold, and data
    /// outside a shard's bytes unless its header is [partial](Gguf::partial).
    pub fn new(shards: Vec<Shard>) -> Result<ModelFile, GgufError> {
        split::check(&shards)?;
        let mut index = HashMap::with_capacity(shards.iter().map(|s| s.gguf.tensors.len()).sum());
        for (s, shard) in shards.iter().enumerate() {
            for (t, info) in shard.gguf.tensors.iter().enumerate() {
                let field = || format!("tensor '{}'", info.name);
                if !shard.gguf.partial && shard.data(info).is_none() {
                    let len = (*shard.bytes).as_ref().len() as u64;
                    let start = shard.gguf.data_offset.saturating_add(info.offset);
                    let end = start.saturating_add(info.bytes);
                    return Err(GgufError::new(
                        field(),
                        ErrorKind::DataTruncated { start, end, len },
                    ));
                }
                if index.insert(info.name.clone(), (s, t)).is_some() {
                    return Err(GgufError::new(field(), ErrorKind::Duplicate));
                }
            }
        }
        Ok(ModelFile { shards, index })
    }

    /// The metadata of the model: the first shard's.
    pub fn meta(&self) -> &Metadata {
        &self.shards[0].gguf.meta
    }

    /// Whose type numbers the files use.
    pub fn dialect(&self) -> Dialect {
        let mut all = self.shards.iter().map(|s| s.gguf.dialect);
        all.find(|&d| d != Dialect::Ggml).unwrap_or_default()
    }

    /// The files, in order of `split.no`; at least one.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// All tensors, shard by shard in file order.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.shards.iter().flat_map(|s| s.gguf.tensors.iter())
    }

    /// Number of tensors in all shards.
    pub fn n_tensors(&self) -> usize {
        self.index.len()
    }

    /// The table row of a tensor.
    pub fn tensor_info(&self, name: &str) -> Option<&TensorInfo> {
        let &(s, t) = self.index.get(name)?;
        Some(&self.shards[s].gguf.tensors[t])
    }

    /// The shard a tensor lies in.
    pub fn shard_of(&self, name: &str) -> Option<&Shard> {
        self.index.get(name).map(|&(s, _)| &self.shards[s])
    }

    /// A tensor with its data; `None` also where a file that ends early has not all of it.
    pub fn tensor(&self, name: &str) -> Option<TensorView> {
        let &(s, t) = self.index.get(name)?;
        let info = self.shards[s].gguf.tensors[t].clone();
        let data = self.shards[s].data(&info)?;
        Some(TensorView { info, data })
    }

    /// The data of a tensor of this model, found by its name.
    pub fn tensor_data(&self, info: &TensorInfo) -> Option<Blob> {
        let &(s, t) = self.index.get(&info.name)?;
        self.shards[s].data(&self.shards[s].gguf.tensors[t])
    }
}
