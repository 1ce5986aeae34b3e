//! Sums of products of inputs.

use std::collections::BTreeMap;
use std::ops::Range;

use trine_formats::hessian::{Hessians, Input, Reads};

use super::error::CollectError;

/// Sums and what they are of.
#[derive(Debug)]
pub struct Collected {
    /// Everything but the sums.
    pub header: Hessians,
    /// The lower triangle of every input, row after row; empty of those that are not collected now.
    pub sums: Vec<Vec<f64>>,
}

impl Collected {
    /// Sums of no token yet for the inputs `wanted` of `header`, which has no chunk.
    pub fn zeros(header: Hessians, wanted: Range<usize>) -> Collected {
        let elements = |(number, input): (usize, &Input)| match wanted.contains(&number) {
            true => input.elements().unwrap_or(0) as usize,
            false => 0,
        };
        let sums = header.inputs.iter().enumerate().map(|input| vec![0.0; elements(input)]).collect();
        Collected { header, sums }
    }
}

/// Neighbouring inputs whose sums take `limit` bytes at most, so that each group of them is collected in a pass of its
/// own over the text; all in one group without a limit.
///
/// # Errors
/// An input that takes more.
pub fn groups(header: &Hessians, limit: Option<u64>) -> Result<Vec<Range<usize>>, CollectError> {
    let limit = limit.unwrap_or(u64::MAX);
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut room = 0;
    for (number, input) in header.inputs.iter().enumerate() {
        let need = input.bytes().unwrap_or(u64::MAX);
        if need > limit {
            return Err(CollectError::Memory { tensor: input.name.clone(), need, limit });
        }
        match groups.last_mut().filter(|_| need <= room) {
            Some(group) => group.end = number + 1,
            None => {
                groups.push(number..number + 1);
                room = limit;
            }
        }
        room -= need;
    }
    Ok(groups)
}

/// Names of weights and the inputs that each reads.
pub(super) type Weights = BTreeMap<String, Reads>;
