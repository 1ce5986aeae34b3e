//! One width of an any-precision file as a file of its own.

use std::collections::HashMap;

use trine_formats::anyprec::{ALIGNMENT, AnyPrec, ApTensor, MatrixExtents, Part, file_order};
use trine_formats::gguf::Value;

use super::error::ApError;
use crate::quant::plan::{Draft, Fault, Method};
use crate::quant::row::{Row, unchanged};

/// Plans one width: the planes and tables that a run at it reads, with everything else of the model. All rows are
/// copied. The model may end early as long as the width is there.
#[derive(Debug)]
pub struct Width {
    width: u8,
    bits: f64,
}

impl Width {
    pub(in crate::quant) fn new(width: u8) -> Width {
        Width { width, bits: 0.0 }
    }

    /// Bits per weight of the matrices.
    pub fn bits(&self) -> f64 {
        self.bits
    }
}

impl Method for Width {
    fn name(&self) -> &'static str {
        "width"
    }

    fn plan(&mut self, draft: &mut Draft<'_>) -> Result<(), Fault> {
        let (model, width) = (draft.model()?, self.width);
        let ap = AnyPrec::read(model)?.ok_or(ApError::NotAnyPrecision)?;
        ap.check_width(width)?;
        let mut header = ap.header().clone();
        (header.parent_bits, header.bits) = (width, vec![width]);
        let mut meta = draft.meta.clone();
        header.write(&mut meta);
        meta.set("general.alignment", Value::U32(ALIGNMENT));
        let matrix = |t: &ApTensor| MatrixExtents {
            name: t.name.clone(),
            columns: t.columns as u64,
            rows: t.rows as u64,
            groups: t.groups as u64,
            tables: t.tables as u64,
            sparse: t.sparse as u64,
        };
        let matrices: Vec<MatrixExtents> = ap.tensors().iter().map(matrix).collect();
        let places: HashMap<&str, _> = draft.sources.iter().map(|s| (s.2.name.as_str(), *s)).collect();
        let plain = model.tensors().filter(|t| !t.name.contains(Part::INFIX)).map(|t| t.name.clone());
        let parts = file_order(&matrices, &header.bits).into_iter().flat_map(|section| section.parts);
        let parts = parts.map(|(i, part)| part.name(&matrices[i].name));
        // every part of an available width is there
        let row = |name: String| Some(unchanged(name.clone(), *places.get(name.as_str())?));
        draft.plan.rows = plain.filter_map(row).collect();
        let copied = draft.plan.rows.len();
        draft.plan.rows.extend(parts.filter_map(row));
        let bytes: u64 = draft.plan.rows[copied..].iter().map(|r: &Row| r.bytes).sum();
        let weights: u64 = matrices.iter().map(|m| m.columns * m.rows).sum();
        self.bits = bytes as f64 * 8.0 / weights.max(1) as f64;
        draft.one_file(meta);
        Ok(())
    }
}
