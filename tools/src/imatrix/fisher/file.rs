//! The file of squared gradients: safetensors, F32, under the names of the model's file.
//!
//! `__metadata__` says what they are of; a run that is continued checks it.

use std::io::{BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use trine::fisher::{Fisher, Target};
use trine_formats::limited::open_regular;
use trine_formats::safetensors::{self, Dtype, NewTensor};

use crate::outfile::OutFile;

/// The value of `kind`.
const KIND: &str = "squared-gradients";

/// The model and the text behind the gradients.
pub struct Origin {
    /// SHA-256 of the model's file or files.
    pub model_sha256: String,
    /// The text, as named on the command line.
    pub dataset: String,
    /// SHA-256 of the text.
    pub dataset_sha256: String,
    /// Name of the rule by which the text was cut.
    pub split: &'static str,
    /// Tokens per sequence.
    pub seq_len: usize,
    /// Seed of the random choice.
    pub seed: u32,
}

/// Sequences that a run has done, and the sum of their losses.
#[derive(Default)]
pub struct LossSum {
    /// Number of sequences.
    pub samples: usize,
    /// Sum of their losses, in nats per token.
    pub loss: f64,
}

impl LossSum {
    /// Mean loss of a sequence.
    pub fn mean(&self) -> f64 {
        self.loss / self.samples.max(1) as f64
    }
}

impl Origin {
    fn metadata(&self, state: &LossSum) -> Vec<(&'static str, String)> {
        vec![
            ("kind", KIND.to_owned()),
            ("model_sha256", self.model_sha256.clone()),
            ("dataset", self.dataset.clone()),
            ("dataset_sha256", self.dataset_sha256.clone()),
            ("split", self.split.to_owned()),
            ("seq_len", self.seq_len.to_string()),
            ("seed", self.seed.to_string()),
            ("samples", state.samples.to_string()),
            ("mean_loss", format!("{:.6}", state.mean())),
            // With all its bits, for the run that goes on from here.
            ("loss_sum_f64", format!("{:016x}", state.loss.to_bits())),
        ]
    }
}

/// Writes the whole file, or nothing.
///
/// # Errors
/// The system's error.
pub fn write(path: &Path, fisher: &Fisher, origin: &Origin, state: &LossSum) -> Result<()> {
    let failed = || format!("cannot write '{}'", path.display());
    let metadata = origin.metadata(state);
    let metadata: Vec<(&str, &str)> = metadata.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let shapes: Vec<Vec<u64>> = fisher.targets().iter().map(shape).collect();
    let targets = fisher.targets().iter().zip(&shapes);
    let tensors: Vec<NewTensor<'_>> =
        targets.map(|(t, shape)| NewTensor { name: &t.tensor, dtype: Dtype::F32, shape }).collect();
    let header = safetensors::header(&metadata, &tensors).with_context(failed)?;
    let mut out = BufWriter::with_capacity(1 << 20, OutFile::create(path, "-o")?);
    let mut put = || -> std::io::Result<()> {
        out.write_all(&header)?;
        for sums in fisher.sums() {
            for part in sums.chunks(1 << 16) {
                let bytes: Vec<u8> = part.iter().flat_map(|v| v.to_le_bytes()).collect();
                out.write_all(&bytes)?;
            }
        }
        Ok(())
    };
    put().with_context(failed)?;
    let out = out.into_inner().map_err(|e| e.into_error());
    out.and_then(OutFile::keep).with_context(failed)
}

fn shape(target: &Target) -> Vec<u64> {
    target.shape().iter().map(|&n| n as u64).collect()
}

/// Puts the sums of a file of the same model, text and options into `fisher`.
///
/// # Errors
/// Another origin or shape; sums that are negative or not finite; what the system says.
pub fn read(path: &Path, fisher: &mut Fisher, origin: &Origin) -> Result<LossSum> {
    let mut file = open_regular(path)?;
    let len = file.metadata()?.len();
    let mut start = Vec::new();
    Read::by_ref(&mut file).take(8).read_to_end(&mut start)?;
    let header = safetensors::header_len(&start, len)?;
    Read::by_ref(&mut file).take(header).read_to_end(&mut start)?;
    let found = safetensors::metadata(&start, len)?;
    let found = |key: &str| {
        let text = found.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        text.ok_or_else(|| anyhow!("it was not written by rimatrix --fisher: it has no '{key}'"))
    };
    let samples: usize = found("samples")?.parse().context("'samples'")?;
    let loss = u64::from_str_radix(found("loss_sum_f64")?, 16).context("'loss_sum_f64'")?;
    let state = LossSum { samples, loss: f64::from_bits(loss) };
    for (key, wanted) in origin.metadata(&state) {
        let text = found(key)?;
        if text != wanted {
            bail!("its {key} is '{text}', this run's '{wanted}'");
        }
    }
    let mut tensors = safetensors::parse(&start, len)?;
    tensors.sort_by_key(|t| t.offset);
    let targets = fisher.targets();
    let same = tensors
        .iter()
        .zip(targets)
        .all(|(t, target)| t.name == target.tensor && t.dtype == Dtype::F32 && t.shape == shape(target));
    if !same || tensors.len() != targets.len() {
        bail!("its tensors are not those of the model");
    }
    for (tensor, sums) in tensors.iter().zip(fisher.sums_mut()) {
        let mut bytes = vec![0u8; 1 << 18];
        for part in sums.chunks_mut(1 << 16) {
            let bytes = &mut bytes[..part.len() * 4];
            file.read_exact(bytes)?;
            for (sum, b) in part.iter_mut().zip(bytes.as_chunks().0) {
                *sum = f32::from_le_bytes(*b);
            }
            if !part.iter().all(|s| s.is_finite() && *s >= 0.0) {
                bail!("its sums of '{}' are damaged", tensor.name);
            }
        }
    }
    Ok(state)
}
