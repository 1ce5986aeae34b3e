//! Building a program operation by operation.

use super::forward::Program;
use super::op::{Attend, LowRank, Op, Product, RopeKind, Stack, Temperature};
use super::operation::{Operation, Order};
use super::value::{MatrixId, MatrixInfo, RowCount, Shape, Value};
use crate::ops::activation::{Activation, HeadGate};
use crate::ops::delta::Decay;
use crate::ops::hadamard::Hadamard;
use crate::ops::ngrams::Ngrams;
use crate::ops::norm::Norm;
use crate::ops::streams::Streams;
use crate::ops::switch::Switch;
use std::sync::Arc;

/// Builds a [`Program`]. Every method adds one operation and returns what it makes; sizes follow from the inputs.
#[derive(Debug, Default)]
pub struct Builder {
    shapes: Vec<Shape>,
    operations: Vec<Operation>,
    matrices: Vec<MatrixInfo>,
    blocks: Vec<std::ops::Range<usize>>,
    /// The first operation of the block that is being built.
    block: Option<usize>,
    /// The part of the model that is being built, which names its values.
    part: String,
    head: Option<usize>,
    kept: Vec<Value>,
}

impl Builder {
    /// Begins the next block.
    pub fn begin_block(&mut self) {
        self.end_block();
        self.block = Some(self.operations.len());
        self.part = format!("blk.{}.", self.blocks.len());
    }

    /// Ends the block that was begun last.
    pub fn end_block(&mut self) {
        if let Some(from) = self.block.take() {
            self.blocks.push(from..self.operations.len());
        }
        self.part.clear();
    }

    /// Takes note of a matrix.
    pub fn matrix(&mut self, info: MatrixInfo) -> MatrixId {
        self.matrices.push(info);
        MatrixId(self.matrices.len() - 1)
    }

    /// Matrices noted so far.
    pub fn matrices(&self) -> usize {
        self.matrices.len()
    }

    /// Columns of a value.
    pub fn columns(&self, x: Value) -> usize {
        self.shapes[x.0].columns
    }

    fn rows(&self, x: Value) -> RowCount {
        self.shapes[x.0].rows
    }

    fn value(&mut self, name: &str, rows: RowCount, columns: usize) -> Value {
        self.shapes.push(Shape { name: format!("{}{name}", self.part), rows, columns });
        Value(self.shapes.len() - 1)
    }

    fn push(&mut self, op: Op, inputs: &[Value], outputs: Vec<Value>) {
        self.operations.push(Operation { op, inputs: inputs.to_vec(), outputs });
    }

    /// An operation with one output of the size of its first input.
    pub fn like(&mut self, name: &str, op: Op, inputs: &[Value]) -> Value {
        let (rows, columns) = (self.rows(inputs[0]), self.columns(inputs[0]));
        self.one(name, op, inputs, rows, columns)
    }

    fn one(&mut self, name: &str, op: Op, inputs: &[Value], rows: RowCount, columns: usize) -> Value {
        let to = self.value(name, rows, columns);
        self.push(op, inputs, vec![to]);
        to
    }

    /// The tokens' rows of a table.
    pub fn embed(&mut self, table: MatrixId) -> Value {
        let columns = self.matrices[table.0].columns;
        self.one("embedding", Op::Embed(table), &[], RowCount::Tokens, columns)
    }

    /// The rows of a table for the tokens, or for those that stand for them.
    pub fn embed_switched(&mut self, switch: Arc<Switch>, table: MatrixId) -> Value {
        let columns = self.matrices[table.0].columns;
        self.one("embedding", Op::EmbedSwitched(switch, table), &[], RowCount::Tokens, columns)
    }

    /// Queries, keys and values by which switching tokens are found.
    pub fn switch_signals(&mut self, switch: Arc<Switch>) -> [Value; 3] {
        let outputs = ["q", "k", "v"].map(|name| self.value(&format!("switch_{name}"), RowCount::Tokens, switch.head));
        self.push(Op::SwitchSignals(switch), &[], outputs.to_vec());
        outputs
    }

    /// The adapter of every token.
    pub fn choose_switched(&mut self, x: Value, switch: Arc<Switch>) -> Value {
        self.one("adapters", Op::ChooseSwitched(switch), &[x], RowCount::Tokens, 1)
    }

    /// The positions' rows of a table.
    pub fn embed_positions(&mut self, table: MatrixId) -> Value {
        let columns = self.matrices[table.0].columns;
        self.one("position", Op::EmbedPositions(table), &[], RowCount::Tokens, columns)
    }

