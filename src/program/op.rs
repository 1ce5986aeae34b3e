//! The operations.

use super::setting::Scales;
use super::value::MatrixId;
use crate::ops::activation::{Activation, HeadGate};
use crate::ops::attention::{AttendCompressed, AttendSource, Heads, Reach, ScoreRules, Window};
use crate::ops::compress::Compress;
use crate::ops::convolution::Convolution;
use crate::ops::delta::{Decay, Delta};
use crate::ops::experts::Choosing;
use crate::ops::hadamard::Hadamard;
use crate::ops::lightning::Lightning;
use crate::ops::ngrams::Ngrams;
use crate::ops::norm::Norm;
use crate::ops::rope::Turn;
use crate::ops::scan::Scan;
use crate::ops::streams::Streams;
use crate::ops::switch::Switch;
use crate::ops::wkv::{GatedLinear, Wkv6, Wkv7};
use std::ops::Range;
use std::sync::Arc;

/// The position embedding of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RopeKind {
    /// That of layers that attend to all positions.
    Global,
    /// That of layers with a sliding window.
    Window,
}

/// A factor that grows with the position: `ln(floor((position + offset) / length) + 1) * scale + 1`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Temperature {
    /// Positions between two steps.
    pub length: u32,
    /// Factor on the logarithm.
    pub scale: f32,
    /// Added to the position.
    pub offset: f32,
}

impl Temperature {
    /// The factor at a position: the quotient in `f32`, logarithm, product and sum in `f64`, rounded.
    pub fn at(&self, position: usize) -> f32 {
        let steps = ((position as f32 + self.offset) / self.length as f32).floor();
        (crate::math::log(f64::from(steps) + 1.0) * f64::from(self.scale) + 1.0) as f32
    }
}

/// A low-rank adapter of a matrix: `factor * (B (A x))` is added to the product.
#[derive(Clone, Copy, Debug)]
pub struct LowRank {
    /// From inputs to `rank` numbers.
    pub a: MatrixId,
    /// From these to outputs.
    pub b: MatrixId,
    /// The number of the adapter that it is a part of.
    pub adapter: usize,
    /// The file's `alpha`, which is divided by the rank; 0 where it says none.
    pub alpha: f32,
    /// The adapter's factor where a pass does not say another.
    pub scale: f32,
}

impl LowRank {
    /// Factor on the outputs by the factors of all adapters; `None` where nothing is added.
    pub fn factor(&self, scales: Option<&Scales>, rank: usize) -> Option<f32> {
        let scale = scales.map_or(self.scale, |scales| scales[self.adapter]);
        let factor = match self.alpha {
            0.0 => scale,
            alpha => scale * alpha / rank as f32,
        };
        (scale != 0.0).then_some(factor)
    }
}

/// A product with a matrix: `y = (W x) * scale`, and what adapters add.
#[derive(Clone, Debug)]
pub struct Product {
    /// The matrix.
    pub matrix: MatrixId,
    /// True if observers read the inputs: one part of a fused matrix does it for all.
    pub observed: bool,
    /// Factor on the outputs, before adapters.
    pub scale: Option<f32>,
    /// Adapters, in the order of their sums.
    pub adapters: Vec<LowRank>,
}

/// The matrices of all experts, or of all heads.
#[derive(Clone, Debug)]
pub struct Stack {
    /// The matrices, whose numbers follow each other.
    pub matrices: Range<usize>,
    /// True if observers read the inputs: one part of a fused tensor does it for all.
    pub observed: bool,
    /// Factors on the outputs, one for each expert.
    pub scales: Option<Vec<f32>>,
    /// Biases, `[experts][rows]`.
    pub biases: Option<Vec<f32>>,
    /// Adapters of each expert.
    pub adapters: Vec<Vec<LowRank>>,
}

impl Stack {
    /// The matrix of one expert.
    pub fn matrix(&self, expert: usize) -> MatrixId {
        MatrixId(self.matrices.start + expert)
    }
}

