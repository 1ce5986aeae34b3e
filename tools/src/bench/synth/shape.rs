//! Shapes of synthetic models: hyper-parameters by size, and from them metadata and the tensors that the architecture's
//! description lists.

use trine::arch::rules::{
    ExpertLayers, ExpertWidth, GatingRule, LogitScale, NormKind, Residual, Sections, SharedWidth, WindowSize,
};
use trine::arch::{Arch, Role, Sizes, Tensor};
use trine::ops::activation::Activation;
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Array, Metadata, StrArray, Value};
use trine_formats::types::TypeId;

use super::size::Size;

/// The four numbers of xIELU, as they are before training.
const XIELU: [(&str, f32); 4] = [("alpha_n", 0.8), ("alpha_p", 0.8), ("beta", 0.5), ("eps", -1e-6)];

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixture {
    /// Experts of a block, each as wide as the size's feed-forward block.
    pub count: u64,
    /// Experts that a token goes to.
    pub used: u64,
}

/// The number of the sigmoid in `expert_gating_func`.
const SIGMOID: u64 = 2;

/// An architecture at a size.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The architecture of its models.
    pub arch: &'static Arch,
    /// Its numbers.
    pub size: Size,
    /// Its experts, where it has any.
    pub mixture: Option<Mixture>,
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.arch.name, self.size)?;
        match self.mixture {
            Some(Mixture { count, used }) => write!(f, "-{count}x{used}"),
            None => Ok(()),
        }
    }
}

impl Shape {
    /// The shape that ARCH and SIZE name; SIZE is a size, and with experts `SIZE-COUNTxUSED`.
    ///
    /// # Errors
    /// An error that lists the valid choices.
    pub fn parse(arch: &str, size: &str) -> Result<Shape, String> {
        let found = Arch::find(arch);
        let arch = found.ok_or_else(|| format!("give one of {} for ARCH", Arch::names()))?;
        if !arch.is_plain() {
            return Err(format!(
                "there are no synthetic models of architecture {}: they make vectors, or have recurrent layers, latent or compressed attention or blocks that run several times; give a file",
                arch.name
            ));
        }
        let (name, experts) = match size.rsplit_once('-') {
            Some((name, experts)) => (name, Some(experts)),
            None => (size, None),
        };
        let size = Size::parse(name)?;
        let parse = |text: &str| {
            let (count, used) = text.split_once('x')?;
            let (count, used) = (count.parse().ok()?, used.parse().ok()?);
            (1..=count).contains(&used).then_some(Mixture { count, used })
        };
        let mixture = experts.map(|text| {
            parse(text).ok_or_else(|| {
                format!("'-{text}' is no mixture: write tiny-8x2 for 8 experts of which a token goes to 2")
            })
        });
        let mixture = mixture.transpose()?;
        let name = arch.name;
        match mixture {
            None if arch.block.is_empty() => {
                Err(format!("models of architecture {name} have experts: write {name}:{size}-8x2"))
            }
            Some(_) if arch.expert_block.is_empty() => {
                Err(format!("models of architecture {name} have no experts: write {name}:{size}"))
            }
            _ => Ok(Shape { arch, size, mixture }),
        }
    }

    fn has_shared_expert(&self) -> bool {
        self.mixture.is_some() && self.arch.experts.shared != SharedWidth::None
    }

    fn sizes(&self) -> Sizes {
        let s = &self.size;
        Sizes {
            vocab: s.vocab,
            embd: s.hidden,
            ff: s.ffn,
            heads: s.heads,
            kv_heads: s.kv_heads,
            head_dim: s.head_dim,
            value_dim: s.head_dim,
            rope_dim: s.head_dim,
            experts: self.mixture.map_or(0, |m| m.count),
            expert_ff: s.ffn,
            chunks: self.mixture.map_or(0, |m| m.count),
            chunk_ff: s.ffn,
            shared_ff: if self.has_shared_expert() { s.ffn } else { 0 },
            context: s.context,
            ..Sizes::default()
        }
    }

    /// All tensors in the order of the graph, matrices as F16 first, then norms and routers as F32. What a model may
    /// lack is left out.
    pub fn tensors(&self) -> Vec<NewTensor> {
        self.described().into_iter().map(|(tensor, _)| tensor).collect()
    }

    /// The same with what each is.
    pub fn described(&self) -> Vec<(NewTensor, Role)> {
        let untied = |t: &Tensor| t.role == Role::Output && !self.size.tied;
        let block = || self.arch.block_tensors(self.mixture.is_some());
        let ends = self.arch.end_tensors().map(|t| (None, t));
        let blocks = (0..self.size.layers).flat_map(|n| block().map(move |t| (Some(n), t)));
        // gate and up projection of experts are apart
        let split = |t: &Tensor| t.gguf == "ffn_gate_exps.weight" || t.gguf == "ffn_up_exps.weight";
        let stated = |t: &Tensor| t.required && t.role != Role::PlainNorm || t.role == Role::Embedding;
        let wanted = |t: &Tensor| stated(t) || untied(t) || split(t);
        let all = ends.chain(blocks).filter(|(_, t)| wanted(t));
        let (mut matrices, mut floats) = (Vec::new(), Vec::new());
        let sizes = self.sizes();
        for (layer, tensor) in all {
            let name = match layer {
                Some(layer) => format!("blk.{layer}.{}", tensor.gguf),
                None => tensor.gguf.to_owned(),
            };
            let shape = sizes.gguf_shape(tensor);
            let new = |ty| (NewTensor::new(name, shape, ty), tensor.role);
            match tensor.role {
                Role::Embedding | Role::Output | Role::ByRows | Role::ByColumns => {
                    matrices.push(new(TypeId::F16));
                }
                _ => floats.push(new(TypeId::F32)),
            }
        }
        matrices.append(&mut floats);
        matrices
    }