    /// The rows of a table for the n-grams that end with the tokens.
    pub fn embed_ngrams(&mut self, table: MatrixId, rule: Ngrams, state: std::ops::Range<usize>) -> Value {
        let columns = self.matrices[table.0].columns * rule.heads.len();
        self.one("ngrams", Op::EmbedNgrams(Box::new(rule), table, state), &[], RowCount::Tokens, columns)
    }

    /// Rows of hidden states, of which one is given with every token.
    pub fn hidden(&mut self, name: &str, columns: usize) -> Value {
        self.one(name, Op::Hidden, &[], RowCount::Tokens, columns)
    }

    /// `x` and what an adapter adds to the embeddings.
    pub fn adapt_embedding(&mut self, x: Value, adapter: LowRank) -> Value {
        self.like("embedding", Op::AdaptEmbedding(adapter), &[x])
    }

    /// A row for every row of `x`.
    pub fn fill(&mut self, name: &str, x: Value, row: Vec<f32>) -> Value {
        let (rows, columns) = (self.rows(x), row.len());
        self.one(name, Op::Fill(row), &[x], rows, columns)
    }

    /// The norm of `x`.
    pub fn norm(&mut self, name: &str, x: Value, norm: Norm) -> Value {
        self.like(name, Op::Norm(norm), &[x])
    }

    /// The norm of `x`, or `x` where there is none.
    pub fn maybe_norm(&mut self, name: &str, x: Value, norm: Option<Norm>) -> Value {
        match norm {
            Some(norm) => self.norm(name, x, norm),
            None => x,
        }
    }

    /// `x + y`.
    pub fn add(&mut self, name: &str, x: Value, y: Value) -> Value {
        self.like(name, Op::Add, &[x, y])
    }

    /// `x * y`, element by element.
    pub fn multiply(&mut self, name: &str, x: Value, y: Value) -> Value {
        self.like(name, Op::Multiply, &[x, y])
    }

    /// The roots of dot products of every `width` elements of `x` and `y`.
    pub fn rooted_dots(&mut self, name: &str, x: Value, y: Value, width: usize) -> Value {
        let (rows, columns) = (self.rows(x), self.columns(x) / width.max(1));
        self.one(name, Op::RootedDots(width), &[x, y], rows, columns)
    }

    /// `x + row`.
    pub fn add_row(&mut self, name: &str, x: Value, row: Vec<f32>) -> Value {
        self.like(name, Op::AddRow(row), &[x])
    }

    /// `x / row`.
    pub fn divide_row(&mut self, name: &str, x: Value, row: Vec<f32>) -> Value {
        self.like(name, Op::DivideRow(row), &[x])
    }

    /// `x + y * row`.
    pub fn multiply_add(&mut self, name: &str, x: Value, y: Value, row: Vec<f32>) -> Value {
        self.like(name, Op::MultiplyAdd(row), &[x, y])
    }

    /// `x * factor`, or `x` where there is none.
    pub fn scale(&mut self, name: &str, x: Value, factor: Option<f32>) -> Value {
        match factor {
            Some(factor) => self.like(name, Op::Scale(factor), &[x]),
            None => x,
        }
    }

    /// `x` times a factor by its position, or `x` where there is none.
    pub fn scale_by_position(&mut self, name: &str, x: Value, factor: Option<Temperature>) -> Value {
        match factor {
            Some(factor) => self.like(name, Op::ScaleByPosition(factor), &[x]),
            None => x,
        }
    }

    /// `x` within `bound` of 0.
    pub fn clamp(&mut self, name: &str, x: Value, bound: f32) -> Value {
        self.like(name, Op::Clamp(bound), &[x])
    }

    /// `tanh(x / cap) * cap`, or `x` where there is no cap.
    pub fn soft_cap(&mut self, name: &str, x: Value, cap: Option<f32>) -> Value {
        match cap {
            Some(cap) => self.like(name, Op::SoftCap(cap), &[x]),
            None => x,
        }
    }

    /// `1 / (1 + e^-x)`.
    pub fn sigmoid(&mut self, name: &str, x: Value) -> Value {
        self.like(name, Op::Sigmoid, &[x])
    }

    /// `f(x)`.
    pub fn activate(&mut self, name: &str, f: Activation, x: Value) -> Value {
        self.like(name, Op::Activate(f), &[x])
    }

    /// `f(gate) * up`.
    pub fn gate(&mut self, name: &str, f: Activation, gate: Value, up: Value) -> Value {
        self.like(name, Op::Gate(f), &[gate, up])
    }

