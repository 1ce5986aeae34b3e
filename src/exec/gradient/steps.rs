//! The operations of a program one by one, and which values their derivatives read.

use std::ops::Range;

use crate::ops::attention::Reach;
use crate::program::{Op, Operation, Program, Value};

/// The operations of a program without fusions.
pub struct Steps {
    pub operations: Vec<Operation>,
    /// The operations of all blocks.
    pub blocks: Range<usize>,
    /// The operation that takes the rows whose logits are wanted.
    pub head: usize,
    /// The residual stream behind the last block.
    pub stream: Value,
    /// The rows that are taken of it, and their logits.
    pub taken: Value,
    pub logits: Value,
    /// Floats of a row of each value.
    pub columns: Vec<usize>,
    /// For each value the operation that reads it last, and whether a derivative reads it too.
    last: Vec<usize>,
    kept: Vec<bool>,
}

impl Steps {
    pub fn of(program: &Program) -> Steps {
        let mut columns: Vec<usize> = (0..program.values()).map(|i| program.shape(Value(i)).columns).collect();
        let mut new = |like: usize| {
            columns.push(like);
            Value(columns.len() - 1)
        };
        let (mut operations, mut moved) = (Vec::new(), Vec::new());
        for Operation { op, inputs, outputs } in program.operations() {
            moved.push(operations.len());
            let mut push = |op, inputs: &[Value], outputs: &[Value]| {
                operations.push(Operation { op, inputs: inputs.to_vec(), outputs: outputs.to_vec() });
            };
            match op {
                Op::GatedProducts(products, activation) => {
                    let [gate, up, down] = &**products;
                    let inputs_of_down = program.matrix(down.matrix).columns;
                    let [g, u, inner] = [(); 3].map(|()| new(inputs_of_down));
                    push(Op::Products(vec![gate.clone(), up.clone()]), inputs, &[g, u]);
                    push(Op::Gate(*activation), &[g, u], &[inner]);
                    push(Op::Products(vec![down.clone()]), &[inner], outputs);
                }
                Op::AddNorm(norm) => {
                    push(Op::Add, inputs, &outputs[..1]);
                    push(Op::Norm(norm.clone()), &outputs[..1], &outputs[1..]);
                }
                op => push(op.clone(), inputs, outputs),
            }
        }
        moved.push(operations.len());
        let (mut last, mut kept) = (vec![0; columns.len()], vec![false; columns.len()]);
        for (at, operation) in operations.iter().enumerate() {
            for (i, value) in operation.inputs.iter().enumerate() {
                last[value.0] = at;
                kept[value.0] |= is_read_back(&operation.op, i);
            }
        }
        kept[program.stream().0] = true;
        let ends = |range: Range<usize>| moved[range.start]..moved[range.end];
        let of_blocks = program.start().end..program.blocks().last().map_or(0, |block| block.end);
        Steps {
            operations,
            columns,
            blocks: ends(of_blocks),
            head: moved[program.head().start],
            stream: program.stream(),
            taken: program.taken(),
            logits: program.logits(),
            last,
            kept,
        }
    }

    /// The operations that make the residual stream.
    pub fn body(&self) -> Range<usize> {
        0..self.head
    }

    /// The operations that make logits of the rows that are taken.
    pub fn behind(&self) -> Range<usize> {
        self.head + 1..self.operations.len()
    }

    /// The values that nobody reads behind operation number `at`, neither there nor on the way back.
    pub fn ending(&self, at: usize) -> impl Iterator<Item = Value> {
        let inputs = self.operations[at].inputs.iter();
        inputs.copied().filter(move |value| self.last[value.0] == at && !self.kept[value.0])
    }
}

/// True if the derivative of `op` reads input number `i`: that of most operations does.
fn is_read_back(op: &Op, i: usize) -> bool {
    match op {
        Op::Fill(_) | Op::Add | Op::AddRow(_) | Op::DivideRow(_) | Op::MultiplyAdd(_) => false,
        Op::Scale(_) | Op::ScaleByPosition(_) | Op::Rotate(..) | Op::Hadamard(_) => false,
        Op::Split(_) | Op::Join(_) | Op::Repeat { .. } | Op::Take => false,
        Op::Dispatch { weighed } | Op::Combine { weighed } => *weighed || i == 1,
        Op::WriteStreams { mixed, .. } => *mixed || i > 0,
        _ => true,
    }
}

/// The part of an operation that has no derivative here, if there is one. Programs with such operations are refused, and
/// nobody else names them.
pub fn lacking(op: &Op) -> Option<String> {
    let adapted = match op {
        Op::Products(products) => products.iter().any(|product| !product.adapters.is_empty()),
        Op::ProductsOfExperts(stacks) => stacks.iter().flat_map(|stack| &stack.adapters).any(|all| !all.is_empty()),
        _ => false,
    };
    match op {
        Op::Attend(attend) if attend.both_ways => Some("attention in both directions".to_owned()),
        Op::Attend(attend) if attend.reach != Reach::Own => Some("attention of drafters".to_owned()),
        Op::Attend(attend) if attend.rules.as_ref().is_some_and(|rules| rules.back.is_some()) => {
            Some("biases by distance".to_owned())
        }
        Op::AdaptEmbedding(_)
        | Op::AttendCompressed(_)
        | Op::AttendSource(_)
        | Op::Blend(_)
        | Op::ChooseSwitched(_)
        | Op::Compress(..)
        | Op::Convolve(..)
        | Op::Decay(_)
        | Op::Delta(..)
        | Op::EmbedNgrams(..)
        | Op::EmbedSwitched(..)
        | Op::GatedLinear(..)
        | Op::Hidden
        | Op::Lightning(..)
        | Op::RootedDots(_)
        | Op::Scan(..)
        | Op::Shift(_)
        | Op::SoftMax
        | Op::Spread(..)
        | Op::Store(_)
        | Op::SwitchSignals(_)
        | Op::Turn(..)
        | Op::Wkv6(..)
        | Op::Wkv7(..) => Some(op.name().to_owned()),
        _ if adapted => Some("adapters".to_owned()),
        // named one by one, so that a new operation is on one of the two lists
        Op::Activate(_)
        | Op::Add
        | Op::AddNorm(_)
        | Op::AddRow(_)
        | Op::AsLong(_)
        | Op::Attend(_)
        | Op::Choose(_)
        | Op::Clamp(_)
        | Op::Combine { .. }
        | Op::Cutoff(_)
        | Op::Dispatch { .. }
        | Op::DivideRow(_)
        | Op::Embed(_)
        | Op::EmbedPositions(_)
        | Op::Fill(_)
        | Op::Gate(_)
        | Op::GatedProducts(..)
        | Op::Hadamard(_)
        | Op::HeadGate(_)
        | Op::Join(_)
        | Op::Multiply
        | Op::MultiplyAdd(_)
        | Op::Norm(_)
        | Op::Products(_)
        | Op::ProductsByHead(_)
        | Op::ProductsOfExperts(_)
        | Op::ReadStreams(_)
        | Op::Repeat { .. }
        | Op::Rotate(..)
        | Op::Scale(_)
        | Op::ScaleByGate { .. }
        | Op::ScaleByPosition(_)
        | Op::Sigmoid
        | Op::SoftCap(_)
        | Op::Split(_)
        | Op::SumStreams(_)
        | Op::Take
        | Op::WriteStreams { .. } => None,
    }
}
