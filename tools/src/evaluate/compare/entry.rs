//! Measurements of a file at a width.

use serde_json::{Value, json};
use trine::eval::kld::{Divergence, Uncertain};

use super::super::statistics;
use super::subject::{Subject, WidthFootprint};

/// A line of the table, a point of the plot.
pub struct Entry {
    /// The file, by its place among all; `None` for the reference.
    pub file: Option<usize>,
    /// Its name in the table.
    pub name: String,
    /// Width and sizes.
    pub footprint: WidthFootprint,
    /// Bits that a run reads per weight of the reference.
    pub bits_per_weight: f64,
    /// Perplexity.
    pub ppl: Uncertain,
    /// ln(PPL/PPL of the reference).
    pub log_ratio: Uncertain,
    /// Divergence from the reference in nats: the mean, and the quantile of 99.9 %.
    pub kld: Uncertain,
    /// See `kld`.
    pub kld_999: f64,
    /// Share of positions where both have the same first choice.
    pub same_top: Uncertain,
    /// Tokens per second of prompts.
    pub prompt: Option<f64>,
    /// Tokens per second one by one.
    pub generation: Option<f64>,
    /// All statistics.
    statistics: Value,
}

const NOTHING: Uncertain = Uncertain { value: 0.0, error: 0.0 };

impl Entry {
    /// The reference, which differs in nothing from itself.
    pub fn reference(subject: &Subject, footprint: WidthFootprint, log_ppl: Uncertain) -> Entry {
        let same_top = Uncertain { value: 1.0, ..NOTHING };
        let statistics = json!({
            "ln_ppl": statistics::pair(log_ppl),
            "ln_ppl_base": statistics::pair(log_ppl),
            "ln_ppl_ratio": statistics::pair(NOTHING),
            "kld": statistics::pair(NOTHING),
            "same_top": statistics::pair(same_top),
        });
        Entry {
            file: None,
            name: subject.name.clone(),
            footprint,
            bits_per_weight: per_weight(footprint, subject),
            ppl: log_ppl.exp(),
            log_ratio: NOTHING,
            kld: NOTHING,
            kld_999: 0.0,
            same_top,
            prompt: None,
            generation: None,
            statistics,
        }
    }

    /// File number `file` at one of its widths.
    pub fn new(
        file: usize,
        subject: &Subject,
        footprint: WidthFootprint,
        reference: &Subject,
        d: &Divergence,
    ) -> Entry {
        let mut statistics = json!({});
        statistics::add(&mut statistics, d);
        Entry {
            file: Some(file),
            name: subject.name.clone(),
            footprint,
            bits_per_weight: per_weight(footprint, reference),
            ppl: d.log_ppl().exp(),
            log_ratio: d.log_ratio(),
            kld: d.kld(),
            kld_999: f64::from(d.sorted_kld().percentile(0.999)),
            same_top: d.same_top(),
            prompt: None,
            generation: None,
            statistics,
        }
    }

    /// For programs.
    pub fn json(&self, path: &std::path::Path) -> Value {
        let mut row = json!({
            "file": path.display().to_string(),
            "bits": self.footprint.bits,
            "reference": self.file.is_none(),
            "bytes": self.footprint.bytes,
            "bits_per_weight": self.bits_per_weight,
            "block_bits_per_weight": self.footprint.block_bits(),
            "ppl": statistics::pair(self.ppl),
        });
        if let (Value::Object(row), Value::Object(more)) = (&mut row, &self.statistics) {
            row.extend(more.clone());
        }
        row["prompt_tokens_per_second"] = self.prompt.into();
        row["decode_tokens_per_second"] = self.generation.into();
        row
    }
}

/// All rows count the weights of one model, so that a file with more or fewer tensors compares by its size.
fn per_weight(footprint: WidthFootprint, reference: &Subject) -> f64 {
    footprint.bytes as f64 * 8.0 / reference.weights.max(1) as f64
}