/// Attention over the positions of a sequence.
#[derive(Clone, Debug)]
pub struct Attend {
    /// The layer of the KV cache that keys and values go to.
    pub cache: usize,
    /// Numbers of heads; the elements of a key.
    pub heads: Heads,
    /// Elements of a value.
    pub value_size: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Positions a query attends to, its own included; `None` for all before it.
    pub window: Option<Window>,
    /// Caps, slopes and sinks of the scores.
    pub rules: Option<ScoreRules>,
    /// True if queries attend to all positions of the pass, later ones included; nothing is cached then.
    pub both_ways: bool,
    /// The last position that a query attends to, where keys are cached.
    pub reach: Reach,
    /// True if the cache has keys and values already: an earlier operation of the pass put them there, or another model.
    pub stored: bool,
}

/// An operation. Inputs and outputs are `[rows][columns]` of `f32` unless it says otherwise; `x`, `y` … name the inputs
/// in order.
#[derive(Clone, Debug)]
pub enum Op {
    /// Rows of a table, decoded: those of the tokens.
    Embed(MatrixId),
    /// Rows of a table, decoded: those of the tokens, or of tokens that stand for them.
    EmbedSwitched(Arc<Switch>, MatrixId),
    /// Rows of a table, decoded: those of the tokens' positions.
    EmbedPositions(MatrixId),
    /// Rows of a table, decoded: those of the n-grams that end with the tokens; it continues from the state.
    EmbedNgrams(Box<Ngrams>, MatrixId, Range<usize>),
    /// Rows that are given with the tokens: the hidden state before each of them.
    Hidden,
    /// Low-rank term of the embeddings: `scale * (B a)`, `a` the tokens' rows of `A`; added to `x`.
    AdaptEmbedding(LowRank),
    /// The same row for every row of `x`.
    Fill(Vec<f32>),
    /// `norm(x)`.
    Norm(Norm),
    /// `x + y` and `norm(x + y)`: two outputs.
    AddNorm(Norm),
    /// `x + y`.
    Add,
    /// `x * y`.
    Multiply,
    /// For every so many elements of `x` and `y` their dot product's root, with its sign.
    RootedDots(usize),
    /// Every so many elements of `x` with the length of those of `y`, which stand for one or several of `x`.
    AsLong(usize),
    /// `x + row`.
    AddRow(Vec<f32>),
    /// `x / row`.
    DivideRow(Vec<f32>),
    /// `x + y * row`.
    MultiplyAdd(Vec<f32>),
    /// `x * factor`.
    Scale(f32),
    /// `x` times a factor by its position.
    ScaleByPosition(Temperature),
    /// `x` within this of 0.
    Clamp(f32),
    /// `tanh(x / cap) * cap`.
    SoftCap(f32),
    /// `max(x - (mean + deviation * factor), 0)`, with mean and deviation of the row.
    Cutoff(f32),
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// The soft-max of every row.
    SoftMax,
    /// `f(x)`.
    Activate(Activation),
    /// `f(x) * y`.
    Gate(Activation),
    /// `x * f(y)`, where `y` has a number for each element or each head of `x`.
    HeadGate(HeadGate),
    /// `x` times the sigmoid of its row's number in `y`. As the quotient of SiLU and its argument unless `plain`.
    ScaleByGate {
        /// True if the function is the sigmoid itself.
        plain: bool,
    },
    /// Products of `x` with matrices: one output for each.
    Products(Vec<Product>),
    /// `W (f(G x) * (U x))`: the products of a gated network, `[G, U, W]`.
    GatedProducts(Box<[Product; 3]>, Activation),
    /// The rows of every head, `[rows][heads][width]`, times its own matrix.
    ProductsByHead(Stack),
    /// Rows of parts of these widths, one output for each part. The width of the input may be a multiple of their sum.
    Split(Vec<usize>),
    /// The reverse: parts of these widths side by side.
    Join(Vec<usize>),
    /// Every `width` elements, `times` times.
    Repeat {
        /// Elements.
        width: usize,
        /// How often.
        times: usize,
    },
    /// A rotation of rows by signs and the Walsh-Hadamard transform, or back.
    Hadamard(Hadamard),
    /// RoPE on heads of this many elements.
    Rotate(RopeKind, usize),
    /// RoPE backwards, or by the first position of a block of positions.
    Turn(RopeKind, Turn),
    /// Attention of queries `x`, keys `y` and values `z`, which are cached.
    Attend(Box<Attend>),
    /// Keys `x` and values `y` go to this layer of the KV cache; there is no output.
    Store(usize),
    /// Attention of queries `x` to the last keys `y` and to all compressed keys `z`, which are cached.
    AttendCompressed(Box<AttendCompressed>),
    /// Attention of queries `x` to the keys and values that an encoder made of a text, which the sequence has.
    AttendSource(AttendSource),
    /// A causal convolution over positions; it continues from the state.
    Convolve(Convolution, Range<usize>),
    /// A delta rule: queries, keys, values, decays, strengths; it continues from the state.
    Delta(Delta, Range<usize>),
    /// A selective scan: channels, time steps, what writes and what reads the state; it continues from the state.
    Scan(Box<Scan>, Range<usize>),
    /// The row of the position before; it continues from the state.
    Shift(Range<usize>),
    /// A key for each block of positions: values and scores of the positions; it continues from the state.
    Compress(Box<Compress>, Range<usize>),
    /// Lightning attention: queries, keys, values; it continues from the state.
    Lightning(Box<Lightning>, Range<usize>),
    /// RWKV 6's recurrence: queries, keys, values, decays; it continues from the state.
    Wkv6(Box<Wkv6>, Range<usize>),
    /// QRWKV's recurrence: queries, keys, values, decays; it continues from the state.
    GatedLinear(GatedLinear, Range<usize>),
    /// RWKV 7's recurrence: queries, decays, keys, values, rates; it continues from the state. The output holds those of
    /// the state and the position's own.
    Wkv7(Box<Wkv7>, Range<usize>),
    /// Decays of a delta rule.
    Decay(Decay),
    /// Router scores to a choice of experts for each token. The output holds experts and weights.
    Choose(Box<Choosing>),
    /// Queries, keys and values by which the switching tokens before each token are found: three outputs.
    SwitchSignals(Arc<Switch>),
    /// Outputs of attention with these to a choice of one adapter for each token.
    ChooseSwitched(Arc<Switch>),
    /// Rows of `x` for the experts that its token goes to, grouped by expert, times the weights of the choice `y` if
    /// `weighed`.
    Dispatch {
        /// True if rows are multiplied by the weights here.
        weighed: bool,
    },
    /// Products of rows that are grouped by expert with the matrices of their expert; `y` is the choice.
    ProductsOfExperts(Vec<Stack>),
    /// The sum of the outputs of a token's experts, in the order of the choice `y`, times their weights if `weighed`.
    Combine {
        /// True if outputs are multiplied by the weights here.
        weighed: bool,
    },
    /// The mean of residual streams weighed by the soft-max of their scores: sums of the norms' elements.
    Blend(Norm),
    /// The input that a sublayer reads from several residual streams `x` with coefficients `y`, and the coefficients
    /// with which it writes its output: two outputs.
    ReadStreams(Streams),
    /// Several residual streams `x`, and a sublayer's output `y` added to each times its coefficient `z`.
    WriteStreams {
        /// How many streams.
        count: usize,
        /// True if a matrix behind the coefficients mixes the streams before.
        mixed: bool,
    },
    /// Sums of so many residual streams `x`, as many, by the matrix of coefficients `y` of each row.
    SumStreams(usize),
    /// Elements of `x` at these places of rows of so many, and minus infinity elsewhere.
    Spread(Arc<[u32]>, usize),
    /// The rows whose logits are wanted.
    Take,
}

