//! The recorded outputs of the reference programs in `testdata`.

use anyhow::{Context, Result};

use crate::testdata;

pub use trine_testkit::golden::{Kernels, Logits, logits};

/// One line of `testdata/golden/quantize.sha256`.
pub struct Quantized {
    /// SHA-256 of the file.
    pub sha256: String,
    /// File name of the source.
    pub source: String,
    /// Target type as given on the command line.
    pub ty: String,
    /// Options as given on the command line.
    pub options: Vec<String>,
}

/// All lines of `testdata/golden/quantize.sha256`.
///
/// # Errors
/// The file is missing or not of that form.
pub fn quantized() -> Result<Vec<Quantized>> {
    let text = std::fs::read_to_string(testdata("golden/quantize.sha256"))?;
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            let mut next = || words.next().with_context(|| format!("line {line:?}"));
            Ok(Quantized { sha256: next()?, source: next()?, ty: next()?, options: words.collect() })
        })
        .collect()
}

/// One measurement of `testdata/golden/perplexity.json`.
pub struct Perplexity {
    /// Tokens per chunk.
    pub n_ctx: u64,
    /// Final estimate and its error, as printed.
    pub estimate: (String, String),
    /// The estimate after each chunk, 4 decimals.
    pub running: Vec<f64>,
}

/// The measurement of this model.
///
/// # Errors
/// The file is missing, not of that form, or has no such model.
pub fn perplexity(model: &str) -> Result<Perplexity> {
    let json = json("golden/perplexity.json")?;
    let values = json["values"].as_array().context("no values")?;
    let value = values.iter().find(|v| v["model"] == model);
    let value = value.with_context(|| format!("no model {model:?}"))?;
    let text = |key: &str| Some(value[key].as_str()?.to_owned());
    let running = value["running"].as_array().context("no running estimates")?;
    Ok(Perplexity {
        n_ctx: value["n_ctx"].as_u64().context("n_ctx")?,
        estimate: text("ppl").zip(text("err")).context("no estimate")?,
        running: running.iter().filter_map(serde_json::Value::as_f64).collect(),
    })
}

fn json(path: &str) -> Result<serde_json::Value> {
    let bytes = std::fs::read(testdata(path)).with_context(|| path.to_owned())?;
    serde_json::from_slice(&bytes).with_context(|| path.to_owned())
}
