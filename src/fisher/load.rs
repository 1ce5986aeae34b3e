//! A model with all its weights as plain numbers.

use rayon::prelude::*;
use trine_formats::gguf::{ModelFile, PackingOptions, TensorView};

use super::attention::Attention;
use super::block::{Block, Linear};
use super::ops::{Activation, Norm};
use super::real::Real;
use crate::kernels::Isa;
use crate::model::{Arch, Config, ModelError};
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
    pub fn load(
        file: &ModelFile,
        packing: &PackingOptions,
        isa: Isa,
    ) -> Result<Weights<T>, ModelError> {
        let config = Config::read(file)?;
        let mut loader = Loader {
            file,
            packing,
            problems: Vec::new(),
            targets: Vec::new(),
        };
        let c = &config;
        let mut ropes = [c.rope.clone(), c.window_rope.clone()];
        if c.arch == Arch::Llama {
            let factors = loader.optional::<f32>("rope_freqs.weight", &[c.rope.n_rot / 2]);
            ropes[GLOBAL].freq_factors = factors.unwrap_or_default();
        }
        let embedding = loader.required("token_embd.weight", &[c.n_embd, c.n_vocab]);
        let blocks = (0..c.n_layer).map(|i| loader.block(c, i, isa)).collect();
        let output_norm = loader.norm("output_norm.weight", c.n_embd, c);
        let output = match c.arch {
            arch if arch.is_bitnet() => None,
            _ => loader.optional("output.weight", &[c.n_embd, c.n_vocab]),
        };
        let output_bias = match c.arch {
            Arch::Qwen2 => loader.optional("output.bias", &[c.n_vocab]),
            _ => None,
        };
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
    problems: Vec<String>,
    targets: Vec<Target>,
}

impl Loader<'_> {
    fn block<T: Real>(&mut self, c: &Config, layer: usize, isa: Isa) -> Block<T> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (heads, kv) = (c.n_head * c.head_dim, c.n_head_kv * c.head_dim);
        let is_bitnet = c.arch.is_bitnet();
        let norm = |loader: &mut Self, part: &str, n: usize| {
            loader.norm(&name(&format!("{part}.weight")), n, c)
        };
        // Norms before the halves of a block, or after them, or both.
        let pre = c.arch != Arch::Olmo2;
        let post = matches!(c.arch, Arch::Gemma3 | Arch::Olmo2);
        let qk_widths = match c.arch {
            Arch::Gemma3 | Arch::Qwen3 => Some([c.head_dim; 2]),
            Arch::Olmo2 => Some([heads, kv]),
            _ => None,
        };
        let window = c.layer_window(layer);
        // llama.cpp knows Gemma's 27B model by its 62 layers; its scale is that of the embedding width.
        let per_head = if c.arch == Arch::Gemma3 && c.n_layer == 62 {
            c.n_embd / c.n_head
        } else {
            c.head_dim
        };
        let llama_like = matches!(c.arch, Arch::Llama | Arch::Qwen2 | Arch::Qwen3);
        Block {
            attn_norm: pre.then(|| norm(self, "attn_norm", c.n_embd)),
            qkv: self.qkv(c, layer),
            qk_norms: qk_widths
                .map(|[q, k]| [norm(self, "attn_q_norm", q), norm(self, "attn_k_norm", k)]),
            attention: Attention {
                n_head: c.n_head,
                n_head_kv: c.n_head_kv,
                head_dim: c.head_dim,
                scale: 1.0 / (per_head as f64).sqrt(),
                window,
                isa,
            },
            rope: if window.is_some() { WINDOW } else { GLOBAL },
            attn_sub_norm: is_bitnet.then(|| norm(self, "attn_sub_norm", heads)),
            out: self.linear(&name("attn_output"), [heads, c.n_embd], false),
            attn_post_norm: post.then(|| norm(self, "post_attention_norm", c.n_embd)),
            ffn_norm: pre.then(|| norm(self, "ffn_norm", c.n_embd)),
            gate: self.linear(
                &name("ffn_gate"),
                [c.n_embd, c.n_ff],
                llama_like || is_bitnet,
            ),
            up: self.linear(&name("ffn_up"), [c.n_embd, c.n_ff], llama_like || is_bitnet),
            activation: match c.arch {
                Arch::Gemma3 => Activation::Gelu,
                Arch::Bitnet25 | Arch::BitnetB158 => Activation::SquaredRelu,
                _ => Activation::Silu,
            },
            ffn_sub_norm: is_bitnet.then(|| norm(self, "ffn_sub_norm", c.n_ff)),
            down: self.linear(&name("ffn_down"), [c.n_ff, c.n_embd], llama_like),
            ffn_post_norm: post.then(|| norm(self, "post_ffw_norm", c.n_embd)),
        }
    }

    /// Query, key and value, or the one tensor that holds all three.
    fn qkv<T: Real>(&mut self, c: &Config, layer: usize) -> Vec<Linear<T>> {
        let (q, kv) = (c.n_head * c.head_dim, c.n_head_kv * c.head_dim);
        let parts = [("attn_q", q), ("attn_k", kv), ("attn_v", kv)];
        let parts = parts.map(|(part, rows)| (format!("blk.{layer}.{part}"), rows));
        let fused = format!("blk.{layer}.attn_qkv");
        if self.file.tensor_info(&format!("{fused}.weight")).is_none() {
            let linear =
                |(name, rows): &(String, usize)| self.linear(name, [c.n_embd, *rows], false);
            return parts.iter().map(linear).collect();
        }
        let mut all = self.linear(&fused, [c.n_embd, q + 2 * kv], false);
        if all.bias.is_none() {
            let mut bias = Vec::with_capacity(q + 2 * kv);
            let mut found = false;
            for (name, rows) in &parts {
                let part = self.optional(&format!("{name}.bias"), &[*rows]);
                found |= part.is_some();
                bias.extend(part.unwrap_or_else(|| vec![T::default(); *rows]));
            }
            all.bias = found.then_some(bias);
        }
        vec![all]
    }

    /// `NAME.weight`, whose gradient is wanted, with its optional `NAME.scale` and `NAME.bias`.
    fn linear<T: Real>(&mut self, name: &str, shape: [usize; 2], bias_first: bool) -> Linear<T> {
        let [columns, rows] = shape;
        let tensor = format!("{name}.weight");
        let linear = Linear {
            index: self.targets.len(),
            columns,
            rows,
            weight: self.required(&tensor, &shape),
            scale: self
                .optional(&format!("{name}.scale"), &[1])
                .and_then(|s: Vec<T>| s.first().copied()),
            bias: self.optional(&format!("{name}.bias"), &[rows]),
            bias_first,
        };
        self.targets.push(Target {
            tensor,
            rows,
            columns,
        });
        linear
    }

    fn norm<T: Real>(&mut self, name: &str, n: usize, c: &Config) -> Norm<T> {
        Norm {
            weight: self.required(name, &[n]),
            eps: c.eps.into(),
        }
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
        let found = &view.info.shape;
        let same = (0..found.len().max(shape.len())).all(|d| {
            found.get(d).copied().unwrap_or(1) == shape.get(d).copied().unwrap_or(1) as u64
        });
        if !same {
            self.problems.push(format!(
                "tensor {name} has shape {found:?}, expected {shape:?}"
            ));
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
