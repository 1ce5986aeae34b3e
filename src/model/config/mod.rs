//! Hyper-parameters, checked once and all together.

mod keys;
mod position;

use trine_formats::gguf::ModelFile;

use super::ModelError;
use crate::ops::rope::Rope;
use keys::Keys;
use position::{rope, window_rope, windows};

/// Largest `block_count` llama.cpp accepts.
const MAX_LAYERS: u32 = 512;

/// The architectures trine runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arch {
    /// LLaMA and what shares its graph (Mistral, SmolLM, TriLM, Falcon3 …).
    Llama,
    /// Gemma 3, text.
    Gemma3,
    /// LLaMA with biases on the attention projections and half-split RoPE.
    Qwen2,
    /// Qwen 2 without the biases, with an RMS norm on every query and key head (Bonsai's base).
    Qwen3,
    /// Norms after instead of before both halves of a block, and on all of q and k (OLMo 2, TriTera).
    Olmo2,
    /// BitNet b1.58 as llama.cpp defines it: LLaMA with sub-norms, tied embeddings, SiLU.
    Bitnet,
    /// The same with squared ReLU: the published BitNet b1.58 2B-4T, first upload.
    Bitnet25,
    /// The same under its current name.
    BitnetB158,
}

impl Arch {
    const ALL: [(Arch, &'static str); 8] = [
        (Arch::Llama, "llama"),
        (Arch::Gemma3, "gemma3"),
        (Arch::Qwen2, "qwen2"),
        (Arch::Qwen3, "qwen3"),
        (Arch::Olmo2, "olmo2"),
        (Arch::Bitnet, "bitnet"),
        (Arch::Bitnet25, "bitnet-25"),
        (Arch::BitnetB158, "bitnet-b1.58"),
    ];

    /// The name in `general.architecture`.
    pub fn name(self) -> &'static str {
        Arch::ALL
            .iter()
            .find(|(a, _)| *a == self)
            .map_or("", |(_, name)| name)
    }

    /// Whether this is one of the BitNet graphs.
    pub fn is_bitnet(self) -> bool {
        matches!(self, Arch::Bitnet | Arch::Bitnet25 | Arch::BitnetB158)
    }

    /// All names, for messages.
    pub fn names() -> String {
        Arch::ALL.map(|(_, name)| name).join(", ")
    }
}

/// What the metadata says of a model. Every number is in range.
#[derive(Clone, Debug)]
pub struct Config {
    /// Architecture.
    pub arch: Arch,
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
    /// `cap * tanh(logits / cap)` at the end, where the model asks for it.
    pub final_softcap: Option<f32>,
}

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
        let &(arch, prefix) = Arch::ALL
            .iter()
            .find(|(_, n)| *n == name)
            .ok_or_else(|| ModelError::UnknownArchitecture(name.to_owned()))?;
        let mut keys = Keys {
            meta,
            prefix,
            problems: Vec::new(),
        };
        let config = Config::from_keys(&mut keys, arch, file);
        if keys.problems.is_empty() {
            Ok(config)
        } else {
            Err(ModelError::Invalid(keys.problems))
        }
    }

    fn from_keys(k: &mut Keys<'_>, arch: Arch, file: &ModelFile) -> Config {
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
        if k.u32("expert_count").unwrap_or(0) > 0 {
            k.problems
                .push("mixture-of-experts models are not supported".to_owned());
        }
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
        let final_softcap = match arch {
            Arch::Gemma3 => k.f32("final_logit_softcapping").filter(|&cap| cap != 0.0),
            _ => None,
        };
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
            final_softcap,
        }
    }
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
