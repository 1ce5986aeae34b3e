//! Operations that few models have, as data.

use super::ProgramError;
use super::memory::size;

/// Scores of a head that fill up the first and the last group of four of a window, at most.
const MORE: usize = 8;

/// An operation between products. Values are numbers of the program's, the first is written; a `row` is a memory of
/// weights.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Between {
    /// `x /= row`.
    DivideRow { x: usize, row: usize },
    /// `x += y * row`.
    MultiplyAdd { x: usize, y: usize, row: usize },
    /// `x += y * factor`, where passes are told a factor of this number.
    AddTimes { x: usize, y: usize, number: usize },
    /// The same row for all.
    Fill { x: usize, row: usize },
    /// Rows times the factors of their positions.
    ScaleRows { x: usize, factors: usize },
    /// `x` times the soft-plus of its gates, with the tables of the exponential and of the logarithm.
    SoftplusGate { x: usize, gates: usize, tables: [usize; 2] },
    /// tanh(x).
    Tanh { x: usize },
    /// SiLU, no more than the limit, times `up` within it.
    LimitedSilu { gate: usize, up: usize, limit: f32 },
    /// SiLU of a bounded factor, times `up` within its bound, if that is above zero.
    BoundedSilu { gate: usize, up: usize, bounds: [f32; 2], powers: usize },
    /// The root of the soft-plus.
    RootOfSoftplus { x: usize, tables: [usize; 2] },
    /// Parts of `width` elements as long as those of `y`.
    AsLong { x: usize, y: usize, width: usize },
    /// The part above mean and deviation times a factor.
    Cutoff { x: usize, factor: f32 },
    /// Sums of streams by a matrix.
    SumStreams { to: usize, x: usize, coefficients: usize, count: usize },
    /// Coefficients of streams.
    Coefficients(Coefficients),
    /// The sum of streams times their coefficients.
    ReadStreams { to: usize, x: usize, coefficients: usize, count: usize, mixed: bool },
    /// Streams, and `y` added to each.
    WriteStreams { x: usize, y: usize, coefficients: usize, count: usize, mixed: bool },
    /// The heads of rows.
    NumberHeads { to: usize, heads: usize },
    /// Sums of the rows of a stream.
    SumRow { x: usize, sums: usize, stream: usize },
    /// The soft-max of every row.
    SoftMax { x: usize, powers: usize },
    /// A stream times its weights, added to those before it.
    Blend { to: usize, x: usize, weights: usize, stream: usize },
    /// Roots of the dot products of parts of `width` elements, with their sign.
    RootedDots { to: usize, x: usize, y: usize, width: usize },
}

/// Coefficients of streams, of numbers that a projection has made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Coefficients {
    /// Values of the coefficients of reading.
    pub read: usize,
    /// The coefficients of writing, where there are any.
    pub written: Option<usize>,
    pub numbers: usize,
    /// Memories of scales, bases and the table of the exponential.
    pub weights: [usize; 3],
    pub count: usize,
    pub eps: f32,
    pub magnitude: f32,
    pub offset: f32,
    pub mixing: Option<(usize, f32)>,
}

impl Between {
    /// Values that it reads or writes.
    pub fn values(&self) -> Vec<usize> {
        match *self {
            Between::DivideRow { x, .. }
            | Between::Fill { x, .. }
            | Between::ScaleRows { x, .. }
            | Between::Tanh { x }
            | Between::Cutoff { x, .. }
            | Between::SoftMax { x, .. }
            | Between::RootOfSoftplus { x, .. }
            | Between::NumberHeads { to: x, .. } => vec![x],
            Between::MultiplyAdd { x, y, .. }
            | Between::AddTimes { x, y, .. }
            | Between::SoftplusGate { x, gates: y, .. }
            | Between::LimitedSilu { gate: x, up: y, .. }
            | Between::BoundedSilu { gate: x, up: y, .. }
            | Between::AsLong { x, y, .. }
            | Between::SumRow { x, sums: y, .. } => vec![x, y],
            Between::SumStreams { to, x, coefficients, .. }
            | Between::ReadStreams { to, x, coefficients, .. }
            | Between::WriteStreams { x: to, y: x, coefficients, .. }
            | Between::Blend { to, x, weights: coefficients, .. }
            | Between::RootedDots { to, x, y: coefficients, .. } => vec![to, x, coefficients],
            Between::Coefficients(c) => [c.numbers, c.read].into_iter().chain(c.written).collect(),
        }
    }
}

/// Attention in both directions, of values of the program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Whole {
    pub queries: usize,
    pub keys: usize,
    pub values: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub size: usize,
    pub scale: f32,
    /// The greatest distance at which tokens see one another.
    pub reach: usize,
    /// Memory of the slopes of the heads.
    pub slopes: Option<usize>,
    /// Memory of the table of the exponential.
    pub powers: usize,
    pub to: usize,
}

impl Whole {
    /// Bytes of the scores of a token in passes of `tokens` tokens.
    pub fn scores(&self, tokens: usize) -> Result<usize, ProgramError> {
        size(&[self.heads, tokens, 4], "scores")
    }
}

/// Attention to the last positions and to compressed keys, of values of the program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Compressed {
    pub queries: usize,
    /// Memories of the keys of positions and of the compressed ones.
    pub cells: [usize; 2],
    pub heads: usize,
    pub size: usize,
    pub scale: f32,
    pub window: usize,
    pub ratio: usize,
    /// Memories of the scores of cells without a value and of the table of the exponential.
    pub sinks: Option<[usize; 2]>,
    pub to: usize,
}

impl Compressed {
    /// Scores of a head in a context.
    pub fn stride(&self, context: usize) -> usize {
        self.window.min(context) + MORE + context / self.ratio
    }

    /// Bytes of the scores of a token.
    pub fn scores(&self, context: usize) -> Result<usize, ProgramError> {
        size(&[self.heads, self.stride(context), 4], "scores")
    }
}
