//! Operations with their operands, in order.

use std::ops::Range;

use super::op::Op;
use super::value::Value;

/// One operation with its operands.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The operation.
    pub op: Op,
    /// Values that it reads.
    pub inputs: Vec<Value>,
    /// Values that it makes.
    pub outputs: Vec<Value>,
}

/// The operations of a pass in order, and where its parts begin.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// All of them.
    pub operations: Vec<Operation>,
    /// The operations of each block, in the order in which blocks run.
    pub blocks: Vec<Range<usize>>,
    /// The operation that takes the rows whose logits are wanted.
    pub head: usize,
}
