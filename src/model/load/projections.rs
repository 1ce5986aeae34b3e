//! Projections: matrices with the factors and biases that some models have.

use std::ops::Range;

use trine_formats::types::TypeId;

use super::loader::{Loader, full_name};
use crate::arch::{Extent, Role, Tensor};
use crate::model::Problem;
use crate::model::config::Experts;
use crate::model::lora::LowRank;
use crate::ops::matmul::Matrix;
use crate::ops::norm::{Kind, Norm};

/// A projection: a matrix with the factor and the bias that some models have.
#[derive(Clone)]
pub struct Linear {
    /// The tensor's name in the file.
    pub tensor: String,
    /// The first of its rows among those of the tensor.
    pub first_row: usize,
    /// The matrix.
    pub weight: Matrix,
    /// Factor on the product.
    pub scale: Option<f32>,
    /// Added to every row of the product.
    pub bias: Option<Vec<f32>>,
    /// Adapters, in the order of their sums.
    pub low_rank: Vec<LowRank>,
    /// Adapters in the file that tokens switch on: to a narrow vector, and from it to what is added.
    pub switched: Option<Box<[Stacked; 2]>>,
}

impl Linear {
    /// All rows of the tensor of this name, and nothing besides.
    pub fn new(tensor: String, weight: Matrix) -> Linear {
        Linear { tensor, first_row: 0, weight, scale: None, bias: None, low_rank: Vec::new(), switched: None }
    }
}

/// One matrix of every expert.
#[derive(Clone)]
pub struct Stacked {
    /// The tensor's name in the file.
    pub tensor: String,
    /// The first row of every expert's matrix among those that the tensor has for the expert.
    pub first_row: usize,
    /// By number of the expert.
    pub matrices: Vec<Matrix>,
    /// Factors on the outputs, one per expert.
    pub scales: Option<Vec<f32>>,
    /// Biases, `[experts][rows]`.
    pub biases: Option<Vec<f32>>,
    /// Adapters by number of the expert.
    pub low_rank: Vec<Vec<LowRank>>,
}

