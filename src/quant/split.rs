//! One file into several and back: the files of llama-gguf-split, byte for byte.
//!
//! The first file of a set has all metadata, the others the three keys that hold the set together and nothing else.
//! Tensors keep their order and their bytes.

use std::ops::Range;

use thiserror::Error;
use trine_formats::gguf::{Metadata, ModelFile, TensorInfo, Value, split};

use super::copy::{self, Copying};
use super::metadata::{add_split, c_strings};
use super::plan::{OutputFiles, Plan};
use super::row::{OutShard, Row, StoredTensor, raw, sources};
use super::work::RunError;

/// Where ggml's writer places tensors: at multiples of this, whatever a file says.
const ALIGNMENT: u64 = 32;

/// Where a file ends and the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitLimit {
    /// After this number of tensors, above 0.
    Tensors(usize),
    /// Before the tensor with which the tensors of a file would have more bytes than this.
    Bytes(u64),
}

/// How a model is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitOptions {
    /// The most that a file may hold.
    pub limit: SplitLimit,
    /// The first file holds metadata alone.
    pub no_tensor_first: bool,
}

/// Why a model is not split or merged.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum SplitError {
    #[error("the model is split already, into {0} files; merge them first")]
    AlreadySplit(usize),
    #[error("the model is no set of files: key split.count is missing")]
    NotSplit,
    #[error(
        "tensor {tensor} has {bytes} bytes, more than the limit of {limit}, and no file may be without tensors; give a larger --split-max-size"
    )]
    TooLarge { tensor: String, bytes: u64, limit: u64 },
    #[error("the model would become {0} files, and a set has at most 65535; give a larger limit")]
    TooMany(usize),
    #[error(
        "general.alignment is {0}, and llama-gguf-split places tensors at multiples of 32 all the same, which makes a damaged file; rquantize IN.gguf OUT.gguf COPY --override-kv general.alignment=int:32 makes one that can be split"
    )]
    Alignment(u64),
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Plans several files of one.
///
/// # Errors
/// The model is a set already; a tensor alone exceeds the limit where its file would be empty before it; more files
/// than a set can have; what ggml's writer would damage.
pub fn split(model: &ModelFile, options: SplitOptions) -> Result<Plan, SplitError> {
    if model.shards().len() > 1 {
        return Err(SplitError::AlreadySplit(model.shards().len()));
    }
    let tensors: Vec<&TensorInfo> = model.tensors().collect();
    let mut plan = planned(model, OutputFiles::Split { shards: true })?;
    let groups = groups(&tensors, options)?;
    let count = u16::try_from(groups.len()).map_err(|_| SplitError::TooMany(groups.len()))?;
    let shard = |(no, rows)| {
        let mut meta = if no == 0 { copied(model.meta()) } else { Metadata::default() };
        // The number of files is not known yet when the reference writes the keys, and moves to their end.
        add_split(&mut meta, no, 0, tensors.len());
        meta.set(split::KEY_COUNT, Value::U16(count));
        OutShard { meta, rows }
    };
    plan.shards = (0..).zip(groups).map(shard).collect();
    Ok(plan)
}

/// Plans one file of several.
///
/// # Errors
/// The model is no set; what ggml's writer would damage.
pub fn merge(model: &ModelFile) -> Result<Plan, SplitError> {
    if model.meta().get(split::KEY_COUNT).is_none() {
        return Err(SplitError::NotSplit);
    }
    let mut plan = planned(model, OutputFiles::Split { shards: false })?;
    let mut meta = copied(model.meta());
    // 0 says that there is no set, and the other keys stay.
    meta.set(split::KEY_COUNT, Value::U16(0));
    plan.shards = vec![OutShard { meta, rows: 0..plan.rows.len() }];
    Ok(plan)
}

