//! Sums of products of inputs.

use std::collections::BTreeMap;

use trine_formats::hessian::{Hessians, Input};

use super::error::CollectError;

/// Sums and what they are of.
#[derive(Debug)]
pub struct Collected {
    /// Everything but the sums.
    pub header: Hessians,
    /// The lower triangle of every input, row after row.
    pub sums: Vec<Vec<f64>>,
}

impl Collected {
    /// Sums of no token yet, for `header`, which has no chunk.
    ///
    /// # Errors
    /// More memory than `limit` bytes; nothing is taken then.
    pub fn zeros(header: Hessians, limit: Option<u64>) -> Result<Collected, CollectError> {
        let need = header.bytes().unwrap_or(u64::MAX);
        if let Some(limit) = limit.filter(|&limit| need > limit) {
            let inputs = header.inputs.len();
            return Err(CollectError::Memory { inputs, need, limit });
        }
        let elements = |input: &Input| input.elements().unwrap_or(0) as usize;
        let sums = header.inputs.iter().map(|i| vec![0.0; elements(i)]);
        let sums = sums.collect();
        Ok(Collected { header, sums })
    }
}

/// Names of weights and the number of the input that each reads.
pub(super) type Weights = BTreeMap<String, usize>;