    /// The keys a loader asks for, with a vocabulary of invented words.
    pub fn metadata(&self) -> Metadata {
        let s = &self.size;
        let mut meta = Metadata::default();
        let arch = self.arch.name;
        meta.set("general.architecture", Value::str(arch));
        let name = format!("synthetic {self}").replace(':', " ");
        meta.set("general.name", Value::str(&name));
        let mut numbers = vec![
            ("block_count", s.layers),
            ("context_length", s.context),
            ("embedding_length", s.hidden),
            ("feed_forward_length", s.ffn),
            ("attention.head_count", s.heads),
            ("attention.head_count_kv", s.kv_heads),
            ("attention.key_length", s.head_dim),
            ("attention.value_length", s.head_dim),
            ("rope.dimension_count", s.head_dim),
            ("vocab_size", s.vocab),
        ];
        if self.arch.window.is_some_and(|window| window.size == WindowSize::Needed) {
            numbers.push(("attention.sliding_window", s.context));
        }
        if let Some(mixture) = self.mixture {
            numbers.push(("expert_count", mixture.count));
            numbers.push(("expert_used_count", mixture.used));
            if self.arch.experts.width != ExpertWidth::Full {
                numbers.push(("expert_feed_forward_length", s.ffn));
            }
            if self.has_shared_expert() {
                numbers.push(("expert_shared_feed_forward_length", s.ffn));
                numbers.push(("expert_shared_count", 1));
            }
            if self.arch.experts.chunks {
                numbers.push(("experts_per_group", 1));
                numbers.push(("expert_chunk_feed_forward_length", s.ffn));
            }
            if matches!(self.arch.experts.gating, GatingRule::Key(_)) {
                numbers.push(("expert_gating_func", SIGMOID));
            }
            if matches!(self.arch.experts.layers, ExpertLayers::Every | ExpertLayers::EveryAfterLeading) {
                numbers.push(("interleave_moe_layer_step", 1));
            }
        }
        for (key, value) in numbers {
            meta.set(&format!("{arch}.{key}"), Value::U32(value as u32));
        }
        let mut factors = vec![("rope.freq_base", 10_000.0)];
        factors.push(match self.arch.norm {
            NormKind::Layer => ("attention.layer_norm_epsilon", 1e-5),
            NormKind::Rms | NormKind::RmsOfEither | NormKind::ByKey | NormKind::RmsWithoutEps => {
                ("attention.layer_norm_rms_epsilon", 1e-5)
            }
        });
        if self.arch.output.scale != LogitScale::One {
            factors.push(("logit_scale", 1.0));
        }
        if self.arch.experts.chunks {
            factors.push(("expert_group_scale", 0.5));
        }
        if matches!(self.arch.residual, Residual::Key(_)) {
            let key = format!("{arch}.use_parallel_residual");
            meta.set(&key, Value::Bool(true));
        }
        if self.arch.rope.sections != Sections::One {
            let third = (s.head_dim / 6) as u32;
            let sections = vec![s.head_dim as u32 / 2 - 2 * third, third, third, 0];
            let key = format!("{arch}.rope.dimension_sections");
            meta.set(&key, Value::Array(Array::U32(sections)));
        }
        for (key, value) in factors {
            meta.set(&format!("{arch}.{key}"), Value::F32(value));
        }
        if matches!(self.arch.feed_forward.activation, Activation::Xielu(_)) {
            for (key, value) in XIELU {
                meta.set(&format!("xielu.{key}"), Value::F32(value));
            }
        }
        vocabulary(&mut meta, s.vocab as usize);
        meta
    }
}

/// A SentencePiece vocabulary: three special tokens, all bytes, then words nobody wrote.
fn vocabulary(meta: &mut Metadata, n: usize) {
    const NORMAL: i32 = 1;
    const UNKNOWN: i32 = 2;
    const CONTROL: i32 = 3;
    const BYTE: i32 = 6;
    let mut texts = StrArray::with_capacity(n, 12 * n);
    let mut types = Vec::with_capacity(n);
    for id in 0..n {
        let (text, ty) = match id {
            0 => ("<unk>".to_owned(), UNKNOWN),
            1 => ("<s>".to_owned(), CONTROL),
            2 => ("</s>".to_owned(), CONTROL),
            3..=258 => (format!("<0x{:02X}>", id - 3), BYTE),
            _ => (format!("\u{2581}w{id}"), NORMAL),
        };
        texts.push(text.as_bytes());
        types.push(ty);
    }
    let scores = (0..n).map(|id| -(id as f32)).collect();
    meta.set("tokenizer.ggml.model", Value::str("llama"));
    meta.set("tokenizer.ggml.tokens", Value::Array(Array::Str(texts)));
    meta.set("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
    meta.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    meta.set("tokenizer.ggml.bos_token_id", Value::U32(1));
    meta.set("tokenizer.ggml.eos_token_id", Value::U32(2));
    meta.set("tokenizer.ggml.unknown_token_id", Value::U32(0));
}
