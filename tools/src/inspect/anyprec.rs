//! An any-precision file: widths, sizes, and how it was made.

use std::io::{self, Write};

use serde_json::{Value, json};
use trine_formats::anyprec::{AnyPrec, Header, Part};
use trine_formats::gguf::ModelFile;

use super::{line, shortest};
use crate::progress::human_bytes;
use crate::shown;
use crate::table::{Cell, Form, Table};

/// Sizes at one width.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WidthReport {
    /// The width.
    pub bits: u8,
    /// True if the file has all of it.
    pub there: bool,
    /// Bytes of the file up to and with this width.
    pub prefix_bytes: u64,
    /// Bytes of the matrices that a run at this width reads.
    pub run_bytes: u64,
    /// Bits per weight of the bytes that a run reads.
    pub run_bits: f64,
}

/// A description of an any-precision file.
#[derive(Clone, PartialEq, Debug)]
pub struct AnyPrecReport {
    /// The values of the keys.
    pub header: Header,
    /// Number of matrices.
    pub matrices: usize,
    /// Their weights.
    pub weights: u64,
    /// Weights that are kept as they are.
    pub sparse: u64,
    /// All widths that the file was made with.
    pub widths: Vec<WidthReport>,
}

impl AnyPrecReport {
    /// Describes a model; `None` when it is not of this kind.
    ///
    /// # Errors
    /// The problem of the file.
    pub fn new(model: &ModelFile) -> Result<Option<AnyPrecReport>, String> {
        let ap = AnyPrec::read(model).map_err(|e| e.to_string())?;
        Ok(ap.map(|ap| AnyPrecReport::of(&ap, model)))
    }

    /// Describes a model whose any-precision part was read.
    pub fn of(ap: &AnyPrec, model: &ModelFile) -> AnyPrecReport {
        let header = ap.header().clone();
        let weights: u64 = ap.tensors().iter().map(|t| (t.columns * t.rows) as u64).sum();
        let part = |name: &str, part: Part| model.tensor_info(&part.name(name));
        let bytes = |parts: &mut dyn Iterator<Item = Part>| -> u64 {
            let all = parts.flat_map(|p| ap.tensors().iter().map(move |t| (&t.name, p)));
            all.filter_map(|(name, p)| part(name, p)).map(|t| t.bytes).sum()
        };
        let sparse = [Part::SparsePtr, Part::SparseCol, Part::SparseVal];
        let end = |bits: u8| {
            let ends = ap.tensors().iter().flat_map(|t| {
                let planes = (0..bits).map(Part::Plane).chain([Part::Lut(bits), Part::Scale(bits)]);
                planes.filter_map(|p| {
                    let name = p.name(&t.name);
                    let (shard, info) = (model.shard_of(&name)?, model.tensor_info(&name)?);
                    Some(shard.gguf.data_offset + info.offset + info.bytes)
                })
            });
            ends.max().unwrap_or(0)
        };
        let width = |&bits: &u8| {
            let planes = (0..bits).map(Part::Plane);
            let run_bytes = bytes(&mut planes.chain([Part::Lut(bits), Part::Scale(bits), Part::Class]).chain(sparse));
            WidthReport {
                bits,
                there: ap.widths().contains(&bits),
                prefix_bytes: end(bits),
                run_bytes,
                run_bits: run_bytes as f64 * 8.0 / weights.max(1) as f64,
            }
        };
        AnyPrecReport {
            widths: header.bits.iter().map(width).collect(),
            matrices: ap.tensors().len(),
            sparse: ap.tensors().iter().map(|t| t.sparse as u64).sum(),
            weights,
            header,
        }
    }

    /// True if the file has all widths.
    pub fn is_whole(&self) -> bool {
        self.widths.iter().all(|w| w.there)
    }

    pub(super) fn json(&self) -> Value {
        let h = &self.header;
        let width = |w: &WidthReport| {
            json!({
                "bits": w.bits,
                "complete": w.there,
                "prefix_bytes": w.prefix_bytes,
                "run_bytes": w.run_bytes,
                "run_bits_per_weight": w.run_bits,
            })
        };
        json!({
            "seed_bits": h.seed_bits,
            "parent_bits": h.parent_bits,
            "row_groups": h.groups,
            "shared_tables": h.tables,
            "matrices": self.matrices,
            "weights": self.weights,
            "sparse_weights": self.sparse,
            "complete": self.is_whole(),
            "widths": self.widths.iter().map(width).collect::<Vec<_>>(),
            "seed_method": h.seed_method,
            "sensitivity": h.sensitivity,
            "calibration": {
                "dataset": h.calibration.dataset,
                "samples": h.calibration.samples,
                "seq_len": h.calibration.seq_len,
                "sha256": h.calibration.sha256,
            },
            "sparse": h.sparse.map(|s| json!({
                "sensitivity_pct": shortest(s.sensitivity),
                "magnitude_pct": shortest(s.magnitude),
            })),
            "source_sha256": h.source_sha256,
        })
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let h = &self.header;
        let groups = match h.groups {
            1 => String::new(),
            n => format!(", {n} groups to a row"),
        };
        let tables = match h.tables {
            0 => String::new(),
            n => format!(", {n} tables for the rows of each"),
        };
        line(
            out,
            &format!(
                "\nany-precision: {} matrices of {} weights{groups}{tables}, codes of {} bits over a seed of {}",
                self.matrices, self.weights, h.parent_bits, h.seed_bits
            ),
        )?;
        let mut table = Table::new(Form::Spaces(2));
        for w in &self.widths {
            let cells = [
                Cell::right("width", 5, w.bits.to_string()).key(),
                Cell::right("file so far", 11, human_bytes(w.prefix_bytes)),
                Cell::right("run reads", 11, human_bytes(w.run_bytes)),
                Cell::right("bits/weight", 11, format!("{:.4}", w.run_bits)),
                Cell::left("", 15, if w.there { "" } else { "not in the file" }),
            ];
            table.row(&cells, out)?;
        }
        table.finish(out)?;
        if !self.is_whole() {
            line(out, "  the file ends early: it is a model of the widths that it has")?;
        }
        let method = match h.seed_method.split_once(':') {
            None if h.seed_method == "dp" => "the best ones".to_owned(),
            Some(("dp", bits)) => {
                format!("the best ones of {} bits", shown::name(bits))
            }
            Some(("kmeans++", seed)) => {
                format!("the reference's, random state {}", shown::name(seed))
            }
            _ => shown::name(&h.seed_method),
        };
        line(
            out,
            &format!("  clusters: {method}; sensitivities: {}{}", shown::name(&h.sensitivity), self.calibration()),
        )?;
        if let Some(shares) = h.sparse {
            line(
                out,
                &format!(
                    "  kept as they are: {} weights; the most sensitive {:?} %, the largest {:?} %",
                    self.sparse, shares.sensitivity, shares.magnitude
                ),
            )?;
        }
        for sha256 in &h.source_sha256 {
            line(out, &format!("  made from sha256 {}", shown::name(sha256)))?;
        }
        Ok(())
    }

    fn calibration(&self) -> String {
        let c = &self.header.calibration;
        let mut text = String::new();
        if let Some(dataset) = &c.dataset {
            text += &format!(" on {}", shown::name(dataset));
        }
        match (c.samples, c.seq_len) {
            (Some(n), Some(len)) => text += &format!(", {n} chunks of {len} tokens"),
            (Some(n), None) => text += &format!(", {n} chunks"),
            _ => {}
        }
        if let Some(sha256) = &c.sha256 {
            text += &format!(", sha256 {}", shown::name(sha256));
        }
        text
    }
}