    /// `heads * f(gate)`.
    pub fn head_gate(&mut self, name: &str, f: HeadGate, heads: Value, gate: Value) -> Value {
        self.like(name, Op::HeadGate(f), &[heads, gate])
    }

    /// `x` times the sigmoid of its row's number in `gate`.
    pub fn scale_by_gate(&mut self, name: &str, x: Value, gate: Value, plain: bool) -> Value {
        self.like(name, Op::ScaleByGate { plain }, &[x, gate])
    }

    /// A product with a matrix, which names it.
    pub fn product(&mut self, x: Value, product: Product) -> Value {
        let MatrixInfo { tensor, rows: columns, .. } = &self.matrices[product.matrix.0];
        let name = tensor.strip_suffix(".weight").unwrap_or(tensor);
        let shape = Shape { name: name.to_owned(), rows: self.rows(x), columns: *columns };
        self.shapes.push(shape);
        let to = Value(self.shapes.len() - 1);
        self.push(Op::Products(vec![product]), &[x], vec![to]);
        to
    }

    /// The rows of every head times its own matrix.
    pub fn products_by_head(&mut self, name: &str, x: Value, stack: Stack) -> Value {
        let columns = stack.matrices.clone().map(|m| self.matrices[m].rows).sum();
        let rows = self.rows(x);
        self.one(name, Op::ProductsByHead(stack), &[x], rows, columns)
    }

    /// Parts of every row; rows may be several of the sum of the widths.
    pub fn split<const N: usize>(&mut self, names: [&str; N], x: Value, widths: [usize; N]) -> [Value; N] {
        let mut parts = self.split_into(x, names.iter().copied().zip(widths)).into_iter();
        names.map(|_| parts.next().expect("as many values as names"))
    }

