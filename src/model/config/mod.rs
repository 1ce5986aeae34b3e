//! Hyper-parameters, checked once and all together.

mod keys;
mod position;

use trine_formats::gguf::ModelFile;

use super::ModelError;
use crate::arch::{Arch, EmbeddingScale, ScoreScale, Sizes};
use crate::ops::rope::Rope;
use keys::Keys;
use position::{rope, window_rope, windows};

/// Largest `block_count` llama.cpp accepts.
const MAX_LAYERS: u32 = 512;

/// What the metadata says of a model. Every number is in range.
#[derive(Clone, Debug)]
pub struct Config {
    /// Architecture.
    pub arch: &'static Arch,
    /// Tokens in the vocabulary.
    pub n_vocab: usize,
    /// Context length the model was trained with.
    pub n_ctx_train: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Transformer blocks.
    pub n_layer: usize,
    /// Query heads.
    pub n_head: usize,
    /// Key and value heads.
    pub n_head_kv: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Width of the feed-forward block.
    pub n_ff: usize,
    /// Epsilon of the RMS norms.
    pub eps: f32,
    /// Position embedding of the global layers.
    pub rope: Rope,
    /// Sliding window: cells a query sees, itself included, in the layers of `windowed`.
    pub window: Option<usize>,
    /// Per layer, whether it uses the window.
    pub windowed: Vec<bool>,
    /// Position embedding of the window layers.
    pub window_rope: Rope,
    /// Experts of every block, where the model has them.
    pub experts: Option<Experts>,
    /// Factor on the token embeddings, where there is one.
    pub embedding_scale: Option<f32>,
    /// Factor on the queries after RoPE, where there is one.
    pub query_scale: Option<f32>,
    /// Factor on the attention scores.
    pub score_scale: f32,
    /// Factor on what each half of a block adds to the residual stream, where there is one.
    pub residual_scale: Option<f32>,
    /// Factor on the logits, where there is one.
    pub logit_scale: Option<f32>,
    /// `cap * tanh(logits / cap)` at the end, where the model asks for it.
    pub final_softcap: Option<f32>,
}

/// A mixture of experts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Experts {
    /// Experts of a block.
    pub count: usize,
    /// Experts that a token goes to.
    pub used: usize,
    /// Width of one expert's feed-forward network.
    pub n_ff: usize,
}

/// Most experts of a block that llama.cpp accepts.
const MAX_EXPERTS: u32 = 1024;

impl Config {
    /// The sliding window of a layer, `None` for a layer that sees everything.
    pub fn layer_window(&self, layer: usize) -> Option<usize> {
        self.window
            .filter(|_| self.windowed.get(layer).copied().unwrap_or(false))
    }

    /// Reads and checks the metadata of `file`.
    ///
    /// # Errors
    /// All problems at once.
    pub fn read(file: &ModelFile) -> Result<Config, ModelError> {
        let meta = file.meta();
        let name = meta
            .get_str("general.architecture")?
            .ok_or(ModelError::NoArchitecture)?;
        let arch =
            Arch::find(name).ok_or_else(|| ModelError::UnknownArchitecture(name.to_owned()))?;
        let mut keys = Keys {
            meta,
            prefix: arch.name,
            problems: Vec::new(),
        };
        let config = Config::from_keys(&mut keys, arch, file);
        if keys.problems.is_empty() {
            Ok(config)
        } else {
            Err(ModelError::Invalid(keys.problems))
        }
    }

