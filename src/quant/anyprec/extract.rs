//! One width of an any-precision file as a file of its own.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use trine_formats::anyprec::{ALIGNMENT, AnyPrec, Matrix, Part, file_order};
use trine_formats::gguf::write::{Layout, NewTensor};
use trine_formats::gguf::{ModelFile, Value};

use super::error::ApError;
use crate::quant::encoder::Encoder;
use crate::quant::method::{Method, Run, RunError};
use crate::quant::round::Rounding;
use crate::quant::row::{Row, sources, unchanged};
use crate::quant::ternary::TernaryReport;

/// One width on its way: the planes and tables that a run at it reads, with everything else of the model. Its report is
/// the size of the file.
#[derive(Debug)]
pub struct WidthPlan {
    layout: Layout,
    rows: Vec<Row>,
    bits: f64,
}

impl Method for WidthPlan {
    type Report = u64;
    type Error = ApError;

    fn work(&self) -> u64 {
        self.rows.iter().map(|r| r.bytes).sum()
    }

    fn make(self, run: &mut Run<'_>) -> Result<u64, ApError> {
        let bytes = self.layout.file_bytes();
        run.create(run.out, self.layout, &[])?;
        let places: Vec<_> = (0..self.rows.len()).map(|i| (0, i)).collect();
        let (importance, measure_only) = (&HashMap::new(), &AtomicBool::new(false));
        let copies =
            Rounding { rows: &self.rows, places: &places, importance, encoder: Encoder::default(), measure_only };
        copies.make(0..self.rows.len(), run, &mut TernaryReport::default())?;
        Ok(bytes)
    }
}

impl WidthPlan {
    /// Bits per weight of the matrices.
    pub fn bits(&self) -> f64 {
        self.bits
    }

    /// Plans the file of `width`. The model may end early as long as the width is there.
    ///
    /// # Errors
    /// Not an any-precision model; a width that it has not.
    pub fn new(model: &ModelFile, width: u8) -> Result<WidthPlan, ApError> {
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
        let infos: HashMap<&str, _> = sources(model).into_iter().map(|s| (s.2.name.as_str(), s)).collect();
        let plain = model.tensors().filter(|t| !t.name.contains(Part::INFIX));
        let mut tensors: Vec<NewTensor> = plain.map(NewTensor::from).collect();
        let copied = tensors.len();
        for section in file_order(&matrices, &header.bits) {
            let parts = section.parts.into_iter();
            tensors.extend(parts.map(|(i, part)| matrices[i].tensor(part)));
        }
        // every part of an available width is there
        let rows = tensors.iter().filter_map(|t| Some(unchanged(t.name.clone(), *infos.get(t.name.as_str())?)));
        let rows: Vec<Row> = rows.collect();
        let layout = Layout::new(&meta, &tensors).map_err(RunError::from)?;
        let bytes: u64 = layout.tensors()[copied..].iter().map(|t| t.bytes).sum();
        let weights: u64 = matrices.iter().map(|m| m.columns * m.rows).sum();
        Ok(WidthPlan { layout, rows, bits: bytes as f64 * 8.0 / weights.max(1) as f64 })
    }
}
