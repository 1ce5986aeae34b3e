//! One width of an any-precision file as a file of its own.

use std::path::Path;

use trine_formats::anyprec::{ALIGNMENT, AnyPrec, Matrix, Part, file_order};
use trine_formats::gguf::write::{Layout, NewTensor, Writer};
use trine_formats::gguf::{Blob, ModelFile, TensorInfo, Value};
use trine_formats::types::ternary::first_bad_byte;

use super::Progress;
use super::error::ApError;
use crate::quant::source::ShardReader;
use crate::quant::validate::first_bad;

/// What was extracted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Extracted {
    /// Size of the file.
    pub file_bytes: u64,
    /// Bits per weight of its matrices.
    pub bits: f64,
}

/// Refuses floats, codes and scales that would poison the copy. Of types with several layouts the scale is looked at
/// and what all of them share.
fn check(info: &TensorInfo, data: &[u8]) -> Result<(), ApError> {
    let shape = (info.columns() as usize, info.rows() as usize);
    let size = info.ty.info().map_or(1, |t| t.bytes);
    let packed = || {
        let (at, what) = first_bad_byte(info.ty, None, shape, 0, data)?;
        Some((at / size, what))
    };
    let Some((block, what)) = first_bad(info.ty, shape.0, data).or_else(packed) else {
        return Ok(());
    };
    Err(ApError::BadInput { tensor: info.name.clone(), ty: info.ty, block: block as u64, what })
}

/// Writes the planes and tables that a run at `width` reads, with everything else of the model, to `out`. The
/// model may end early as long as the width is there.
///
/// # Errors
/// Not an any-precision model; a width that it has not; I/O.
pub fn extract(model: &ModelFile, width: u8, out: &Path, progress: &mut dyn Progress) -> Result<Extracted, ApError> {
    let Some(ap) = AnyPrec::read(model)? else {
        return Err(ApError::NotAnyPrecision);
    };
    ap.check_width(width)?;
    let mut header = ap.header().clone();
    header.parent_bits = width;
    header.bits = vec![width];
    let mut meta = model.meta().clone();
    header.write(&mut meta);
    meta.set("general.alignment", Value::U32(ALIGNMENT));
    let matrices: Vec<Matrix> = ap
        .tensors()
        .iter()
        .map(|t| Matrix {
            name: t.name.clone(),
            columns: t.columns as u64,
            rows: t.rows as u64,
            groups: t.groups as u64,
            sparse: t.sparse as u64,
        })
        .collect();
    let plain = |t: &&TensorInfo| !t.name.contains(Part::INFIX);
    let mut tensors: Vec<NewTensor> = model.tensors().filter(plain).map(NewTensor::from).collect();
    let copied = tensors.len();
    for section in file_order(&matrices, &header.bits) {
        let parts = section.parts.into_iter();
        tensors.extend(parts.map(|(i, part)| matrices[i].tensor(part)));
    }
    let layout = Layout::new(&meta, &tensors)?;
    let bytes: u64 = layout.tensors()[copied..].iter().map(|t| t.bytes).sum();
    let weights: u64 = matrices.iter().map(|m| m.columns * m.rows).sum();
    let inputs: Vec<&Path> = model.shards().iter().map(|s| s.path.as_path()).collect();
    let mut writer = Writer::create(out, layout, &inputs)?;
    for tensor in &tensors {
        progress.tensor(&tensor.name);
        // every part of an available width is there
        let data = model.tensor(&tensor.name).map(|t| t.data);
        let data = data.unwrap_or_else(|| Blob::from_vec(Vec::new()));
        if let Some(info) = model.tensor_info(&tensor.name) {
            check(info, &data)?;
        }
        writer.tensor(&tensor.name, &data)?;
        progress.advance(data.len() as u64);
    }
    for shard in model.shards() {
        ShardReader::new(shard).unchanged()?;
    }
    Ok(Extracted { file_bytes: writer.finish()?, bits: bytes as f64 * 8.0 / weights.max(1) as f64 })
}
