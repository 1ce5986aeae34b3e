//! The operations of a pass.

use trine_formats::types::TypeId;

use super::few::{Between, Compressed, Whole};
use super::form::Form;
use super::memory::Quants;
use super::plane_matrix::PlacedPlanes;
use super::recurrent::Recurrent;
use crate::fast::WeightFormat;

/// The function of a gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// x / (1 + e^-x).
    Silu,
    /// max(x, 0).
    Relu,
    /// max(x, 0)^2.
    SquaredRelu,
}

impl Gate {
    /// The kernel that multiplies by what stands beside the gate; its name and `_alone` is the one without.
    pub(super) fn kernel(self) -> &'static str {
        match self {
            Gate::Silu => "silu",
            Gate::Relu => "relu",
            Gate::SquaredRelu => "squared_relu",
        }
    }
}

/// From a router's scores to probabilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gating {
    /// Soft-max over all experts.
    SoftMax,
    /// 1 / (1 + e^-x) of each.
    Sigmoid,
    /// The scores themselves; those of the chosen experts become their soft-max.
    SoftMaxOfChosen,
    /// The scores themselves.
    Itself,
}

/// The values by which experts are ranked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// Their probabilities.
    Probabilities,
    /// The router's scores.
    Scores,
    /// 1 / (1 + e^-x) of those.
    Sigmoids,
}

/// The table of libm's exponential: the bits of 2^(i / 32), minus i 2^47.
pub type Powers = [u64; 32];

/// A function of every element of a value, some with the element of another value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Function {
    /// `x * y`.
    Multiply,
    /// Within this of zero.
    Clamp(f32),
    /// `x / (1 + e^(-steepness x)) * (y + more)`, `x` no more than the limit and `y` within it.
    ClampedSilu { limit: f32, steepness: f32, more: f32 },
    /// xIELU by its four numbers.
    Xielu([f32; 4]),
    /// `tanh(x / cap) * cap`.
    SoftCap(f32),
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `x` times the sigmoid of `y`, or `y` itself, which has a number for each `size` elements.
    HeadGate { itself: bool, size: usize },
}

/// Elements of the rows of one value that become elements of the rows of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// Elements of a row.
    pub width: usize,
    /// Elements of a row of the source, and the first that is copied.
    pub from: [usize; 2],
    /// The same of the target.
    pub to: [usize; 2],
}

/// A matrix in memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Placed {
    pub ty: TypeId,
    pub rows: usize,
    pub columns: usize,
    /// The number of its first memory; metadata and scales, where they stand apart, are in the next ones.
    pub memory: usize,
    /// The scale of the whole tensor, where there is one.
    pub scale: f32,
    /// The layout where activations are in half precision; `None` where the bits are the processor's.
    pub halves: Option<WeightFormat>,
}

