//! When values are read for the last time, and how much memory a pass takes.

use super::operation::Operation;
use super::value::{RowCount, Shape, Value};

/// The lives of a program's values.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// For each value the operation that reads it last; that which makes it where nobody reads it.
    last: Vec<usize>,
    /// For each operation the values that end with it.
    ending: Vec<Vec<Value>>,
    /// The most floats that live at the same time, for each token, in the body.
    peak: usize,
}

impl Plan {
    /// The lives of all values of some operations. Those in `leaving` live on behind the last one.
    pub(super) fn of(operations: &[Operation], shapes: &[Shape], leaving: &[Value]) -> Plan {
        let mut last = vec![0; shapes.len()];
        for (at, operation) in operations.iter().enumerate() {
            for value in operation.inputs.iter().chain(&operation.outputs) {
                last[value.0] = at;
            }
        }
        leaving.iter().for_each(|value| last[value.0] = operations.len());
        let floats = |value: &Value| {
            let shape = &shapes[value.0];
            match shape.rows {
                RowCount::Tokens => shape.columns,
                RowCount::Experts(used) => used * shape.columns,
                RowCount::Wanted => 0,
            }
        };
        let (mut living, mut peak) = (0usize, 0);
        let mut ending = Vec::with_capacity(operations.len());
        for (at, operation) in operations.iter().enumerate() {
            living += operation.outputs.iter().map(floats).sum::<usize>();
            peak = peak.max(living);
            let values = operation.inputs.iter().chain(&operation.outputs).copied();
            let mut ends: Vec<Value> = values.filter(|value| last[value.0] == at).collect();
            ends.sort();
            ends.dedup();
            living -= ends.iter().map(floats).sum::<usize>();
            ending.push(ends);
        }
        Plan { last, ending, peak }
    }

    /// True if operation number `at` is the last that reads `value`.
    pub fn ends(&self, value: Value, at: usize) -> bool {
        self.last[value.0] == at
    }

    /// The values that operation number `at` is the last to read.
    pub fn ending(&self, at: usize) -> &[Value] {
        &self.ending[at]
    }

    /// The most bytes of values that live at the same time in a pass of `tokens` tokens. Operations need working memory
    /// of their own beside them.
    pub fn bytes(&self, tokens: usize) -> usize {
        self.peak.saturating_mul(4).saturating_mul(tokens)
    }
}
