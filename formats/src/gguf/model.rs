//! A model on disk: one file or a set of shards, with the bytes behind it.

use std::collections::HashMap;

use super::split;
use super::{Blob, Dialect, ErrorKind, GgufError, Metadata, Shard, TensorInfo, Value};
use crate::types::TypeId;

/// A model: one file, or all shards of a split set in order. Metadata is the first shard's.
pub struct ModelFile {
    shards: Vec<Shard>,
    /// Tensor name to shard and row.
    index: HashMap<String, (usize, usize)>,
    /// Tensors that are taken for those of the files, by name.
    replaced: HashMap<String, TensorView>,
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
    /// outside a shard's bytes unless its header is [partial](super::Gguf::partial).
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
                    return Err(GgufError::new(field(), ErrorKind::DataTruncated { start, end, len }));
                }
                if index.insert(info.name.clone(), (s, t)).is_some() {
                    return Err(GgufError::new(field(), ErrorKind::Duplicate));
                }
            }
        }
        Ok(ModelFile { shards, index, replaced: HashMap::new() })
    }

    /// The metadata of the model: the first shard's.
    pub fn meta(&self) -> &Metadata {
        &self.shards[0].gguf.meta
    }

    /// Takes `key` for `value`, whatever the file says. Nothing is written.
    pub fn set_meta(&mut self, key: &str, value: Value) {
        self.shards[0].gguf.meta.set(key, value);
    }

    /// Takes `data` of type `ty` for that of a tensor, whatever the file has. Nothing is written.
    ///
    /// # Errors
    /// No such tensor; not as many bytes as its weights take in that type.
    pub fn replace(&mut self, name: &str, ty: TypeId, data: Vec<u8>) -> Result<(), GgufError> {
        let field = || format!("tensor '{name}'");
        let info = self.tensor_info(name).ok_or_else(|| GgufError::new(field(), ErrorKind::Missing))?;
        let (columns, rows) = (info.shape.first().copied().unwrap_or(1), info.shape.iter().skip(1).product());
        let (found, size) = (data.len() as u64, ty.info().and_then(|ty| ty.tensor_bytes(columns, rows)));
        let expected = size.ok_or_else(|| GgufError::new(field(), ErrorKind::UnknownSize { ty }))?;
        if found != expected {
            return Err(GgufError::new(field(), ErrorKind::DataLength { found, expected }));
        }
        let info = TensorInfo { ty, bytes: found, ..info.clone() };
        self.replaced.insert(name.to_owned(), TensorView { info, data: Blob::from_vec(data) });
        Ok(())
    }

    /// All tensors are those of the files again.
    pub fn restore(&mut self) {
        self.replaced.clear();
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
        let all = self.shards.iter().flat_map(|s| s.gguf.tensors.iter());
        all.map(|info| self.replaced.get(&info.name).map_or(info, |view| &view.info))
    }

    /// Number of tensors in all shards.
    pub fn n_tensors(&self) -> usize {
        self.index.len()
    }

    /// The table row of a tensor.
    pub fn tensor_info(&self, name: &str) -> Option<&TensorInfo> {
        if let Some(view) = self.replaced.get(name) {
            return Some(&view.info);
        }
        let &(s, t) = self.index.get(name)?;
        Some(&self.shards[s].gguf.tensors[t])
    }

    /// The shard a tensor lies in.
    pub fn shard_of(&self, name: &str) -> Option<&Shard> {
        self.index.get(name).map(|&(s, _)| &self.shards[s])
    }

    /// A tensor with its data; `None` also where a file that ends early has not all of it.
    pub fn tensor(&self, name: &str) -> Option<TensorView> {
        if let Some(view) = self.replaced.get(name) {
            return Some(view.clone());
        }
        let &(s, t) = self.index.get(name)?;
        let info = self.shards[s].gguf.tensors[t].clone();
        let data = self.shards[s].data(&info)?;
        Some(TensorView { info, data })
    }

    /// The data of a tensor of this model, found by its name.
    pub fn tensor_data(&self, info: &TensorInfo) -> Option<Blob> {
        if let Some(view) = self.replaced.get(&info.name) {
            return Some(view.data.clone());
        }
        let &(s, t) = self.index.get(&info.name)?;
        self.shards[s].data(&self.shards[s].gguf.tensors[t])
    }
}