/// All tensors as they are, in the order of the model, and no file yet.
fn planned(model: &ModelFile, files: OutputFiles) -> Result<Plan, SplitError> {
    match model.meta().get_u64("general.alignment").map_err(RunError::from)? {
        None | Some(ALIGNMENT) => {}
        Some(other) => return Err(SplitError::Alignment(other)),
    }
    let row = |place: StoredTensor<'_>| {
        let (name, shape) = (place.2.name.clone(), place.2.shape.clone());
        Row { shape, method: copy::NAME, ..raw(name, place) }
    };
    let rows = sources(model).into_iter().map(row).collect();
    Ok(Plan { files, methods: vec![Box::new(Copying)], ..Plan::of(rows) })
}

/// Keys in the reference's order and with its strings.
fn copied(meta: &Metadata) -> Metadata {
    let mut out = Metadata::default();
    for (key, value) in meta.iter() {
        out.set(key, c_strings(value));
    }
    out
}

/// Which tensors go into which file.
fn groups(tensors: &[&TensorInfo], options: SplitOptions) -> Result<Vec<Range<usize>>, SplitError> {
    let mut groups = vec![0..0; 1 + usize::from(options.no_tensor_first)];
    let mut bytes = 0u64;
    for (i, tensor) in tensors.iter().enumerate() {
        let own = tensor.bytes.next_multiple_of(ALIGNMENT);
        let ends = match options.limit {
            SplitLimit::Tensors(n) => i > 0 && i.is_multiple_of(n),
            SplitLimit::Bytes(limit) => bytes.saturating_add(own) > limit,
        };
        if ends {
            if let (SplitLimit::Bytes(limit), Some(true)) = (options.limit, groups.last().map(Range::is_empty)) {
                return Err(SplitError::TooLarge { tensor: tensor.name.clone(), bytes: tensor.bytes, limit });
            }
            groups.push(i..i);
            bytes = 0;
        }
        bytes = bytes.saturating_add(own);
        if let Some(last) = groups.last_mut() {
            last.end = i + 1;
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_formats::types::TypeId;

    fn tensors(bytes: &[u64]) -> Vec<TensorInfo> {
        let tensor = |(i, &bytes): (usize, &u64)| TensorInfo {
            name: format!("t{i}"),
            shape: vec![bytes],
            ty: TypeId::F32,
            offset: 0,
            bytes,
        };
        bytes.iter().enumerate().map(tensor).collect()
    }

    fn lengths(bytes: &[u64], limit: SplitLimit, no_tensor_first: bool) -> Vec<usize> {
        let tensors = tensors(bytes);
        let tensors: Vec<&TensorInfo> = tensors.iter().collect();
        let options = SplitOptions { limit, no_tensor_first };
        let groups = groups(&tensors, options).unwrap();
        assert!(groups.windows(2).all(|g| g[0].end == g[1].start));
        groups.iter().map(Range::len).collect()
    }

    #[test]
    fn files_end_where_the_limit_says() {
        let five = [1; 5];
        assert_eq!(lengths(&five, SplitLimit::Tensors(2), false), [2, 2, 1]);
        assert_eq!(lengths(&five, SplitLimit::Tensors(2), true), [0, 2, 2, 1]);
        assert_eq!(lengths(&five, SplitLimit::Tensors(9), false), [5]);
        // Each counts as a multiple of 32.
        assert_eq!(lengths(&five, SplitLimit::Bytes(64), false), [2, 2, 1]);
        assert_eq!(lengths(&five, SplitLimit::Bytes(63), true), [0, 1, 1, 1, 1, 1]);
        // A large tensor behind others has a file of its own.
        assert_eq!(lengths(&[1, 900, 1], SplitLimit::Bytes(64), false), [1, 1, 1]);
        assert_eq!(lengths(&[], SplitLimit::Tensors(1), false), [0]);
    }

    #[test]
    fn a_first_tensor_that_is_too_large_is_refused() {
        let tensors = tensors(&[65, 1]);
        let tensors: Vec<&TensorInfo> = tensors.iter().collect();
        for no_tensor_first in [false, true] {
            let options = SplitOptions { limit: SplitLimit::Bytes(64), no_tensor_first };
            let e = groups(&tensors, options).unwrap_err().to_string();
            assert!(e.starts_with("tensor t0 has 65 bytes, more than the limit of 64"));
        }
    }
}