    /// The numbers of the tensors' extents.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            vocab: self.n_vocab as u64,
            embd: self.n_embd as u64,
            ff: self.n_ff as u64,
            heads: self.n_head as u64,
            kv_heads: self.n_head_kv as u64,
            head_dim: self.head_dim as u64,
            rope_dim: self.rope.n_rot as u64,
            experts: self.experts.map_or(0, |e| e.count as u64),
            expert_ff: self.experts.map_or(0, |e| e.n_ff as u64),
        }
    }

    fn from_keys(k: &mut Keys<'_>, arch: &'static Arch, file: &ModelFile) -> Config {
        let n_layer = k.count("block_count", MAX_LAYERS);
        let n_ctx_train = k.count("context_length", 1 << 30);
        let n_embd = k.count("embedding_length", 1 << 20);
        let n_ff = k.count_per_layer("feed_forward_length", n_layer, None);
        let before = k.problems.len();
        let n_head = k.count_per_layer("attention.head_count", n_layer, None);
        let n_head_kv = k.count_per_layer("attention.head_count_kv", n_layer, Some(n_head));
        if k.problems.len() == before && !n_head.is_multiple_of(n_head_kv) {
            k.problems.push(format!(
                "{n_head} query heads cannot share {n_head_kv} key-value heads evenly"
            ));
        }
        let experts = experts(k, arch, n_layer, n_ff);
        let head_dim = match k.u32("attention.key_length") {
            Some(n) => n as usize,
            None if n_embd.is_multiple_of(n_head) => n_embd / n_head,
            None => {
                k.problems.push(format!(
                    "{n_head} heads do not divide the embedding width {n_embd}"
                ));
                2
            }
        };
        let value_dim = k
            .u32("attention.value_length")
            .map_or(head_dim, |n| n as usize);
        if value_dim != head_dim {
            k.problems.push(format!(
                "heads of {head_dim} key and {value_dim} value elements are not supported"
            ));
        }
        let eps_key = "attention.layer_norm_rms_epsilon";
        let eps = match k.f32(eps_key) {
            Some(eps) if eps.is_finite() && eps >= 0.0 => eps,
            Some(eps) => {
                k.problems.push(format!(
                    "{} is {eps}, it must be a number of at least 0",
                    k.name(eps_key)
                ));
                0.0
            }
            None => {
                k.problems.push(format!("{} is missing", k.name(eps_key)));
                0.0
            }
        };
        let rope = rope(k, arch, head_dim, n_ctx_train as u32);
        let (window, windowed) = windows(k, arch, n_layer);
        let window_rope = window_rope(k, arch, &rope);
        let factor = |k: &mut Keys<'_>, key| k.f32(key).filter(|&f| f != 0.0);
        let final_softcap = arch
            .logit_softcap
            .then(|| factor(k, "final_logit_softcapping"))
            .flatten();
        let embedding_scale = match arch.embedding_scale {
            EmbeddingScale::One => None,
            EmbeddingScale::RootOfWidth => Some((n_embd as f32).sqrt()),
            EmbeddingScale::FromKey => factor(k, "embedding_scale"),
        };
        let of_head = |elements: usize| 1.0 / (elements as f32).sqrt();
        let (query_scale, score_scale) = match arch.score_scale {
            ScoreScale::HeadSize => (None, of_head(head_dim)),
            ScoreScale::OnQueries if n_layer == 62 => (Some(of_head(n_embd / n_head)), 1.0),
            ScoreScale::OnQueries => (Some(of_head(head_dim)), 1.0),
            ScoreScale::FromKey => {
                let scale = factor(k, "attention.scale");
                (None, scale.unwrap_or_else(|| of_head(head_dim)))
            }
        };
        let residual_scale = arch
            .residual_scale
            .then(|| factor(k, "residual_scale"))
            .flatten();
        let logit_scale = arch.logit_scale.then(|| {
            let scale = k.f32("logit_scale");
            if scale.is_none() {
                k.problems
                    .push(format!("{} is missing", k.name("logit_scale")));
            }
            1.0 / k.positive("logit_scale", scale.unwrap_or(1.0))
        });
        Config {
            arch,
            n_vocab: vocabulary(k, file),
            n_ctx_train,
            n_embd,
            n_layer,
            n_head,
            n_head_kv,
            head_dim,
            n_ff,
            eps,
            rope,
            window,
            windowed,
            window_rope,
            experts,
            embedding_scale,
            query_scale,
            score_scale,
            residual_scale,
            logit_scale,
            final_softcap,
        }
    }
}

/// The experts, checked against what the architecture has.
fn experts(k: &mut Keys<'_>, arch: &'static Arch, n_layer: usize, n_ff: usize) -> Option<Experts> {
    let count = k.u32("expert_count").unwrap_or(0);
    if count == 0 {
        if arch.block.is_empty() {
            k.problems.push(format!(
                "{} is missing, and models of architecture {} have experts",
                k.name("expert_count"),
                arch.name
            ));
        }
        return None;
    }
    if arch.expert_block.is_empty() {
        k.problems.push(format!(
            "{} is {count}, and models of architecture {} have no experts in trine",
            k.name("expert_count"),
            arch.name
        ));
        return None;
    }
    let count = k.count("expert_count", MAX_EXPERTS);
    let used = k.count_per_layer("expert_used_count", n_layer, None);
    if used > count {
        k.problems.push(format!(
            "{} is {used}, more than the {count} experts",
            k.name("expert_used_count")
        ));
    }
    for key in ["expert_group_count", "expert_group_used_count"] {
        if k.u32(key).is_some_and(|n| n > 1) {
            k.problems.push(format!(
                "{}: groups of experts are not supported",
                k.name(key)
            ));
        }
    }
    let stated =
        arch.expert_width_key && k.meta.get(&k.name("expert_feed_forward_length")).is_some();
    let n_ff = if stated {
        k.count_per_layer("expert_feed_forward_length", n_layer, None)
    } else if arch.expert_width_key {
        (n_ff / used.max(1)).max(1)
    } else {
        n_ff
    };
    Some(Experts { count, used, n_ff })
}

/// Tokens in the vocabulary: the tokenizer's list, or what the file says without one.
fn vocabulary(k: &mut Keys<'_>, file: &ModelFile) -> usize {
    let read = k.meta.get_strs("tokenizer.ggml.tokens");
    if let Some(tokens) = k.note(read) {
        return tokens.len();
    }
    let rows = file
        .tensor_info("token_embd.weight")
        .map_or(0, |t| t.rows() as usize);
    k.u32("vocab_size").map_or(rows, |n| n as usize)
}
