//! A forward pass.

use std::ops::Range;

use super::op::Op;
use super::operation::{Operation, Order};
use super::plan::Plan;
use super::rewrite;
use super::value::{MatrixId, MatrixInfo, RowCount, Shape, Value};

/// A forward pass, from the tokens to the logits.
#[derive(Clone, Debug)]
pub struct Program {
    shapes: Vec<Shape>,
    order: Order,
    matrices: Vec<MatrixInfo>,
    /// The normed rows that logits are made of.
    hidden: Value,
    /// `None` of models that make vectors alone.
    logits: Option<Value>,
    /// Values that are read behind a pass.
    kept: Vec<Value>,
    plan: Plan,
}

impl Program {
    /// A pass of these operations; operations are fused where the results are bit-identical.
    pub(super) fn new(
        shapes: Vec<Shape>,
        mut order: Order,
        matrices: Vec<MatrixInfo>,
        (hidden, logits): (Value, Option<Value>),
        kept: Vec<Value>,
    ) -> Program {
        let last = logits.unwrap_or(hidden);
        rewrite::all(&mut order, &[&kept[..], &[hidden, last]].concat());
        let stream = order.operations[order.head].inputs[0];
        let plan = Plan::of(&order.operations, &shapes, &[&kept[..], &[stream, hidden, last]].concat());
        Program { shapes, order, matrices, hidden, logits, kept, plan }
    }

    /// The operations in order.
    pub fn operations(&self) -> &[Operation] {
        &self.order.operations
    }

    /// Name and size of a value.
    pub fn shape(&self, value: Value) -> &Shape {
        &self.shapes[value.0]
    }

    /// Number of values.
    pub fn values(&self) -> usize {
        self.shapes.len()
    }

    /// The matrices, by number.
    pub fn matrices(&self) -> &[MatrixInfo] {
        &self.matrices
    }

    /// A matrix by its number.
    pub fn matrix(&self, matrix: MatrixId) -> &MatrixInfo {
        &self.matrices[matrix.0]
    }

    /// The operations of each block, in the order in which blocks run.
    pub fn blocks(&self) -> &[Range<usize>] {
        &self.order.blocks
    }

    /// The operations before the first block.
    pub fn start(&self) -> Range<usize> {
        0..self.order.blocks.first().map_or(self.order.head, |block| block.start)
    }

    /// The operations that make the residual stream: all before the rows of the logits are taken.
    pub fn body(&self) -> Range<usize> {
        0..self.order.head
    }

    /// The operations that make logits of the rows that are taken: the first one takes them.
    pub fn head(&self) -> Range<usize> {
        self.order.head..self.order.operations.len()
    }

    /// The residual stream behind the last block, of which rows are taken for logits.
    pub fn stream(&self) -> Value {
        self.order.operations[self.order.head].inputs[0]
    }

    /// The rows that are taken.
    pub fn taken(&self) -> Value {
        self.order.operations[self.order.head].outputs[0]
    }

    /// The hidden states: the normed rows that logits are made of.
    pub fn hidden(&self) -> Value {
        self.hidden
    }

    /// True if it ends with logits, false if with hidden states.
    pub fn makes_logits(&self) -> bool {
        self.logits.is_some()
    }

    /// The logits, or the hidden states of a program that makes none.
    pub fn logits(&self) -> Value {
        self.logits.unwrap_or(self.hidden)
    }

    /// The logits before they are bounded, and the bound, where the last operation is one: executors without that
    /// operation leave it to the host.
    pub fn bound(&self) -> Option<(Value, f32)> {
        let last = self.order.operations.last()?;
        match last.op {
            Op::SoftCap(cap) => Some((last.inputs[0], cap)),
            _ => None,
        }
    }

    /// Values of the body that are read behind a pass, beside the residual stream.
    pub fn kept(&self) -> &[Value] {
        &self.kept
    }

    /// When values are read for the last time.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The experts that a token goes to, of an operation on rows of experts; 1 of any other.
    pub fn experts_per_token(&self, operation: &Operation) -> usize {
        let rows = operation.outputs.first().map(|output| self.shape(*output).rows);
        if let Some(RowCount::Experts(used)) = rows { used } else { 1 }
    }

    /// Elements of the hidden state that is given with every token; 0 where tokens are all that is read.
    pub fn given_beside(&self) -> usize {
        let mut start = self.operations()[self.start()].iter();
        let given = start.find(|operation| matches!(operation.op, Op::Hidden));
        given.map_or(0, |operation| self.shape(operation.outputs[0]).columns)
    }

    /// The values that operations from number `at` on read and earlier ones make.
    pub fn entering(&self, at: usize) -> Vec<Value> {
        let mut made = vec![false; self.shapes.len()];
        let mut found = Vec::new();
        for operation in &self.order.operations[at..] {
            for &input in &operation.inputs {
                if !made[input.0] && !found.contains(&input) {
                    found.push(input);
                }
            }
            operation.outputs.iter().for_each(|output| made[output.0] = true);
        }
        found
    }
}
