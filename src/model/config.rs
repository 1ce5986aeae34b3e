//! Hyper-parameters, checked once and all together.

use trine_formats::gguf::{GgufError, Metadata, ModelFile, Value};

use super::ModelError;
use crate::ops::rope::{Pairing, Rope, Yarn};

/// Largest `block_count` llama.cpp accepts.
const MAX_LAYERS: u32 = 512;

/// The architectures trine runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arch {
    /// LLaMA and what shares its graph (Mistral, SmolLM, TriLM, Falcon3 …).
    Llama,
    /// Gemma 3, text.
    Gemma3,
    /// BitNet b1.58 as llama.cpp defines it: LLaMA with sub-norms, tied embeddings.
    Bitnet,
}

impl Arch {
    const ALL: [(Arch, &'static str); 3] = [
        (Arch::Llama, "llama"),
        (Arch::Gemma3, "gemma3"),
        (Arch::Bitnet, "bitnet"),
    ];

    /// The name in `general.architecture`.
    pub fn name(self) -> &'static str {
        Arch::ALL
            .iter()
            .find(|(a, _)| *a == self)
            .map_or("", |(_, name)| name)
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
    /// RoPE base of the window layers.
    pub rope_base_window: f32,
    /// `cap * tanh(logits / cap)` at the end, where the model asks for it.
    pub final_softcap: Option<f32>,
}

/// Reads keys of one architecture and collects what is wrong with them.
struct Keys<'a> {
    meta: &'a Metadata,
    prefix: &'static str,
    problems: Vec<String>,
}

impl Keys<'_> {
    fn note<T>(&mut self, read: Result<Option<T>, GgufError>) -> Option<T> {
        read.unwrap_or_else(|e| {
            self.problems.push(e.to_string());
            None
        })
    }

    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    fn u32(&mut self, key: &str) -> Option<u32> {
        let read = self.meta.get_u32(&self.name(key));
        self.note(read)
    }

    fn f32(&mut self, key: &str) -> Option<f32> {
        let read = self.meta.get_f32(&self.name(key));
        self.note(read)
    }

    /// A required count in `1..=max`; 1 stands in after a problem.
    fn count(&mut self, key: &str, max: u32) -> usize {
        match self.u32(key) {
            Some(n) if (1..=max).contains(&n) => return n as usize,
            Some(n) => self
                .problems
                .push(format!("{} is {n}, it must be 1 to {max}", self.name(key))),
            None => self.problems.push(format!("{} is missing", self.name(key))),
        }
        1
    }

    /// A count that may stand once per layer; all layers must agree.
    fn count_per_layer(&mut self, key: &str, n_layer: usize, default: Option<usize>) -> usize {
        let name = self.name(key);
        match (self.meta.get(&name), default) {
            (None, Some(n)) => n,
            (Some(Value::Array(_)), _) => {
                let read = self.meta.get_u32s(&name);
                let all = self.note(read).map(|v| v.to_vec()).unwrap_or_default();
                match all.first() {
                    Some(&n) if n > 0 && all.len() == n_layer && all.iter().all(|&m| m == n) => {
                        n as usize
                    }
                    Some(_) if all.len() == n_layer => {
                        self.problems.push(format!(
                            "{name} differs between layers, which is not supported"
                        ));
                        1
                    }
                    _ => {
                        self.problems.push(format!(
                            "{name} has {} entries for {n_layer} layers",
                            all.len()
                        ));
                        1
                    }
                }
            }
            _ => self.count(key, 1 << 20),
        }
    }

    fn positive(&mut self, key: &str, value: f32) -> f32 {
        if !(value.is_finite() && value > 0.0) {
            self.problems.push(format!(
                "{} is {value}, it must be a positive number",
                self.name(key)
            ));
            return 1.0;
        }
        value
    }
}