/// One operation. Values are numbers of the program's, `to` is written.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Operation {
    /// Rows of a table, decoded.
    Embed {
        kernel: &'static str,
        table: usize,
        /// The numbers of the rows, several for each token; those of the tokens where there are none.
        numbers: Option<usize>,
        to: usize,
    },
    /// Norms of the parts of every row: of the root mean square, or layer norms.
    Norm {
        layer: bool,
        from: usize,
        gains: usize,
        parts: usize,
        eps: f32,
        to: usize,
    },
    /// `x += y`, and the norm of that.
    AddNorm {
        x: usize,
        y: usize,
        gains: usize,
        eps: f32,
        to: usize,
    },
    /// A norm and the quantizer of what it gives.
    NormQuantize(NormQuantize),
    /// A gate and the quantizer of what it gives.
    GateQuantize(GateQuantize),
    Add {
        to: usize,
        from: usize,
    },
    /// Adds one row to all.
    AddRow {
        to: usize,
        row: usize,
    },
    Scale {
        to: usize,
        factor: f32,
    },
    /// The rows of the tokens whose logits are wanted.
    Take {
        from: usize,
        to: usize,
    },
    Quantize {
        from: usize,
        quants: Quants,
        to: usize,
    },
    Product {
        matrix: Placed,
        from: usize,
        to: usize,
    },
    /// A function of every element of `x`, some with those of `y`.
    Apply {
        function: Function,
        x: usize,
        y: Option<usize>,
        /// The table of the exponential.
        powers: Option<usize>,
    },
    /// A part of every row.
    Copy {
        from: usize,
        part: Part,
        to: usize,
    },
    /// Every `width` elements, `times` times.
    Repeat {
        from: usize,
        width: usize,
        times: usize,
        to: usize,
    },
    /// Products of rows with any-precision weights. `x` are the rows as floats, for sparse weights.
    Planes {
        matrix: PlacedPlanes,
        from: usize,
        x: usize,
        to: usize,
    },
    Rotate {
        x: usize,
        table: usize,
        pairs: usize,
        neighbours: bool,
        heads: usize,
    },
    /// Keys or values into their cells.
    Store {
        from: usize,
        cells: usize,
        heads: usize,
        form: Form,
    },
    Attend(Attend),
    /// Attention in both directions.
    Whole(Whole),
    /// Attention to the last positions and to compressed keys.
    Compressed(Compressed),
    /// An operation between products that few models have.
    Between(Between),
    /// GELU by its table.
    Gelu {
        table: usize,
        gate: usize,
        up: Option<usize>,
    },
    Gate {
        function: Gate,
        gate: usize,
        up: Option<usize>,
    },
    Choose(Choose),
    /// Experts by the token.
    ChooseByToken(ByToken),
    /// Numbers of experts that are given as floats.
    TakeChoice {
        from: usize,
        chosen: usize,
        weights: usize,
    },
    /// Places of the tokens of each expert, in blocks of eight.
    List {
        chosen: usize,
        list: usize,
    },
    /// Products of rows with the matrices of the experts that were chosen. `who` says which: a list, or the choice
    /// itself.
    ProductOfChosen {
        matrix: Placed,
        from: usize,
        who: usize,
        to: usize,
    },
    /// Rows of places with a number of their expert, or a row of numbers.
    OfChosen {
        function: OfChosen,
        to: usize,
        numbers: usize,
        chosen: usize,
    },
    /// Rows for the experts of their tokens, times the weights.
    Weigh {
        from: usize,
        weights: usize,
        to: usize,
    },
    /// The sum of what a token's experts gave, times their weights where that is still to be done.
    Combine {
        from: usize,
        weights: usize,
        weighed: bool,
        to: usize,
    },
    /// Rows times the sigmoid of their gates.
    ScaleByGate {
        x: usize,
        gates: usize,
        powers: usize,
        plain: bool,
    },
    /// Recurrences over positions, and what stands around them.
    Recurrent(Recurrent),
}

/// Use of the numbers of an expert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OfChosen {
    /// A factor for each expert.
    Scale,
    /// A bias for each expert.
    Add,
}

/// The choice of experts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Choose {
    pub scores: usize,
    /// Added to what experts are chosen by.
    pub bias: Option<usize>,
    /// The table of the exponential.
    pub powers: usize,
    pub used: usize,
    pub gating: Gating,
    pub claim: Claim,
    /// Groups, and how many of them a token may choose from.
    pub groups: Option<[usize; 2]>,
    pub shared_by: usize,
    pub normalize: bool,
    pub scale: f32,
    /// Numbers of the experts.
    pub chosen: usize,
    pub weights: usize,
}

/// A norm of the root mean square of whole rows, and the quants of what it gives. Values are numbers of the program's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct NormQuantize {
    pub x: usize,
    /// Added to `x` first.
    pub y: Option<usize>,
    pub gains: usize,
    pub eps: f32,
    /// The rows as floats, where something else reads them too.
    pub kept: Option<usize>,
    pub quants: Quants,
    pub to: usize,
}

/// A gate, and the quants of what it gives. Values are numbers of the program's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct GateQuantize {
    /// `None` for GELU.
    pub function: Option<Gate>,
    pub gate: usize,
    pub up: Option<usize>,
    /// Memory of GELU's table.
    pub table: Option<usize>,
    pub quants: Quants,
    pub to: usize,
}

