//! A file with widely linear matrices: codes, scales, levels and true sizes.

use std::io::{self, Write};

use serde_json::{Value, json};
use trine::quant::widely::matrices;
use trine_formats::gguf::ModelFile;
use trine_formats::widely::{Header, WidelyMatrix};

use super::{line, shortest};

/// Codes and scales of one stage of `U` or of `W`, over all matrices.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StreamReport {
    /// `U` or `W`.
    pub half: &'static str,
    /// The stage, from 0.
    pub stage: usize,
    /// Elements with code −1, +1, −i, +i.
    pub codes: [u64; 4],
    /// Smallest and largest scale.
    pub scales: [f32; 2],
}

/// A description of a file with widely linear matrices.
#[derive(Clone, PartialEq, Debug)]
pub struct WidelyReport {
    /// The values of the keys.
    pub header: Header,
    /// Number of matrices.
    pub matrices: usize,
    /// Their real weights.
    pub weights: u64,
    /// Bits of codes and scales, and what they would be without the padding of words.
    pub bits: [u64; 2],
    /// The stages of `U`, then those of `W`.
    pub streams: Vec<StreamReport>,
}

impl WidelyReport {
    /// Describes a model; `None` when it is not of this kind.
    ///
    /// # Errors
    /// The problem of the file.
    pub fn new(model: &ModelFile) -> Result<Option<WidelyReport>, String> {
        if !Header::is_in(model.meta()) {
            return Ok(None);
        }
        let header = Header::read(model.meta()).map_err(|e| e.to_string())?;
        let all = matrices(model).map_err(|e| e.to_string())?;
        let stages = header.rule.stages;
        let stream = |s: usize| StreamReport {
            half: if s < stages { "U" } else { "W" },
            stage: s % stages,
            codes: [0; 4],
            scales: [f32::INFINITY, 0.0],
        };
        let mut report = WidelyReport {
            header,
            matrices: all.len(),
            weights: 0,
            bits: [0; 2],
            streams: (0..2 * stages).map(stream).collect(),
        };
        for (_, matrix) in &all {
            report.add(matrix);
        }
        Ok(Some(report))
    }

    fn add(&mut self, matrix: &WidelyMatrix) {
        let shape = &matrix.shape;
        let complex = (shape.rows * shape.columns) as u64;
        self.weights += 4 * complex;
        let scales = 32 * matrix.scales.len() as u64;
        self.bits[0] += 8 * matrix.codes.len() as u64 + scales;
        self.bits[1] += 2 * shape.streams() as u64 * complex + scales;
        for row in 0..shape.rows {
            let words = matrix.words(row);
            for (i, &word) in words.iter().enumerate() {
                let (chunk, stream) = (i / shape.streams(), i % shape.streams());
                let columns = (shape.columns - 16 * chunk).min(16);
                for j in 0..columns {
                    self.streams[stream].codes[(word >> (2 * j) & 3) as usize] += 1;
                }
            }
        }
        for (i, &scale) in matrix.scales.iter().enumerate() {
            let stream = &mut self.streams[i / 2 % shape.streams()];
            stream.scales = [stream.scales[0].min(scale), stream.scales[1].max(scale)];
        }
    }

    /// Most values that a real weight can have: each stage adds −s, 0 or +s to a part of `U` and of `W`.
    fn levels(&self) -> u32 {
        3u32.pow(self.header.rule.stages as u32)
    }

    fn bits_per_weight(&self, i: usize) -> f64 {
        self.bits[i] as f64 / self.weights.max(1) as f64
    }

    pub(super) fn json(&self) -> Value {
        let rule = &self.header.rule;
        let stream = |s: &StreamReport| {
            json!({
                "matrix": s.half, "stage": s.stage, "codes": {
                    "-1": s.codes[0], "+1": s.codes[1], "-i": s.codes[2], "+i": s.codes[3],
                },
                "least_scale": shortest(s.scales[0]), "largest_scale": shortest(s.scales[1]),
            })
        };
        json!({
            "base_architecture": self.header.base.name(),
            "stages": rule.stages,
            "scale_scope": rule.scope.name(),
            "numeric_profile": rule.profile.name(),
            "tie_rule": rule.tie.name(),
            "lm_head": self.header.output.name(),
            "matrices": self.matrices,
            "weights": self.weights,
            "bits_per_weight": self.bits_per_weight(0),
            "bits_per_weight_without_padding": self.bits_per_weight(1),
            "levels": self.levels(),
            "streams": self.streams.iter().map(stream).collect::<Vec<_>>(),
        })
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let rule = &self.header.rule;
        let mut say = |text: String| line(out, &text);
        say(format!(
            "\nwidely linear: {} matrices of {} weights (a {}), y = U x + W conj(x), {} stage(s) each",
            self.matrices,
            self.weights,
            self.header.base.name(),
            rule.stages
        ))?;
        say(format!(
            "  {:.4} bits per weight ({:.4} without the padding of words): 2 bits for a complex element of a stage, and scales by {}",
            self.bits_per_weight(0),
            self.bits_per_weight(1),
            rule.scope.name()
        ))?;
        say(format!(
            "  a part of an element of U or W has up to {} levels, sums of -s, 0 or +s of each stage; only a single stage is ternary",
            self.levels()
        ))?;
        say(format!(
            "  profile {}, ties by {}, output matrix {}",
            rule.profile.name(),
            rule.tie.name(),
            self.header.output.name()
        ))?;
        say("  stage      -1      +1      -i      +i   scales".to_owned())?;
        for s in &self.streams {
            let total = s.codes.iter().sum::<u64>().max(1) as f64;
            let share = |n: u64| format!("{:>6.2} %", 100.0 * n as f64 / total);
            say(format!(
                "  {} {}   {}   {:e} to {:e}",
                s.half,
                s.stage,
                s.codes.map(share).join(""),
                s.scales[0],
                s.scales[1]
            ))?;
        }
        Ok(())
    }
}
