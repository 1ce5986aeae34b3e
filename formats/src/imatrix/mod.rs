//! Importance matrices: per column of a weight matrix, the mean square of the activations it meets.
//!
//! Two forms are read as llama-quantize reads them. The GGUF form holds, for each weight `NAME`, the
//! sums of squares `NAME.in_sum2` and the token counts `NAME.counts`, one per expert. The legacy form is
//!
//! ```text
//! n_entries i32
//! n_entries x { name length i32, name, calls i32, n i32, f32 x n: mean square times calls }
//! optional: chunks i32, data set length i32, data set name
//! ```
//!
//! Both are written as llama-imatrix writes them.

mod merge;
mod read;
mod write;

use std::collections::BTreeMap;

use thiserror::Error;

use crate::gguf::GgufError;

/// Format of an importance matrix file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFormat {
    /// GGUF: sums and counts as tensors.
    Gguf,
    /// The legacy format, `.dat`: mean squares times calls.
    Legacy,
}

/// Why an importance matrix was refused.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ImatrixError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error("the file holds no importance matrix: {0}")]
    NoData(&'static str),
    #[error("the file is neither a GGUF nor a legacy importance matrix: {what} (at byte {offset})")]
    Legacy { what: String, offset: u64 },
    #[error("'{name}': {what}")]
    Entry { name: String, what: String },
}

/// The collected statistics of one weight matrix, as the file holds them.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// GGUF form: sums of squares, `columns` values per expert. Legacy form: mean squares times calls.
    pub sums: Vec<f32>,
    /// GGUF form: tokens seen, one count per expert. Legacy form: the number of calls, alone.
    pub counts: Vec<i64>,
}

/// An importance matrix file.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Imatrix {
    /// Statistics by weight name, such as `blk.0.attn_q.weight`, in byte order.
    pub entries: BTreeMap<String, Entry>,
    /// The texts it was computed on.
    pub datasets: Vec<String>,
    /// Number of chunks it was computed on; 0 when not stored.
    pub chunk_count: u32,
    /// Tokens per chunk; 0 in the legacy form, which does not store it.
    pub chunk_size: u32,
    /// True if the file has the legacy form.
    pub legacy: bool,
}

impl Imatrix {
    /// The importance of every column of `name`, expert after expert, as llama-quantize passes it to the
    /// encoders: mean squares, 1 for experts that saw no token. `None` when the file lacks the weight.
    pub fn importance(&self, name: &str) -> Option<Vec<f32>> {
        self.entries.get(name).map(|e| if self.legacy { e.legacy_means() } else { e.means() })
    }
}

impl Entry {
    fn means(&self) -> Vec<f32> {
        let columns = (self.sums.len() / self.counts.len().max(1)).max(1);
        let experts = self.sums.chunks_exact(columns).zip(&self.counts);
        let mean = |(sums, &count): (&[f32], &i64)| -> Vec<f32> {
            let count = count as f32;
            sums.iter().map(|&s| if count > 0.0 { s / count } else { 1.0 }).collect()
        };
        experts.flat_map(mean).collect()
    }

    fn legacy_means(&self) -> Vec<f32> {
        match self.counts.first() {
            Some(&calls) if calls > 0 => self.sums.iter().map(|&s| s / calls as f32).collect(),
            _ => self.sums.clone(),
        }
    }
}

const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";
const DATASETS: &str = "imatrix.datasets";
const CHUNK_COUNT: &str = "imatrix.chunk_count";
const CHUNK_SIZE: &str = "imatrix.chunk_size";