    /// [`Builder::split`] into any number of parts, each with its name and width.
    pub fn split_into<'n>(&mut self, x: Value, parts: impl Iterator<Item = (&'n str, usize)> + Clone) -> Vec<Value> {
        let widths: Vec<usize> = parts.clone().map(|part| part.1).collect();
        let (rows, times) = (self.rows(x), self.columns(x) / widths.iter().sum::<usize>().max(1));
        let outputs: Vec<Value> = parts.map(|(name, width)| self.value(name, rows, times * width)).collect();
        self.push(Op::Split(widths), &[x], outputs.clone());
        outputs
    }

    /// Parts side by side, each of its width; rows may be several of the sum of the widths.
    pub fn join(&mut self, name: &str, parts: &[(Value, usize)]) -> Value {
        let inputs: Vec<Value> = parts.iter().map(|part| part.0).collect();
        let widths: Vec<usize> = parts.iter().map(|part| part.1).collect();
        let columns = inputs.iter().map(|x| self.columns(*x)).sum();
        let rows = self.rows(inputs[0]);
        self.one(name, Op::Join(widths), &inputs, rows, columns)
    }

    /// Every `width` elements of a row, `times` times.
    pub fn repeat(&mut self, name: &str, x: Value, width: usize, times: usize) -> Value {
        let (rows, columns) = (self.rows(x), self.columns(x) * times);
        self.one(name, Op::Repeat { width, times }, &[x], rows, columns)
    }

    /// A rotation of rows by the Walsh-Hadamard transform.
    pub fn hadamard(&mut self, name: &str, x: Value, rotation: Hadamard) -> Value {
        self.like(name, Op::Hadamard(rotation), &[x])
    }

    /// RoPE on heads of `head` elements, or `x` where there is none.
    pub fn rotate(&mut self, name: &str, x: Value, kind: Option<RopeKind>, head: usize) -> Value {
        match kind {
            Some(kind) => self.like(name, Op::Rotate(kind, head), &[x]),
            None => x,
        }
    }

    /// Attention: the outputs of the heads.
    pub fn attend(&mut self, name: &str, qkv: [Value; 3], attend: Attend) -> Value {
        let columns = attend.heads.queries * attend.value_size;
        self.one(name, Op::Attend(Box::new(attend)), &qkv, RowCount::Tokens, columns)
    }

    /// Keys and values into a layer of the cache.
    pub fn store(&mut self, cache: usize, keys_and_values: [Value; 2]) {
        self.push(Op::Store(cache), &keys_and_values, Vec::new());
    }

    /// An operation over positions whose output is like its input number `like`.
    pub fn recurrent(&mut self, name: &str, op: Op, inputs: &[Value], like: usize) -> Value {
        let columns = self.columns(inputs[like]);
        self.recurrent_into(name, op, inputs, columns)
    }

    /// An operation over positions whose output has `columns` floats in a row.
    pub fn recurrent_into(&mut self, name: &str, op: Op, inputs: &[Value], columns: usize) -> Value {
        let rows = self.rows(inputs[0]);
        self.one(name, op, inputs, rows, columns)
    }

    /// Decays of a delta rule.
    pub fn decay(&mut self, name: &str, x: Value, decay: Decay) -> Value {
        self.like(name, Op::Decay(decay), &[x])
    }

    /// The experts of every token and their weights.
    pub fn choose(&mut self, name: &str, scores: Value, choosing: crate::ops::experts::Choosing) -> Value {
        let used = choosing.used;
        self.one(name, Op::Choose(Box::new(choosing)), &[scores], RowCount::Tokens, used)
    }

    /// Rows for the experts of their tokens, times the weights of the choice if `weighed`.
    pub fn dispatch(&mut self, name: &str, x: Value, choice: Value, weighed: bool) -> Value {
        let (used, columns) = (self.columns(choice), self.columns(x));
        self.one(name, Op::Dispatch { weighed }, &[x, choice], RowCount::Experts(used), columns)
    }

    /// Products with the matrices of each row's expert.
    pub fn product_of_experts(&mut self, name: &str, x: Value, choice: Value, stack: Stack) -> Value {
        let columns = self.matrices.get(stack.matrices.start).map_or(0, |m| m.rows);
        let rows = self.rows(x);
        self.one(name, Op::ProductsOfExperts(vec![stack]), &[x, choice], rows, columns)
    }

    /// The sums of what the tokens' experts make, times their weights if `weighed`.
    pub fn combine(&mut self, name: &str, x: Value, choice: Value, weighed: bool) -> Value {
        let columns = self.columns(x);
        self.one(name, Op::Combine { weighed }, &[x, choice], RowCount::Tokens, columns)
    }

    /// The mean of residual streams, weighed by their scores.
    pub fn blend(&mut self, name: &str, streams: &[Value], scores: Norm) -> Value {
        self.like(name, Op::Blend(scores), streams)
    }

    /// The input that a sublayer reads from several residual streams, and the coefficients with which it writes its
    /// output.
    pub fn read_streams(&mut self, name: &str, x: Value, coefficients: Value, streams: Streams) -> [Value; 2] {
        let (rows, columns) = (self.rows(x), self.columns(x) / streams.count);
        let written = streams.bases.len() - streams.count;
        let outputs = [self.value(name, rows, columns), self.value(&format!("{name}_coefficients"), rows, written)];
        self.push(Op::ReadStreams(streams), &[x, coefficients], outputs.to_vec());
        outputs
    }

    /// Several residual streams with a sublayer's output added to each.
    pub fn write_streams(&mut self, name: &str, x: Value, y: Value, coefficients: Value, count: usize) -> Value {
        let mixed = self.columns(coefficients) > count;
        self.like(name, Op::WriteStreams { count, mixed }, &[x, y, coefficients])
    }

    /// A value that is given from outside: the input of a program that takes its rows at once.
    pub fn given(&mut self, name: &str, columns: usize) -> Value {
        self.value(name, RowCount::Wanted, columns)
    }

    /// The soft-max of every row.
    pub fn soft_max(&mut self, name: &str, x: Value) -> Value {
        self.like(name, Op::SoftMax, &[x])
    }

    /// Keeps a value of the body for whoever reads it behind a pass.
    pub fn keep(&mut self, x: Value) {
        self.kept.push(x);
    }

    /// Rows of `n` elements: those of `x` at these places, and minus infinity elsewhere.
    pub fn spread(&mut self, name: &str, x: Value, places: Arc<[u32]>, n: usize) -> Value {
        let rows = self.rows(x);
        self.one(name, Op::Spread(places, n), &[x], rows, n)
    }

    /// The rows whose logits are wanted.
    pub fn take(&mut self, x: Value) -> Value {
        self.head = Some(self.operations.len());
        let columns = self.columns(x);
        self.one("wanted", Op::Take, &[x], RowCount::Wanted, columns)
    }

    /// The program, whose logits, where it makes any, are computed from the rows `hidden`; operations are fused where
    /// the results are bit-identical.
    ///
    /// # Panics
    /// When no rows were taken for logits.
    pub fn finish(self, hidden: Value, logits: Option<Value>) -> Program {
        let head = self.head.expect("rows are taken for logits");
        let Builder { shapes, operations, matrices, blocks, kept, .. } = self;
        Program::new(shapes, Order { operations, blocks, head }, matrices, (hidden, logits), kept)
    }
}
