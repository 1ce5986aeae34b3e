//! A model with all its weights as plain numbers.

use std::collections::HashSet;

use rayon::prelude::*;
use trine_formats::gguf::{ModelFile, PackingOptions, TensorView};

use super::attention::Attention;
use super::block::{Block, Linear};
use super::ops::Norm;
use super::real::Real;
use crate::arch::rules::ScoreScale;
use crate::arch::{Arch, Sizes};
use crate::kernels::Isa;
use crate::model::{Config, ModelError};
use crate::ops::rope::Rope;

/// A matrix whose gradient is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name of the tensor in the model's file.
    pub tensor: String,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub columns: usize,
}

/// The weights of a model.
pub struct Weights<T> {
    /// Hyper-parameters.
    pub config: Config,
    /// RoPE of the global and of the window layers.
    pub ropes: [Rope; 2],
    /// `[n_vocab][n_embd]`.
    pub embedding: Vec<T>,
    /// The blocks.
    pub blocks: Vec<Block<T>>,
    /// Before the output projection.
    pub output_norm: Norm<T>,
    /// The output projection, where it is not the embedding.
    pub output: Option<Vec<T>>,
    /// One per token of the vocabulary, or empty.
    pub output_bias: Vec<T>,
    /// The matrices of the blocks in order of their numbers.
    pub targets: Vec<Target>,
}

const GLOBAL: usize = 0;
const WINDOW: usize = 1;

impl<T: Real> Weights<T> {
    /// Decodes the model of `file`.
    ///
    /// # Errors
    /// Everything that is missing or cannot be used, at once.
    pub fn load(file: &ModelFile, packing: &PackingOptions, isa: Isa) -> Result<Weights<T>, ModelError> {
        let config = Config::read(file)?;
        if let Some(problem) = not_differentiable(&config) {
            return Err(ModelError::Invalid(vec![problem]));
        }
        let mut loader = Loader {
            file,
            packing,
            arch: config.arch,
            sizes: config.sizes(),
            problems: Vec::new(),
            used: HashSet::new(),
            targets: Vec::new(),
        };
        let c = &config;
        let mut ropes = [c.rope.clone(), c.window_rope.clone()];
        let factors = loader.vector::<f32>(None, "rope_freqs.weight");
        ropes[GLOBAL].freq_factors = factors.unwrap_or_default();
        let embedding = loader.required("token_embd.weight", &[c.n_embd, c.n_vocab]);
        let blocks = (0..c.n_layer).map(|i| loader.block(c, i, isa)).collect();
        let output_norm = loader.required("output_norm.weight", &[c.n_embd]);
        let output_norm = Norm::new(output_norm, c);
        let output = loader.vector(None, "output.weight");
        let output_bias = loader.vector(None, "output.bias");
        if loader.problems.is_empty() {
            let names = file.tensors().map(|t| &t.name[..]);
            let left = config.arch.leftover(names, &loader.used, config.n_layer..config.n_block);
            loader.problems.extend(left);
        }
        if !loader.problems.is_empty() {
            return Err(ModelError::Invalid(loader.problems));
        }
        Ok(Weights {
            ropes,
            embedding,
            blocks,
            output_norm,
            output,
            output_bias: output_bias.unwrap_or_default(),
            targets: loader.targets,
            config,
        })
    }
}

/// Takes tensors out of a file and collects what is wrong with them.
struct Loader<'a> {
    file: &'a ModelFile,
    packing: &'a PackingOptions,
    arch: &'static Arch,
    sizes: Sizes,
    problems: Vec<String>,
    used: HashSet<String>,
    targets: Vec<Target>,
}

