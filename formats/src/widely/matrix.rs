//! Widely linear matrices of a file, checked.

use std::sync::Arc;

use super::{Rule, Shape, WidelyError};
use crate::gguf::{Blob, ModelFile, TensorView};
use crate::types::TypeId;

/// One of the tensors that a matrix is stored as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The code words.
    Codes,
    /// The scales.
    Scale,
}

impl Part {
    /// Both parts.
    pub const ALL: [Part; 2] = [Part::Codes, Part::Scale];

    /// Suffix of the tensor's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Part::Codes => ".wl_codes",
            Part::Scale => ".wl_scale",
        }
    }

    /// The tensor's type.
    pub fn ty(self) -> TypeId {
        match self {
            Part::Codes => TypeId::I32,
            Part::Scale => TypeId::F32,
        }
    }

    /// The tensor's name for the matrix `name`, which has no `.weight`.
    pub fn name(self, name: &str) -> String {
        format!("{name}{}", self.suffix())
    }

    /// The matrix that a tensor is a part of.
    pub fn matrix(tensor: &str) -> Option<(&str, Part)> {
        let parts = Part::ALL.into_iter();
        let mut found = parts.filter_map(|part| Some((tensor.strip_suffix(part.suffix())?, part)));
        found.next()
    }
}

/// A widely linear matrix: shape and lengths fit each other, and every scale is a finite number above 0.
#[derive(Clone)]
pub struct WidelyMatrix {
    /// The extents.
    pub shape: Shape,
    /// The words of all rows, little-endian, `[row][chunk][stream]`.
    pub codes: Blob,
    /// The scales of all groups, `[group][U, W][stage][axis]`.
    pub scales: Arc<[f32]>,
}

impl WidelyMatrix {
    /// The words of one row.
    pub fn words(&self, row: usize) -> Vec<u32> {
        let bytes = 4 * self.shape.row_words();
        let words = self.codes[row * bytes..][..bytes].as_chunks().0;
        words.iter().map(|&w| u32::from_le_bytes(w)).collect()
    }
}

/// The matrix `name`, which has no `.weight`, of `rows` real rows and `columns` real columns; `None` where the file has
/// it in no such form.
///
/// # Errors
/// One of its tensors is missing, or of another type or shape than the rule and the extents make it; scales that are no
/// numbers above 0; a dense form beside this one.
pub fn find(
    file: &ModelFile,
    rule: &Rule,
    name: &str,
    rows: usize,
    columns: usize,
) -> Result<Option<WidelyMatrix>, WidelyError> {
    let names = Part::ALL.map(|part| part.name(name));
    let views = names.each_ref().map(|name| file.tensor(name));
    let there = names.each_ref().map(|n| file.tensor_info(n).is_some());
    let (codes, scales) = match views {
        [Some(codes), Some(scales)] => (codes, scales),
        _ if there == [false; 2] => return Ok(None),
        [codes, _] => {
            let [first, second] = names;
            let (tensor, other) = if codes.is_some() { (second, first) } else { (first, second) };
            return Err(WidelyError::MissingPart { tensor, other });
        }
    };
    let dense = format!("{name}.weight");
    if file.tensor_info(&dense).is_some() {
        let [other, _] = names;
        return Err(WidelyError::Both { tensor: dense, other });
    }
    let Some(shape) = rule.shape(rows, columns) else {
        return Err(WidelyError::Odd { tensor: codes.info.name, rows, columns });
    };
    check(&codes, Part::Codes, &shape.codes_extents(), (rows, columns))?;
    check(&scales, Part::Scale, &shape.scale_extents(), (rows, columns))?;
    Ok(Some(WidelyMatrix { shape, scales: read_scales(&scales)?, codes: codes.data }))
}

fn check(view: &TensorView, part: Part, expected: &[u64], (rows, columns): (usize, usize)) -> Result<(), WidelyError> {
    let info = &view.info;
    if info.ty != part.ty() {
        return Err(WidelyError::Type { tensor: info.name.clone(), found: info.ty, expected: part.ty() });
    }
    let extent = |shape: &[u64], d: usize| shape.get(d).copied().unwrap_or(1);
    let dimensions = info.shape.len().max(expected.len());
    if (0..dimensions).any(|d| extent(&info.shape, d) != extent(expected, d)) {
        return Err(WidelyError::Extents {
            tensor: info.name.clone(),
            found: info.shape.clone(),
            expected: expected.to_vec(),
            rows,
            columns,
        });
    }
    Ok(())
}

fn read_scales(view: &TensorView) -> Result<Arc<[f32]>, WidelyError> {
    let scales = view.data.as_chunks().0.iter();
    let scales: Arc<[f32]> = scales.map(|&s| f32::from_le_bytes(s)).collect();
    match scales.iter().position(|&s| !(s.is_finite() && s > 0.0)) {
        None => Ok(scales),
        Some(index) => {
            Err(WidelyError::Scale { tensor: view.info.name.clone(), index, value: scales[index].to_string() })
        }
    }
}
