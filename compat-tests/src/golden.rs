//! The recorded outputs of the reference programs in `testdata`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::testdata;

/// One recorded array of `testdata/kernels`: rows of the same length.
pub struct Array {
    /// Number of rows.
    pub rows: usize,
    /// All rows, one after the other.
    pub bytes: Vec<u8>,
}

impl Array {
    /// The array as floats.
    pub fn floats(&self) -> Vec<f32> {
        let words = self.bytes.as_chunks().0;
        words.iter().map(|w| f32::from_le_bytes(*w)).collect()
    }
}

/// All arrays of one part of `testdata/kernels`.
pub struct Kernels(BTreeMap<String, Array>);

impl Kernels {
    /// Reads part `a` (16 rows of 2560) or `b` (48 rows of 256).
    ///
    /// # Errors
    /// The files are missing or damaged.
    pub fn load(part: &str) -> Result<Kernels> {
        let data = std::fs::read(testdata(&format!("kernels/kernels-{part}.bin")))?;
        let index = std::fs::read_to_string(testdata(&format!("kernels/kernels-{part}.txt")))?;
        let mut arrays = BTreeMap::new();
        for line in index.lines() {
            let array = parse_line(line, &data);
            let (name, array) = array.with_context(|| format!("index line {line:?}"))?;
            arrays.insert(name, array);
        }
        Ok(Kernels(arrays))
    }

    /// The array of this name.
    pub fn get(&self, name: &str) -> Option<&Array> {
        self.0.get(name)
    }
}

fn parse_line(line: &str, data: &[u8]) -> Option<(String, Array)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [name, kind, rows, columns, offset] = fields[..] else {
        return None;
    };
    let number = |s: &str| s.parse::<usize>().ok();
    let (rows, columns, offset) = (number(rows)?, number(columns)?, number(offset)?);
    let size = rows * columns * if kind == "f32" { 4 } else { 1 };
    let bytes = data.get(offset..offset + size)?.to_vec();
    Some((name.to_owned(), Array { rows, bytes }))
}

/// Token ids and the reference's hash of the logits at each position.
pub struct Logits {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// SHA-256 of the f32 little-endian logits, in hexadecimal, one per token.
    pub sha256: Vec<String>,
}

/// Reads `testdata/golden/logits/NAME.json`.
///
/// # Errors
/// The file is missing or not of that form.
pub fn logits(name: &str) -> Result<Logits> {
    let json = json(&format!("golden/logits/{name}.json"))?;
    let list = |key: &str| {
        json[key]
            .as_array()
            .with_context(|| format!("{name}: no list '{key}'"))
    };
    let tokens = list("tokens")?.iter().map(|v| v.as_u64().map(|v| v as u32));
    let sha256 = list("sha256_f32le_per_position")?
        .iter()
        .map(|v| v.as_str().map(str::to_owned));
    Ok(Logits {
        tokens: tokens.collect::<Option<_>>().context("token ids")?,
        sha256: sha256.collect::<Option<_>>().context("hashes")?,
    })
}

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
            Ok(Quantized {
                sha256: next()?,
                source: next()?,
                ty: next()?,
                options: words.collect(),
            })
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
    let running = value["running"]
        .as_array()
        .context("no running estimates")?;
    Ok(Perplexity {
        n_ctx: value["n_ctx"].as_u64().context("n_ctx")?,
        estimate: text("ppl").zip(text("err")).context("no estimate")?,
        running: running
            .iter()
            .filter_map(serde_json::Value::as_f64)
            .collect(),
    })
}

fn json(path: &str) -> Result<serde_json::Value> {
    let bytes = std::fs::read(testdata(path)).with_context(|| path.to_owned())?;
    serde_json::from_slice(&bytes).with_context(|| path.to_owned())
}
