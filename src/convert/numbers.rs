//! Numbers that small tensors of a checkpoint hold: scales of packed matrices, and what becomes a key of the file.

use trine_formats::gguf::{Array, Metadata, Value};

use super::error::ConvertError;
use super::folder::Folder;
use super::slices::{Slice, Slices};
use super::source::Source;
use super::values::{Rule, Stored, is_float};
use crate::arch::{Role, TensorKey};
use crate::math;

/// Most numbers of a tensor that becomes a key.
const MOST: u64 = 1 << 16;

/// The numbers of tensor `index`, or what is wrong with it.
fn values(folder: &Folder, index: usize) -> Result<Result<Vec<f32>, String>, ConvertError> {
    let source = &folder.tensors[index];
    let t = &source.tensor;
    let elements: u64 = t.shape.iter().product();
    if elements == 0 || elements > MOST || !is_float(t.dtype) {
        return Ok(Err(format!("'{}' is of shape {:?} and type {}, expected floats", t.name, t.shape, t.dtype.name())));
    }
    let slice = Slice {
        tensor: t.name.as_str().into(),
        shard: source.shard,
        offset: t.offset,
        first: 0,
        rows: 1,
        every: 1,
        transposed: None,
    };
    let stored = Stored {
        slices: Slices::new(vec![slice]),
        dtype: t.dtype,
        rows: 1,
        columns: elements,
        pair_heads: None,
        turns: None,
        rule: Rule::Plain,
        factors: Vec::new(),
        times: None,
        ones: 0,
        flat: false,
        role: Role::Vector,
        ty: None,
    };
    let (mut raw, mut out) = (Vec::new(), Vec::new());
    stored.fetch(&folder.shards, 0..1, &mut raw, &mut out).map_err(|fault| fault.blame(&stored))?;
    Ok(Ok(out))
}

/// The one number of tensor `index`, or what is wrong with it.
fn number(folder: &Folder, index: usize) -> Result<Result<f32, String>, ConvertError> {
    let t = &folder.tensors[index].tensor;
    if t.shape.iter().product::<u64>() != 1 || !is_float(t.dtype) {
        return Ok(Err(format!(
            "'{}' is of shape {:?} and type {}, expected one float",
            t.name,
            t.shape,
            t.dtype.name()
        )));
    }
    Ok(values(folder, index)?.map(|all| all[0]))
}

/// The one value of a `weight_scale`, or what is wrong with it.
pub(super) fn scale(folder: &Folder, index: usize) -> Result<Result<f32, String>, ConvertError> {
    Ok(number(folder, index)?.and_then(|scale| {
        if scale > 0.0 && (1.0 / scale).is_finite() {
            return Ok(scale);
        }
        Err(format!("'{}' is {scale:e}, expected a scale above 0", folder.tensors[index].tensor.name))
    }))
}

/// Sets the keys that take numbers of tensors, in the order of the reference, which sets one when it has seen the last
/// of its tensors.
pub(super) fn keys(folder: &Folder, source: &Source, meta: &mut Metadata) -> Result<(), ConvertError> {
    let wrong = ConvertError::Config;
    let arch = source.arch.name;
    let find = |name: &str| {
        let index = folder.tensors.iter().position(|s| s.tensor.name == name);
        index.ok_or_else(|| wrong(format!("describes a {arch} model, and there is no '{name}'")))
    };
    for key in source.checkpoint.tensor_keys {
        match *key {
            TensorKey::OfBlocks(tensor, key) => {
                let of_block = |n: u32| {
                    let name = source.checkpoint.full_name(Some(n), tensor);
                    number(folder, find(&name)?)?.map_err(wrong)
                };
                let all = (0..source.layers).map(of_block).collect::<Result<Vec<f32>, _>>()?;
                meta.set(key, Value::Array(Array::F32(all)));
            }
            TensorKey::OfEnd(tensor, key) => {
                let found = number(folder, find(tensor)?)?.map_err(wrong)?;
                meta.set(&format!("{arch}.{key}"), Value::F32(found));
            }
            TensorKey::Slopes(tensor, key) => {
                let name = source.checkpoint.full_name(None, tensor);
                let all = values(folder, find(&name)?)?.map_err(wrong)?;
                // the inverse of how slopes are made of the largest bias
                let power = 1u64 << source.sizes.heads.max(1).ilog2();
                if all[0] <= 0.0 {
                    return Err(wrong(format!("describes a {arch} model, and '{name}' begins with {}", all[0])));
                }
                let log2 = math::log(f64::from(all[0])) / std::f64::consts::LN_2;
                let bias = -(log2 * power as f64).round_ties_even();
                meta.set(&format!("{arch}.{key}"), Value::F32(bias as f32));
            }
        }
    }
    Ok(())
}
