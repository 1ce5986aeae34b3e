//! A program that is being built, and its products with the matrices of a file.

use std::collections::BTreeSet;

use super::key_parts::KeyParts;
use crate::model::config::{Config, Heard};
use crate::model::load::{Linear, Loader, LowRank as LoadedLowRank, Stacked};
use crate::ops::matmul::Matrix;
use crate::ops::norm::Norm;
use crate::program::{Builder, LowRank, MatrixId, MatrixInfo, Product, Program, Stack, Value};

/// A program that is being built, and the matrices that it multiplies by.
pub struct Lowering<'l, 'f> {
    /// The model's tensors.
    pub loader: &'l mut Loader<'f>,
    pub c: &'l Config,
    pub b: Builder,
    pub matrices: Vec<Matrix>,
    /// Residual streams that later blocks blend with their own.
    pub kept: Vec<Value>,
    /// Rotated values: the value, true if its heads were put in another order before, and the result.
    pub rotations: Vec<(Value, bool, Value)>,
    /// Tensors that rows are multiplied by, whose inputs are rotated where the keys name them.
    pub multiplied: BTreeSet<String>,
    /// The keys and values of every block that attends, for later ones.
    pub keys: Vec<Option<[Value; 2]>>,
    /// The parts of every block that make keys and values, of a drafter that others use too.
    pub key_parts: Vec<KeyParts>,
    /// The vectors of the tokens for every block, where they have them.
    pub layer_inputs: Vec<Value>,
    /// The embeddings, where blocks add them.
    pub embeddings: Option<Value>,
    /// States that are kept for a drafter, each with its value.
    pub heard: Vec<(Heard, Option<Value>)>,
    /// The adapter of every token, where tokens switch them on.
    pub adapter: Option<Value>,
    /// The values of the first block of RWKV 7, which later ones mix with theirs.
    pub first_values: Option<Value>,
}

/// A program and its matrices, by number.
pub struct Lowered {
    pub program: Program,
    pub matrices: Vec<Matrix>,
    /// Tensors that rows are multiplied by.
    pub multiplied: BTreeSet<String>,
}

impl<'l, 'f> Lowering<'l, 'f> {
    /// An empty program of a model of configuration `c`, whose tensors `loader` has.
    pub fn new(loader: &'l mut Loader<'f>, c: &'l Config) -> Lowering<'l, 'f> {
        Lowering {
            loader,
            c,
            b: Builder::default(),
            matrices: Vec::new(),
            kept: Vec::new(),
            rotations: Vec::new(),
            multiplied: BTreeSet::new(),
            keys: vec![None; c.n_layer],
            key_parts: Vec::new(),
            layer_inputs: Vec::new(),
            embeddings: None,
            heard: Vec::new(),
            adapter: None,
            first_values: None,
        }
    }
}

impl Lowering<'_, '_> {
    /// The program, which makes `hidden` and, of that, `logits`, and all that it needs.
    pub fn finish(self, hidden: Value, logits: Option<Value>) -> Lowered {
        Lowered { program: self.b.finish(hidden, logits), matrices: self.matrices, multiplied: self.multiplied }
    }

    /// Takes a matrix into the program.
    pub fn matrix(&mut self, tensor: &str, first_row: usize, matrix: Matrix) -> MatrixId {
        let info =
            MatrixInfo { tensor: tensor.to_owned(), ty: matrix.ty, rows: matrix.rows, columns: matrix.cols, first_row };
        self.matrices.push(matrix);
        self.b.matrix(info)
    }

    pub fn low_rank(&mut self, tensor: &str, adapter: LoadedLowRank) -> LowRank {
        let a = self.matrix(&format!("{tensor}.lora_a"), 0, adapter.a);
        let b = self.matrix(&format!("{tensor}.lora_b"), 0, adapter.b);
        let LoadedLowRank { adapter, alpha, scale, .. } = adapter;
        LowRank { a, b, adapter, alpha, scale }
    }

    pub fn adapters(&mut self, tensor: &str, adapters: Vec<LoadedLowRank>) -> Vec<LowRank> {
        adapters.into_iter().map(|adapter| self.low_rank(tensor, adapter)).collect()
    }

    /// `(W x) * scale + bias`; what adapters add comes before the bias.
    pub fn product(&mut self, x: Value, linear: Linear) -> Value {
        let [y] = self.products(x, [linear]);
        y
    }

    /// [`Lowering::product`] of several matrices with the same rows.
    pub fn products<const N: usize>(&mut self, x: Value, all: [Linear; N]) -> [Value; N] {
        let biases = all.each_ref().map(|linear| linear.bias.clone());
        let ys = all.map(|linear| {
            let scale = linear.scale;
            self.bare_product(x, linear, scale)
        });
        let mut biases = biases.into_iter();
        ys.map(|y| self.bias(y, biases.next().flatten()))
    }

    /// `(W x + bias) * scale`: the order of the feed-forward projections.
    pub fn products_bias_first<const N: usize>(&mut self, x: Value, all: [Linear; N]) -> [Value; N] {
        let ends = all.each_ref().map(|linear| (linear.bias.clone(), linear.scale));
        let ys = all.map(|linear| self.bare_product(x, linear, None));
        let mut ends = ends.into_iter();
        ys.map(|y| {
            let (bias, scale) = ends.next().unwrap_or_default();
            let y = self.bias(y, bias);
            self.b.scale("scaled", y, scale)
        })
    }

    pub fn bare_product(&mut self, x: Value, linear: Linear, scale: Option<f32>) -> Value {
        let norm = self.loader.input_norm(&linear.tensor, linear.weight.cols);
        let x = self.b.maybe_norm("norm_in", x, norm);
        let x = self.rotated(x, &linear.tensor);
        let matrix = self.matrix(&linear.tensor, linear.first_row, linear.weight);
        let adapters = self.adapters(&linear.tensor, linear.low_rank);
        let y = self.b.product(x, Product { matrix, observed: linear.first_row == 0, scale, adapters });
        match linear.switched {
            Some(switched) => self.and_switched(x, y, *switched),
            None => y,
        }
    }

    pub fn bias(&mut self, y: Value, bias: Option<Vec<f32>>) -> Value {
        match bias {
            Some(bias) => self.b.add_row("biased", y, bias),
            None => y,
        }
    }

    /// The matrices of all experts, or of all heads.
    pub fn stack(&mut self, stacked: Stacked) -> Stack {
        let Stacked { tensor, first_row, matrices, scales, biases, low_rank } = stacked;
        let from = self.b.matrices();
        for matrix in matrices {
            self.matrix(&tensor, first_row, matrix);
        }
        let matrices = from..self.b.matrices();
        let adapters = low_rank.into_iter().map(|all| self.adapters(&tensor, all)).collect();
        Stack { matrices, observed: first_row == 0, scales, biases, adapters }
    }

    /// The mean of the residual streams that were kept and `x`; `x` itself where none was.
    pub fn blend(&mut self, name: &str, x: Value, scores: Norm) -> Value {
        if self.kept.is_empty() {
            return x;
        }
        let streams: Vec<Value> = self.kept.iter().copied().chain([x]).collect();
        self.b.blend(name, &streams, scores)
    }
}