impl Loader<'_> {
    fn block<T: Real>(&mut self, c: &Config, layer: usize, isa: Isa) -> Block<T> {
        let heads = c.n_head * c.head_dim;
        let window = c.layer_window(layer);
        let mut norm = |part: &str| {
            let gains = self.vector(Some(layer), &format!("{part}.weight"))?;
            Some(Norm::new(gains, c))
        };
        let attn_norm = norm("attn_norm");
        let qk_norms = norm("attn_q_norm").zip(norm("attn_k_norm"));
        let attn_sub_norm = norm("attn_sub_norm");
        let attn_post_norm = norm("post_attention_norm");
        let ffn_norm = norm("ffn_norm");
        let ffn_sub_norm = norm("ffn_sub_norm");
        let ffn_post_norm = norm("post_ffw_norm");
        Block {
            attn_norm,
            qkv: self.qkv(c, layer),
            qk_norms: qk_norms.map(|(q, k)| [q, k]),
            attention: Attention {
                n_head: c.n_head,
                n_head_kv: c.n_head_kv,
                head_dim: c.head_dim,
                scale: score_scale(c),
                window: window.map(|w| w.size),
                isa,
            },
            rope: if window.is_some() { WINDOW } else { GLOBAL },
            attn_sub_norm,
            out: self.linear(layer, "attn_output", [heads, c.n_embd], false),
            attn_post_norm,
            ffn_norm,
            gate: self.linear(layer, "ffn_gate", [c.n_embd, c.n_ff], true),
            up: self.linear(layer, "ffn_up", [c.n_embd, c.n_ff], true),
            activation: c.arch.feed_forward.activation,
            ffn_sub_norm,
            down: self.linear(layer, "ffn_down", [c.n_ff, c.n_embd], true),
            ffn_post_norm,
        }
    }

    /// A tensor, where the architecture has it; absent too where it is optional and the file has none.
    fn vector<T: Real>(&mut self, layer: Option<usize>, name: &str) -> Option<Vec<T>> {
        let tensor = self.arch.tensor(layer.is_some(), false, name)?;
        let shape: Vec<usize> = self.sizes.gguf_shape(tensor).iter().map(|&n| n as usize).collect();
        let name = match layer {
            Some(layer) => format!("blk.{layer}.{name}"),
            None => name.to_owned(),
        };
        if tensor.required { Some(self.required(&name, &shape)) } else { self.optional(&name, &shape) }
    }

    /// Query, key and value, or the one tensor that holds all three.
    fn qkv<T: Real>(&mut self, c: &Config, layer: usize) -> Vec<Linear<T>> {
        let (q, kv) = (c.n_head * c.head_dim, c.n_head_kv * c.head_dim);
        let parts = [("attn_q", q), ("attn_k", kv), ("attn_v", kv)];
        let fused = format!("blk.{layer}.attn_qkv");
        if self.file.tensor_info(&format!("{fused}.weight")).is_none() {
            let linear = |(part, rows)| self.linear(layer, part, [c.n_embd, rows], false);
            return parts.map(linear).into();
        }
        let mut all = self.linear(layer, "attn_qkv", [c.n_embd, q + 2 * kv], false);
        all.bias = self.optional(&format!("{fused}.bias"), &[q + 2 * kv]);
        if all.bias.is_none() {
            let mut bias = Vec::with_capacity(q + 2 * kv);
            let mut found = false;
            for (part, rows) in parts {
                let part = self.vector(Some(layer), &format!("{part}.bias"));
                found |= part.is_some();
                bias.extend(part.unwrap_or_else(|| vec![T::default(); rows]));
            }
            all.bias = found.then_some(bias);
        }
        vec![all]
    }

    /// `PART.weight` of a block, whose gradient is wanted, with its optional `PART.scale` and `PART.bias`.
    fn linear<T: Real>(&mut self, layer: usize, part: &str, shape: [usize; 2], bias_first: bool) -> Linear<T> {
        let [columns, rows] = shape;
        let tensor = format!("blk.{layer}.{part}.weight");
        let scale: Option<Vec<T>> = self.optional(&format!("blk.{layer}.{part}.scale"), &[1]);
        let linear = Linear {
            index: self.targets.len(),
            columns,
            rows,
            weight: self.required(&tensor, &shape),
            scale: scale.filter(|_| self.arch.applies_factors(part)).and_then(|s| s.first().copied()),
            bias: self.vector(Some(layer), &format!("{part}.bias")),
            bias_first,
        };
        self.targets.push(Target { tensor, rows, columns });
        linear
    }

    fn required<T: Real>(&mut self, name: &str, shape: &[usize]) -> Vec<T> {
        if self.file.tensor_info(name).is_none() {
            self.problems.push(format!("tensor {name} is missing"));
        }
        self.optional(name, shape).unwrap_or_default()
    }

    /// The decoded tensor; `None` when it is absent or cannot be used, which is noted.
    fn optional<T: Real>(&mut self, name: &str, shape: &[usize]) -> Option<Vec<T>> {
        let view = self.file.tensor(name)?;
        self.used.insert(name.to_owned());
        let found = &view.info.shape;
        let same = (0..found.len().max(shape.len()))
            .all(|d| found.get(d).copied().unwrap_or(1) == shape.get(d).copied().unwrap_or(1) as u64);
        if !same {
            self.problems.push(format!("tensor {name} has shape {found:?}, expected {shape:?}"));
            return None;
        }
        match self.decode(&view, shape[0]) {
            Ok(values) => Some(values),
            Err(problem) => {
                self.problems.push(problem);
                None
            }
        }
    }

    fn decode<T: Real>(&self, view: &TensorView, columns: usize) -> Result<Vec<T>, String> {
        let (name, ty) = (&view.info.name, view.info.ty);
        let unknown = || format!("tensor {name}: trine cannot decode {ty} yet");
        let info = ty.info().ok_or_else(unknown)?;
        let rows = usize::try_from(view.info.rows()).map_err(|_| unknown())?;
        let mut out = vec![T::default(); rows * columns];
        let by_rows = out.par_chunks_mut(columns.max(1)).enumerate();
        if info.is_per_tensor() {
            let ternary = view.ternary(self.file.meta(), self.packing);
            let ternary = ternary.map_err(|e| e.to_string())?;
            let scale = f64::from(ternary.scale());
            by_rows
                .try_for_each(|(i, row)| {
                    let mut codes = vec![0i8; columns];
                    ternary.unpack_rows(i..i + 1, &mut codes)?;
                    let weights = codes.iter().map(|&c| T::of(f64::from(c) * scale));
                    row.iter_mut().zip(weights).for_each(|(o, w)| *o = w);
                    Ok(())
                })
                .map_err(|e| view.ternary_error(e).to_string())?;
        } else {
            let decode = info.decode.ok_or_else(unknown)?;
            let row_bytes = info.row_bytes(columns as u64).ok_or_else(unknown)? as usize;
            by_rows.for_each(|(i, row)| {
                let mut values = vec![0f32; columns];
                decode(&view.data[i * row_bytes..][..row_bytes], &mut values);
                let values = values.iter().map(|&v| T::of(v.into()));
                row.iter_mut().zip(values).for_each(|(o, v)| *o = v);
            });
        }
        if out.par_iter().any(|v| !v.wide().is_finite()) {
            return Err(format!("tensor {name} holds non-finite weights"));
        }
        Ok(out)
    }
}

/// The factor on the attention scores, not rounded to `f32`; one on the queries is the same.
fn score_scale(c: &Config) -> f64 {
    let of_head = |elements: usize| 1.0 / (elements as f64).sqrt();
    match c.arch.attention.scale {
        ScoreScale::OnQueries(Some(layers)) if c.n_layer == layers as usize => of_head(c.n_embd / c.n_head),
        ScoreScale::HeadSize | ScoreScale::OnQueries(_) => of_head(c.head_dim),
        _ => c.scores.scale.into(),
    }
}

/// What stands in the way of gradients: the backward pass has the operations of dense blocks only.
fn not_differentiable(c: &Config) -> Option<String> {
    let what = if c.experts.is_some() {
        "a mixture of experts"
    } else if c.residual_scale.is_some() || c.logit_scale.is_some() {
        "factors on the residual stream or the logits"
    } else if !c.arch.gradients {
        "operations that have none in trine"
    } else {
        return None;
    };
    Some(format!("gradients of architecture {} are not supported: it has {what}", c.arch.name))
}