impl Loader<'_> {
    /// `NAME.weight` of a block with its `NAME.scale` and `NAME.bias`, where there are any; `None` where the
    /// architecture or the file has no such matrix.
    pub fn linear(&mut self, layer: usize, name: &str) -> Option<Linear> {
        let linear = self.unready_linear(layer, name)?;
        Some(Linear {
            low_rank: self.low_rank(&linear.tensor, 0, 0..linear.weight.rows),
            weight: self.ready(linear.weight),
            switched: self.switched(layer, name),
            ..linear
        })
    }

    /// The same, where a file without the matrix is damaged whatever the description says.
    pub fn required_linear(&mut self, layer: usize, name: &str) -> Option<Linear> {
        let found = self.linear(layer, name);
        self.required(Some(layer), name, found)
    }

    /// [`Loader::experts`], where a file without the matrices is damaged whatever the description says.
    pub fn required_experts(&mut self, layer: usize, name: &str) -> Option<Stacked> {
        let found = self.experts(layer, name);
        self.required(Some(layer), name, found)
    }

    /// [`Loader::norm`] of a block, where a file without it is damaged whatever the description says.
    pub fn required_norm(&mut self, layer: usize, name: &str) -> Option<Norm> {
        let found = self.norm(Some(layer), name);
        self.required(Some(layer), name, found)
    }

    /// `found`, and a note that `name` is missing where there is none.
    pub fn required<T>(&mut self, layer: Option<usize>, name: &str, found: Option<T>) -> Option<T> {
        if found.is_none() {
            let place = format!("{name}.weight");
            let name = self.described(layer, &place).map_or(&*place, |tensor| tensor.gguf);
            self.missing(&full_name(layer, name));
        }
        found
    }

    /// The norm of the input of one projection of a block, where the file has one: every projection of BitNet's
    /// embeddings and of checkpoints with `use_rms_norm` has its own. Files call it by several names.
    pub fn input_norm(&mut self, tensor: &str, cols: usize) -> Option<Norm> {
        // outside the blocks such a name has another meaning: `cls.norm` stands behind `cls`
        let projection = tensor.strip_suffix(".weight").filter(|name| name.starts_with("blk."))?;
        let names = ["_norm_in", ".rms_norm", ".norm"].map(|norm| format!("{projection}{norm}.weight"));
        let name = names.iter().find(|name| self.file.tensor_info(name).is_some())?;
        let gains = self.optional_floats(name, &[cols])?;
        Some(Norm { kind: Kind::Rms, eps: self.eps, row: cols.max(1), gains, bias: None })
    }

    fn unready_linear(&mut self, layer: usize, name: &str) -> Option<Linear> {
        let tensor = self.described(Some(layer), &format!("{name}.weight"))?;
        let [rows, cols] = self.sizes.shape(tensor)[..] else {
            return None;
        };
        self.projection(layer, tensor, name, cols as usize, rows as usize)
    }

    /// A projection of a stated shape, not yet in the layout that it runs from.
    fn projection(&mut self, layer: usize, tensor: &Tensor, name: &str, cols: usize, rows: usize) -> Option<Linear> {
        let full = full_name(Some(layer), tensor.gguf);
        if !tensor.required && !self.has(&full) {
            return None;
        }
        Some(Linear {
            weight: self.matrix(&full, cols, rows),
            scale: self.factors(tensor.gguf.trim_end_matches(".weight"), 1).and_then(|s| s.first().copied()),
            bias: self.vector(Some(layer), &format!("{name}.bias")),
            tensor: full,
            first_row: 0,
            low_rank: Vec::new(),
            switched: None,
        })
    }

    /// The adapters in the file for the projection `name` of a block; `None` where the architecture has none, or after a
    /// problem, which is noted.
    fn switched(&mut self, layer: usize, name: &str) -> Option<Box<[Stacked; 2]>> {
        let [a, b] = ["lora_a", "lora_b"].map(|part| {
            let tensor = self.described(Some(layer), &format!("{name}.{part}"))?;
            let [slots, rows, cols] = self.sizes.shape(tensor)[..] else {
                return None;
            };
            let full = full_name(Some(layer), tensor.gguf);
            let [cols, rows, slots] = [cols, rows, slots].map(|n| n as usize);
            let all = self.stacked(&full, [cols, rows, slots], false);
            if all.is_none() {
                self.missing(&full);
            }
            let all = all?;
            let one = |slot: usize| Some(self.ready(all.rows(slot * rows..(slot + 1) * rows)?));
            let matrices = (0..slots).map(one).collect::<Option<Vec<_>>>()?;
            let low_rank = vec![Vec::new(); slots];
            Some(Stacked { tensor: full, first_row: 0, matrices, scales: None, biases: None, low_rank })
        });
        Some(Box::new([a?, b?]))
    }

    /// Rows `range` of an unpacked projection as one of their own, in the layout that it runs from and with what
    /// adapters add.
    fn part(&mut self, all: &Linear, range: Range<usize>) -> Linear {
        let weight = all.weight.rows(range.clone());
        Linear {
            low_rank: self.low_rank(&all.tensor, 0, range.clone()),
            tensor: all.tensor.clone(),
            first_row: range.start,
            weight: self.ready(weight.unwrap_or_else(Matrix::empty)),
            scale: all.scale,
            bias: all.bias.as_ref().and_then(|b| b.get(range)).map(<[f32]>::to_vec),
            switched: None,
        }
    }

    /// The first and the second half of a projection's rows.
    pub fn halves(&mut self, layer: usize, name: &str) -> Option<[Linear; 2]> {
        let all = self.unready_linear(layer, name)?;
        let half = all.weight.rows / 2;
        Some([self.part(&all, 0..half), self.part(&all, half..2 * half)])
    }

    /// Query, key and value projection of a layer, from separate tensors or one fused `attn_qkv`.
    pub fn qkv(&mut self, layer: usize) -> Option<[Linear; 3]> {
        const NAMES: [&str; 3] = ["attn_q", "attn_k", "attn_v"];
        if !self.has(&format!("blk.{layer}.attn_qkv.weight")) {
            let [q, k, v] = NAMES.map(|name| self.linear(layer, name));
            return Some([q?, k?, v?]);
        }
        let cols = self.sizes.embd as usize;
        let q = (self.sizes.heads * self.sizes.head_dim) as usize;
        let [k, v] = [self.sizes.head_dim, self.sizes.value_dim].map(|size| (self.sizes.kv_heads * size) as usize);
        let rows = q + k + v;
        let fused = Tensor::new("attn_qkv.weight", "", &[], Role::ByRows);
        let mut all = self.projection(layer, &fused, "attn_qkv", cols, rows)?;
        if let Some(of_queries) = self.described(Some(layer), "attn_q.bias") {
            let bias = full_name(Some(layer), "attn_qkv.bias");
            all.bias = self.optional_floats(&bias, &[rows]);
            if of_queries.required && all.bias.is_none() && !self.has(&full_name(Some(layer), "attn_q.bias")) {
                self.missing(&bias);
            }
        }
        let parts = [0..q, q..q + k, q + k..rows];
        let mut parts = parts.into_iter().zip(NAMES).map(|(range, name)| {
            let mut linear = self.part(&all, range);
            linear.switched = self.switched(layer, name);
            if linear.bias.is_none() && self.has(&format!("blk.{layer}.{name}.bias")) {
                linear.bias = self.vector(Some(layer), &format!("{name}.bias"));
            }
            linear
        });
        Some([parts.next()?, parts.next()?, parts.next()?])
    }

    /// Query and key projection of a layer whose values are its keys: the file has no matrix for them, and need not have
    /// one. `None` where there is one, or one of all three.
    pub fn query_and_key(&mut self, layer: usize) -> Option<[Linear; 2]> {
        let values = self.described(Some(layer), "attn_v.weight")?;
        let there = ["attn_v", "attn_qkv"].map(|name| self.has(&format!("blk.{layer}.{name}.weight")));
        if values.required || there != [false, false] {
            return None;
        }
        let [q, k] = ["attn_q", "attn_k"].map(|name| self.linear(layer, name));
        Some([q?, k?])
    }

    /// The query projection of a layer, alone or the first rows of a fused `attn_qkv`.
    pub fn query(&mut self, layer: usize) -> Option<Linear> {
        match self.has(&format!("blk.{layer}.attn_qkv.weight")) {
            true => self.qkv(layer).map(|[q, ..]| q),
            false => self.linear(layer, "attn_q"),
        }
    }

    /// The matrix that scores experts, or is the gate of one; its numbers have to be finite.
    pub fn router(&mut self, layer: usize, name: &str) -> Option<Linear> {
        let tensor = self.described(Some(layer), name)?;
        let [rows, cols] = self.sizes.shape(tensor)[..] else {
            return None;
        };
        let name = full_name(Some(layer), name);
        let matrix = self.matrix(&name, cols as usize, rows as usize);
        if let Some(decode) = matrix.ty.info().and_then(|t| t.decode) {
            let mut row = vec![0f32; matrix.cols];
            let in_rows = (0..matrix.rows).map(|i| matrix.row(i));
            for bytes in in_rows.filter(|bytes| !bytes.is_empty()) {
                decode(bytes, &mut row);
                if !self.is_finite(&name, &row) {
                    break;
                }
            }
        }
        Some(Linear {
            low_rank: self.low_rank(&name, 0, 0..matrix.rows),
            weight: self.ready(matrix),
            tensor: name,
            first_row: 0,
            scale: None,
            bias: None,
            switched: None,
        })
    }

    /// The experts of every token, `[tokens][experts of a token]`; `None` after a problem, which is noted.
    pub fn expert_ids(&mut self, layer: usize, experts: &Experts) -> Option<Vec<u32>> {
        let name = full_name(Some(layer), "ffn_gate_tid2eid.weight");
        if !self.has(&name) {
            self.missing(&name);
            return None;
        }
        let view = self.take(&name, &[experts.used, self.sizes.vocab as usize])?;
        let ids = view.data.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id));
        if view.info.ty != TypeId::I32 || ids.clone().any(|id| id as usize >= experts.count) {
            let what = format!("it has to hold numbers of {} experts, as i32", experts.count);
            self.problem(Problem::tensor(&name, what));
            return None;
        }
        Some(ids.collect())
    }

    /// True if a projection's matrix also holds that of the gate, in the first half of its rows.
    pub fn is_fused(&self, layer: usize, name: &str) -> bool {
        let tensor = self.described(Some(layer), &format!("{name}.weight"));
        let first = tensor.and_then(|t| t.shape.first());
        first.is_some_and(|extent| match extent {
            Extent::TwiceFf | Extent::TwiceSharedFf => true,
            Extent::UpOrBoth => self.sizes.up > self.sizes.ff,
            _ => false,
        })
    }

    /// True if the architecture has a place for this tensor of the block.
    pub fn has_place(&self, layer: usize, tensor: &str) -> bool {
        self.described(Some(layer), tensor).is_some()
    }

    /// The matrices of all experts, `[experts][rows][columns]` in one tensor, with the factors and biases of their
    /// outputs; `None` where the architecture or the file has no such tensor.
    pub fn experts(&mut self, layer: usize, name: &str) -> Option<Stacked> {
        self.expert_parts(layer, name, name, 1)?.pop()
    }

    /// [`Loader::experts`], where an absent tensor is missed whatever the description says of it.
    pub fn stated_experts(&mut self, layer: usize, name: &str) -> Option<Stacked> {
        let stacked = self.experts(layer, name);
        if stacked.is_none() {
            self.problem(Problem::MissingTensor(format!("blk.{layer}.{name}.weight")));
        }
        stacked
    }

    /// The first and the second half of the rows of every expert; both use the factors of the tensor `up` alone.
    pub fn expert_halves(&mut self, layer: usize, name: &str, up: &str) -> Option<[Stacked; 2]> {
        self.expert_parts(layer, name, up, 2)?.try_into().ok()
    }

    /// Equal parts of the rows of every expert.
    fn expert_parts(&mut self, layer: usize, name: &str, scaled: &str, parts: usize) -> Option<Vec<Stacked>> {
        let tensor = self.described(Some(layer), &format!("{name}.weight"))?;
        let shape = self.sizes.gguf_shape(tensor);
        let &[cols, rows, experts] = &shape.iter().map(|&n| n as usize).collect::<Vec<_>>()[..] else {
            return None;
        };
        let weight = full_name(Some(layer), tensor.gguf);
        if !tensor.required && !self.has(&weight) {
            return None;
        }
        // matrices of groups of heads may be one of all their rows
        let extents = self.file.tensor_info(&weight).map(|info| info.shape.len());
        let flat = tensor.shape.first() == Some(&Extent::OutputGroups) && extents == Some(2);
        let all = self.stacked(&weight, [cols, rows, experts], flat);
        let scales = self.factors(scaled, experts);
        let biases = self.vector(Some(layer), &format!("{name}.bias"));
        let biases = biases.filter(|b| b.len() == experts * rows);
        if all.is_none() {
            self.missing(&weight);
        }
        let size = rows / parts;
        let part = |part: usize| {
            let one = |e: usize| {
                let from = e * rows + part * size;
                let matrix = all.as_ref().and_then(|all| all.rows(from..from + size));
                self.ready(matrix.unwrap_or_else(Matrix::empty))
            };
            let matrices = (0..experts).map(one).collect();
            let biases = biases.as_ref().map(|b| {
                let of_experts = b.chunks_exact(rows);
                let of_part = of_experts.flat_map(|b| &b[part * size..(part + 1) * size]);
                of_part.copied().collect()
            });
            let low_rank = |e| self.low_rank(&weight, e, part * size..(part + 1) * size);
            Stacked {
                low_rank: (0..experts).map(low_rank).collect(),
                tensor: weight.clone(),
                first_row: part * size,
                matrices,
                scales: scales.clone(),
                biases,
            }
        };
        Some((0..parts).map(part).collect())
    }

    /// A stack of matrices as one of all their rows, which is how the file has it where that is `flat`.
    pub(super) fn stacked(&mut self, name: &str, shape: [usize; 3], flat: bool) -> Option<Matrix> {
        let [cols, rows, experts] = shape;
        let view = match flat {
            true => self.take(name, &[cols, rows * experts])?,
            false => self.take(name, &shape)?,
        };
        let ty = view.info.ty;
        let matrix = Matrix::new(ty, cols, rows * experts, view.data, self.options.isa);
        if matrix.is_none() {
            self.problem(Problem::tensor(name, format!("trine cannot multiply by experts of {ty} yet")));
        }
        matrix
    }
}