impl Config {
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
        let n_head = k.count_per_layer("attention.head_count", n_layer, None);
        let n_head_kv = k.count_per_layer("attention.head_count_kv", n_layer, Some(n_head));
        if !n_head.is_multiple_of(n_head_kv) {
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
        let rope_base_window = if arch == Arch::Gemma3 {
            let base = k.f32("rope.freq_base_swa").unwrap_or(10000.0);
            k.positive("rope.freq_base_swa", base)
        } else {
            rope.base
        };
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
            rope_base_window,
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

fn rope(k: &mut Keys<'_>, arch: Arch, head_dim: usize, n_ctx_train: u32) -> Rope {
    let n_rot = k
        .u32("rope.dimension_count")
        .map_or(head_dim, |n| n as usize);
    if n_rot == 0 || !n_rot.is_multiple_of(2) || n_rot > head_dim {
        k.problems.push(format!(
            "{} is {n_rot}, it must be even and at most {head_dim}",
            k.name("rope.dimension_count")
        ));
    } else if arch == Arch::Llama && n_rot != head_dim {
        k.problems.push(format!(
            "{} is {n_rot}, a llama model needs {head_dim}",
            k.name("rope.dimension_count")
        ));
    }
    let base = k.f32("rope.freq_base").unwrap_or(10000.0);
    let base = k.positive("rope.freq_base", base);
    let kind_key = k.name("rope.scaling.type");
    let read = k.meta.get_str(&kind_key);
    let kind = k.note(read).unwrap_or("linear").to_owned();
    let factor = k
        .f32("rope.scaling.factor")
        .or_else(|| k.f32("rope.scale_linear"))
        .unwrap_or(0.0);
    let freq_scale = if factor == 0.0 || kind == "none" {
        1.0
    } else {
        1.0 / factor
    };
    let freq_scale = k.positive("rope.scaling.factor", freq_scale);
    let mut attn_factor = k.f32("rope.scaling.attn_factor").unwrap_or(1.0);
    let mut yarn = None;
    match kind.as_str() {
        "none" | "linear" => {}
        "yarn" if arch == Arch::Gemma3 => k
            .problems
            .push(format!("{kind_key} yarn is not supported for gemma3")),
        "yarn" => {
            let ext = k
                .f32("rope.scaling.yarn_ext_factor")
                .filter(|&f| f >= 0.0)
                .unwrap_or(1.0);
            let fast = k.f32("rope.scaling.yarn_beta_fast").unwrap_or(32.0);
            let slow = k.f32("rope.scaling.yarn_beta_slow").unwrap_or(1.0);
            let n_orig = k
                .u32("rope.scaling.original_context_length")
                .unwrap_or(n_ctx_train);
            if k.f32("rope.scaling.yarn_log_multiplier")
                .is_some_and(|m| m != 0.0)
            {
                k.problems
                    .push("rope.scaling.yarn_log_multiplier is not supported".to_owned());
            }
            if ext != 0.0 {
                attn_factor *= yarn_magnitude(1.0 / freq_scale);
                yarn = Some(Yarn::new(n_rot, n_orig, base, ext, fast, slow));
            }
        }
        other => k.problems.push(format!(
            "{kind_key} '{other}' is not supported; trine has none, linear and yarn"
        )),
    }
    let pairing = if arch == Arch::Llama {
        Pairing::Adjacent
    } else {
        Pairing::Halves
    };
    Rope {
        n_rot,
        pairing,
        base,
        freq_scale,
        attn_factor,
        freq_factors: Vec::new(),
        yarn,
    }
}

/// llama.cpp's magnitude for YaRN: its own factor times the inverse of the one RoPE will apply.
fn yarn_magnitude(factor: f32) -> f32 {
    let log = crate::math::logf(factor);
    let magnitude = if factor <= 1.0 { 1.0 } else { 0.1 * log + 1.0 };
    magnitude * (1.0 / (1.0 + 0.1 * log))
}

/// The window and which layers use it.
fn windows(k: &mut Keys<'_>, arch: Arch, n_layer: usize) -> (Option<usize>, Vec<bool>) {
    let window = match arch {
        Arch::Gemma3 => k.u32("attention.sliding_window").filter(|&n| n > 0),
        _ => None,
    };
    if window.is_none() {
        return (None, vec![false; n_layer]);
    }
    let key = k.name("attention.sliding_window_pattern");
    let layers = if let Some(Value::Array(_)) = k.meta.get(&key) {
        let read = k.meta.get_bools(&key).map(|v| v.map(<[bool]>::to_vec));
        let per_layer = k.note(read).unwrap_or_default();
        if per_layer.len() != n_layer {
            k.problems.push(format!(
                "{key} has {} entries for {n_layer} layers",
                per_layer.len()
            ));
        }
        per_layer
    } else {
        let period = k.u32("attention.sliding_window_pattern").unwrap_or(6) as usize;
        (0..n_layer)
            .map(|l| period == 0 || l % period < period - 1)
            .collect()
    };
    (window.map(|n| n as usize), layers)
}
