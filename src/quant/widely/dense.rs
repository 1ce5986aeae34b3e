//! The plan of the dense model that a widely linear one computes.

use trine_formats::gguf::Value;
use trine_formats::types::TypeId;
use trine_formats::widely::{ARCHITECTURE, Header, Part};

use super::codes::head_dim;
use super::content::{Content, Contents, copied, made};
use super::error::WidelyQuantError;
use super::matrices::matrices;
use crate::arch::Arch;
use crate::quant::metadata;
use crate::quant::plan::{Draft, Fault};
use crate::widely::described;

/// Plans the dense form of a model, its matrices as `ty`: F32, F16 or BF16.
///
/// # Errors
/// Another type; a model that is damaged.
pub(super) fn plan(draft: &Draft<'_>, ty: TypeId) -> Result<Contents, Fault> {
    let file_type = match ty {
        TypeId::F32 => 0,
        TypeId::F16 => 1,
        TypeId::BF16 => 32,
        other => return Err(WidelyQuantError::DenseType(other.to_string()).into()),
    };
    let header = Header::read(draft.meta)?;
    let name = header.base.name();
    let arch = Arch::find(name).ok_or_else(|| WidelyQuantError::Architecture(name.to_owned()))?;
    let head_dim = head_dim(draft.meta, ARCHITECTURE)?;
    let matrices = matrices(draft.model()?)?;
    let mut rows = Vec::new();
    for &place in &draft.sources {
        let t = place.2;
        let (base, weight) = match Part::matrix(&t.name) {
            Some((_, Part::Scale)) => continue,
            Some((base, Part::Codes)) => (Some(base), format!("{base}.weight")),
            None => (None, t.name.clone()),
        };
        let interleaved = described(arch, &weight).is_some_and(|d| d.rope_rows);
        let head = head_dim.filter(|_| interleaved && arch.interleaves_heads());
        let Some(base) = base else {
            rows.push(copied(place, head));
            continue;
        };
        let matrix = matrices.iter().find(|(name, _)| name == base);
        let shape = matrix.map(|(_, m)| m.shape).ok_or_else(|| WidelyQuantError::NoPlace(t.name.clone()))?;
        let extents = vec![2 * shape.columns as u64, 2 * shape.rows as u64];
        let (mut row, content) = made(place, (weight, ty, extents), t.bytes, Content::Dense { shape, head });
        row.source.name = base.to_owned();
        rows.push((row, content));
    }
    let mut meta = Header::rename(&metadata::of_one_file(draft.meta), ARCHITECTURE, name);
    Header::remove(&mut meta);
    meta.set("general.file_type", Value::U32(file_type));
    metadata::set(&mut meta, draft.asked.overrides);
    Ok(Contents { header, meta, rows, notes: Vec::new() })
}