/// The choice of experts by the token.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct ByToken {
    pub probabilities: usize,
    /// Memory of the experts of every token of the vocabulary.
    pub table: usize,
    pub used: usize,
    pub normalize: bool,
    pub scale: f32,
    /// Numbers of the experts.
    pub chosen: usize,
    pub weights: usize,
}

/// Attention over the cells of a layer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Attend {
    pub queries: usize,
    pub keys: usize,
    pub values: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub key_size: usize,
    pub value_size: usize,
    /// The types of keys and values.
    pub forms: [Form; 2],
    pub scale: f32,
    /// Cells that a query sees, 0 for all before it.
    pub window: usize,
    /// Windows begin at multiples of their size.
    pub chunked: bool,
    /// Factor on scores and cap of what their tangent is.
    pub cap: Option<[f32; 2]>,
    /// Slopes of the heads.
    pub slopes: Option<usize>,
    /// Scores of the heads for a cell without a value, and the table of the exponential.
    pub sinks: Option<[usize; 2]>,
    /// The table of the exponential, where values of a quantized type are added up.
    pub powers: Option<usize>,
    pub to: usize,
}

impl Operation {
    /// Calls `f` with every value that it reads or writes.
    pub fn values(&self, mut f: impl FnMut(usize)) {
        let mut all = |values: &[usize]| values.iter().for_each(|&value| f(value));
        match self {
            Operation::Embed { numbers, to, .. } => {
                all(&[*to]);
                numbers.iter().for_each(|numbers| all(&[*numbers]));
            }
            Operation::AddRow { to, .. } | Operation::Scale { to, .. } => all(&[*to]),
            Operation::Norm { from, to, .. }
            | Operation::Add { to, from }
            | Operation::Take { from, to }
            | Operation::Quantize { from, to, .. }
            | Operation::Copy { from, to, .. }
            | Operation::Repeat { from, to, .. }
            | Operation::Product { from, to, .. } => all(&[*from, *to]),
            Operation::AddNorm { x, y, to, .. } => all(&[*x, *y, *to]),
            Operation::Planes { from, x, to, .. } => all(&[*from, *x, *to]),
            Operation::Rotate { x, .. } => all(&[*x]),
            Operation::Apply { x, y, .. } => {
                all(&[*x]);
                y.iter().for_each(|y| all(&[*y]));
            }
            Operation::Store { from, .. } => all(&[*from]),
            Operation::Attend(a) => all(&[a.queries, a.to]),
            Operation::Compressed(a) => all(&[a.queries, a.to]),
            Operation::Whole(a) => all(&[a.queries, a.keys, a.values, a.to]),
            Operation::Between(between) => all(&between.values()),
            Operation::Choose(c) => all(&[c.scores, c.chosen, c.weights]),
            Operation::ChooseByToken(c) => all(&[c.probabilities, c.chosen, c.weights]),
            Operation::TakeChoice { from, chosen, weights } => all(&[*from, *chosen, *weights]),
            Operation::List { chosen, list } => all(&[*chosen, *list]),
            Operation::ProductOfChosen { from, who, to, .. } => all(&[*from, *who, *to]),
            Operation::Weigh { from, weights, to } | Operation::Combine { from, weights, to, .. } => {
                all(&[*from, *weights, *to])
            }
            Operation::OfChosen { to, chosen, .. } => all(&[*to, *chosen]),
            Operation::ScaleByGate { x, gates, .. } => all(&[*x, *gates]),
            Operation::NormQuantize(norm) => {
                all(&[norm.x, norm.to]);
                norm.y.iter().chain(&norm.kept).for_each(|value| all(&[*value]));
            }
            Operation::GateQuantize(fused) => {
                all(&[fused.gate, fused.to]);
                fused.up.iter().for_each(|up| all(&[*up]));
            }
            Operation::Recurrent(recurrent) => recurrent.values(f),
            Operation::Gelu { gate, up, .. } | Operation::Gate { gate, up, .. } => {
                all(&[*gate]);
                up.iter().for_each(|up| all(&[*up]));
            }
        }
    }
}
