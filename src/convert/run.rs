//! Carries out a plan: tensor by tensor, a few megabytes at a time.

use std::path::Path;

use half::f16;
use rayon::prelude::*;
use trine_formats::gguf::write::{Layout, NewTensor, Writer};
use trine_formats::types::{TypeId, exact};

use super::error::ConvertError;
use super::folder::Files;
use super::plan::Plan;
use super::row::{Content, Row};
use super::values::{Fault, Stored};
use super::widely;
use crate::progress::Progress;

/// Writes the file of a plan and returns its size. It appears under its name when it is complete.
///
/// # Errors
/// I/O, weights that are not finite, packed weights with an invalid code.
pub fn run(plan: &Plan, out: &Path, progress: &mut dyn Progress) -> Result<u64, ConvertError> {
    let inputs: Vec<&Path> = plan.inputs.iter().map(|p| p.as_path()).collect();
    let mut writer = Writer::create(out, plan.layout()?, &inputs)?;
    let files = &plan.files;
    let mut scales = Vec::new();
    for (index, row) in plan.rows.iter().enumerate() {
        progress.tensor(index, &row.name);
        match &row.content {
            Content::Computed(values) => {
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                writer.tensor(&row.name, &bytes)?;
            }
            Content::Mxfp4(experts) => {
                let mut write = |blocks: &[u8]| -> Result<(), ConvertError> {
                    writer.write(blocks)?;
                    progress.advance(blocks.len() as u64);
                    Ok(())
                };
                experts.write(files, &mut write)?;
            }
            Content::Longs(values) => {
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                writer.tensor(&row.name, &bytes)?;
            }
            Content::Ints(values) => {
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                writer.tensor(&row.name, &bytes)?;
            }
            Content::Codes { stored, rule, shape } => {
                let what = (stored, rule, shape);
                let done = &mut |bytes| progress.advance(bytes);
                scales = widely::write(what, files, &mut writer, done)?;
            }
            Content::Scales => {
                let bytes: Vec<u8> = scales.drain(..).flat_map(f32::to_le_bytes).collect();
                writer.tensor(&row.name, &bytes)?;
            }
            Content::Stored(stored) => {
                convert(row, stored, files, &mut writer, progress)?;
            }
        }
    }
    files.unchanged()?;
    Ok(writer.finish()?)
}

impl Plan {
    /// The header of the file.
    ///
    /// # Errors
    /// Tensors that GGUF cannot hold.
    pub fn layout(&self) -> Result<Layout, ConvertError> {
        let tensors: Vec<NewTensor> =
            self.rows.iter().map(|r| NewTensor::new(r.name.clone(), r.shape.clone(), r.ty)).collect();
        Ok(Layout::new(&self.meta, &tensors)?)
    }
}

fn convert(
    row: &Row,
    stored: &Stored,
    files: &Files,
    writer: &mut Writer,
    progress: &mut dyn Progress,
) -> Result<(), ConvertError> {
    let blame = |fault: Fault| fault.blame(stored);
    let scales = stored.scales(files, &mut |bytes| progress.advance(bytes)).map_err(blame)?;
    let columns = stored.columns as usize;
    // Vectors whose elements change places have one column; their rows are elements of one GGUF row.
    let info = row.ty.info();
    let encode = info.and_then(|t| t.encode);
    let row_bytes = info.and_then(|t| t.row_bytes(stored.columns));
    let (Some(encode), Some(row_bytes)) = (encode, row_bytes) else {
        return Err(ConvertError::RowType {
            tensor: row.source.clone(),
            columns: stored.columns,
            ty: row.ty.to_string(),
        });
    };
    let (mut raw, mut values, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for rows in stored.chunks() {
        stored.fetch(files, rows.clone(), &mut raw, &mut values).map_err(blame)?;
        let n = rows.end - rows.start;
        bytes.resize((n * row_bytes) as usize, 0);
        let faults: Vec<(u64, usize, f32)> = bytes
            .par_chunks_mut(row_bytes as usize)
            .enumerate()
            .map_init(Vec::new, |scratch: &mut Vec<f32>, (i, bytes)| {
                let source = stored.source_row(rows.start + i as u64);
                let at = (source - rows.start) as usize * columns;
                scratch.clear();
                scratch.extend_from_slice(&values[at..at + columns]);
                stored.apply(source, &scales, scratch);
                stored.order(scratch);
                // the plan has proved that such types hold the row
                if stored.ty.is_some() || !exact::knows(row.ty) || exact::encode(row.ty, scratch, bytes).is_err() {
                    encode(scratch, None, bytes);
                }
                too_large(row.ty, scratch).map(|(column, v)| (source, column, v))
            })
            .flatten()
            .collect();
        if let Some(&(source, column, value)) = faults.first() {
            let (tensor, row_there, _) = stored.slices.origin(source, column as u64);
            return Err(ConvertError::Overflow {
                tensor: tensor.to_owned(),
                row: row_there,
                value,
                ty: row.ty.to_string(),
            });
        }
        writer.write(&bytes)?;
        progress.advance(stored.read_bytes(n));
    }
    Ok(())
}

/// A value that f16 would make infinite, and its column, where f16 is what holds it.
fn too_large(ty: TypeId, values: &[f32]) -> Option<(usize, f32)> {
    if matches!(ty, TypeId::F32 | TypeId::BF16) {
        return None;
    }
    let mut all = values.iter().copied().enumerate();
    all.find(|(_, v)| !f16::from_f32(*v).is_finite())
}