impl Op {
    /// The operation's name.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Embed(_) => "embed",
            Op::EmbedSwitched(..) => "embed_switched",
            Op::EmbedPositions(_) => "embed_positions",
            Op::EmbedNgrams(..) => "embed_ngrams",
            Op::Hidden => "hidden",
            Op::AdaptEmbedding(_) => "adapt_embedding",
            Op::Fill(_) => "fill",
            Op::Norm(_) => "norm",
            Op::AddNorm(_) => "add_norm",
            Op::Add => "add",
            Op::Multiply => "multiply",
            Op::RootedDots(_) => "rooted_dots",
            Op::AsLong(_) => "as_long",
            Op::AddRow(_) => "add_row",
            Op::DivideRow(_) => "divide_row",
            Op::MultiplyAdd(_) => "multiply_add",
            Op::Scale(_) => "scale",
            Op::ScaleByPosition(_) => "scale_by_position",
            Op::Clamp(_) => "clamp",
            Op::SoftCap(_) => "soft_cap",
            Op::Cutoff(_) => "cutoff",
            Op::Sigmoid => "sigmoid",
            Op::SoftMax => "soft_max",
            Op::Activate(_) => "activate",
            Op::Gate(_) => "gate",
            Op::HeadGate(_) => "head_gate",
            Op::ScaleByGate { .. } => "scale_by_gate",
            Op::Products(_) => "products",
            Op::GatedProducts(..) => "gated_products",
            Op::ProductsByHead(_) => "products_by_head",
            Op::Split(_) => "split",
            Op::Join(_) => "join",
            Op::Repeat { .. } => "repeat",
            Op::Hadamard(_) => "hadamard",
            Op::Rotate(..) => "rotate",
            Op::Turn(..) => "turn",
            Op::Attend(_) => "attend",
            Op::Store(_) => "store",
            Op::AttendCompressed(_) => "attend_compressed",
            Op::AttendSource(_) => "attend_source",
            Op::Convolve(..) => "convolve",
            Op::Delta(..) => "delta",
            Op::Scan(..) => "scan",
            Op::Shift(_) => "shift",
            Op::Compress(..) => "compress",
            Op::Lightning(..) => "lightning",
            Op::Wkv6(..) => "wkv6",
            Op::GatedLinear(..) => "gated_linear",
            Op::Wkv7(..) => "wkv7",
            Op::Decay(_) => "decay",
            Op::Choose(_) => "choose",
            Op::SwitchSignals(_) => "switch_signals",
            Op::ChooseSwitched(_) => "choose_switched",
            Op::Dispatch { .. } => "dispatch",
            Op::ProductsOfExperts(_) => "products_of_experts",
            Op::Combine { .. } => "combine",
            Op::Blend(_) => "blend",
            Op::ReadStreams(_) => "read_streams",
            Op::WriteStreams { .. } => "write_streams",
            Op::SumStreams(_) => "sum_streams",
            Op::Spread(..) => "spread",
            Op::Take => "take",
        }
    }

    /// Calls `f` with every matrix that it multiplies by or takes rows of, adapters' included.
    pub fn matrices(&self, mut f: impl FnMut(MatrixId)) {
        let of_adapters = |adapters: &[LowRank], f: &mut dyn FnMut(MatrixId)| {
            adapters.iter().for_each(|adapter| [adapter.a, adapter.b].into_iter().for_each(&mut *f));
        };
        let of_products = |products: &[Product], f: &mut dyn FnMut(MatrixId)| {
            for product in products {
                f(product.matrix);
                of_adapters(&product.adapters, f);
            }
        };
        match self {
            Op::Embed(table)
            | Op::EmbedSwitched(_, table)
            | Op::EmbedPositions(table)
            | Op::EmbedNgrams(_, table, _) => f(*table),
            Op::AdaptEmbedding(adapter) => of_adapters(std::slice::from_ref(adapter), &mut f),
            Op::Products(products) => of_products(products, &mut f),
            Op::GatedProducts(products, _) => of_products(&products[..], &mut f),
            Op::ProductsByHead(stack) => stack.matrices.clone().map(MatrixId).for_each(f),
            Op::ProductsOfExperts(stacks) => {
                for stack in stacks {
                    stack.matrices.clone().map(MatrixId).for_each(&mut f);
                    stack.adapters.iter().for_each(|adapters| of_adapters(adapters, &mut f));
                }
            }
            _ => {}
        }
    }
}
