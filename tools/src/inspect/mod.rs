//! The findings of `rinspect` about a model, and their output.

mod anyprec;
pub mod command;
mod diff;
mod heads;
mod json;
mod line;
mod program;
mod ternary;
mod text;
mod widely;

use std::collections::BTreeMap;

use rayon::prelude::*;
use sha2::{Digest, Sha256};
use trine::quant::first_bad;
use trine_formats::anyprec::{AnyPrec, Part};
use trine_formats::gguf::{ModelFile, PackingOptions, TensorInfo, TensorView};
use trine_formats::types::TypeId;
use trine_formats::widely::{Header as WidelyHeader, Part as WidelyPart};

use crate::progress::byte_bar;
use crate::text::hex;

pub use anyprec::{AnyPrecReport, WidthReport};
pub use diff::{Diff, Distance, TensorDiff, Weights};
pub use json::write_json;
use line::{line, shortest};
pub use ternary::{Reach, Ternary, check, check_packed};
pub use text::{TextOptions, write_text};
pub use widely::{StreamReport, WidelyReport};

/// The findings about one tensor.
pub struct TensorReport {
    /// The row of the tensor table.
    pub info: TensorInfo,
    /// Number of the shard that holds it, from 0.
    pub shard: usize,
    /// Where its data starts in that file.
    pub file_offset: u64,
    /// `None` for vectors and types without decoder, `Some(None)` for matrices that are not ternary.
    pub ternary: Option<Option<Ternary>>,
    /// The problem of the data.
    pub damage: Option<String>,
    /// SHA-256 of the data, when asked for.
    pub sha256: Option<String>,
}

/// Sums over all tensors of one type.
#[derive(Clone, Copy, Default, Debug)]
pub struct Total {
    /// Number of tensors.
    pub tensors: u64,
    /// Number of weights.
    pub weights: u64,
    /// Bytes of data without padding.
    pub bytes: u64,
}

impl Total {
    /// Bits per weight; 0 without weights.
    pub fn bits_per_weight(&self) -> f64 {
        if self.weights == 0 { 0.0 } else { self.bytes as f64 * 8.0 / self.weights as f64 }
    }

    fn add(&mut self, t: &TensorInfo) {
        self.tensors += 1;
        self.weights = self.weights.saturating_add(t.elements());
        self.bytes = self.bytes.saturating_add(t.bytes);
    }
}

/// Everything that is shown.
pub struct Report<'a> {
    /// The model.
    pub model: &'a ModelFile,
    /// All tensors in file order.
    pub tensors: Vec<TensorReport>,
    /// Sums by type id.
    pub types: BTreeMap<TypeId, Total>,
    /// Sums over everything.
    pub total: Total,
    /// The contents of an any-precision file, or its problem.
    pub any_precision: Result<Option<AnyPrecReport>, String>,
    /// True if all floats and scales were checked.
    pub sound: bool,
    /// The contents of a file with widely linear matrices, or its problem.
    pub widely: Result<Option<WidelyReport>, String>,
}

impl<'a> Report<'a> {
    /// Reads the tensors, in parallel and with a progress bar on stderr when that is a terminal; `hash` asks for their
    /// SHA-256, `sound` whether all floats and scales are numbers, and `packing` says how I2_S, TL1 and TL2 are laid
    /// out where the file does not.
    pub fn new(model: &'a ModelFile, hash: bool, sound: bool, packing: &PackingOptions) -> Report<'a> {
        let mut rows = Vec::new();
        for (s, shard) in model.shards().iter().enumerate() {
            rows.extend(shard.gguf.tensors.iter().map(|t| (s, shard.gguf.data_offset + t.offset, t)));
        }
        let any_precision = AnyPrec::is(model.meta());
        let widely_linear = WidelyHeader::is_in(model.meta());
        let bar = byte_bar(rows.iter().map(|(_, _, t)| t.bytes).sum());
        let tensors: Vec<TensorReport> = rows
            .into_par_iter()
            .map(|(shard, file_offset, info)| {
                let view = model.tensor(&info.name);
                let packed = view.as_ref().filter(|v| is_per_tensor(v));
                let (ternary, mut damage) = match packed.map(|v| check_packed(v, model.meta(), packing)) {
                    Some(Ok(ternary)) => (Some(Some(ternary)), None),
                    Some(Err(e)) => (None, Some(e)),
                    // planes and tables are no matrices of weights
                    None if any_precision && info.name.contains(Part::INFIX) => (None, None),
                    // neither are codes and scales
                    None if widely_linear && WidelyPart::matrix(&info.name).is_some() => (None, None),
                    None => (view.as_ref().and_then(check), None),
                };
                if sound && damage.is_none() {
                    damage = view.as_ref().and_then(unsound);
                }
                let sha256 = view.filter(|_| hash).map(|v| hex(&Sha256::digest(&*v.data)));
                bar.inc(info.bytes);
                TensorReport { info: info.clone(), shard, file_offset, ternary, damage, sha256 }
            })
            .collect();
        bar.finish_and_clear();
        let mut types: BTreeMap<TypeId, Total> = BTreeMap::new();
        let mut total = Total::default();
        for t in &tensors {
            types.entry(t.info.ty).or_default().add(&t.info);
            total.add(&t.info);
        }
        let report = AnyPrecReport::new(model);
        if let Ok(Some(report)) = &report {
            // bytes of planes and centroids of tables are no weights
            let parts = tensors.iter().map(|t| &t.info);
            let parts = parts.filter(|t| t.name.contains(Part::INFIX));
            let elements = parts.fold(0, |n: u64, t| n.saturating_add(t.elements()));
            total.weights = total.weights.saturating_sub(elements) + report.weights;
        }
        let widely = WidelyReport::new(model);
        if let Ok(Some(report)) = &widely {
            // words of codes and scales are no weights
            let parts = tensors.iter().map(|t| &t.info);
            let parts = parts.filter(|t| WidelyPart::matrix(&t.name).is_some());
            let elements = parts.fold(0, |n: u64, t| n.saturating_add(t.elements()));
            total.weights = total.weights.saturating_sub(elements) + report.weights;
        }
        Report { model, tensors, types, total, any_precision: report, sound, widely }
    }

    /// The problems, a line each that names the tensor or key.
    pub fn damage(&self) -> impl Iterator<Item = &str> {
        let tensors = self.tensors.iter().filter_map(|t| t.damage.as_deref());
        let any_precision = self.any_precision.as_ref().err();
        let special = any_precision.into_iter().chain(self.widely.as_ref().err());
        tensors.chain(special.map(String::as_str))
    }

    /// Size of all files together.
    pub fn file_bytes(&self) -> u64 {
        self.model.shards().iter().map(|s| (*s.bytes).as_ref().len() as u64).sum()
    }
}

/// The first float or scale of a tensor that is no number.
fn unsound(view: &TensorView) -> Option<String> {
    let (block, what) = first_bad(view.info.ty, view.info.columns() as usize, &view.data)?;
    let (name, ty) = (&view.info.name, view.info.ty);
    Some(format!("tensor '{name}': it holds {what} in block {block} (type {ty}); the model is damaged"))
}

fn is_per_tensor(view: &TensorView) -> bool {
    view.info.ty.info().is_some_and(|t| t.is_per_tensor())
}
