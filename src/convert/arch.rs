//! The architectures: what a checkpoint calls its tensors, what GGUF calls them, and their shapes.

use super::error::ConvertError;
use super::hparams::HParams;

/// An extent, by what it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dim {
    Vocab,
    Embd,
    /// Width of the feed-forward network.
    Ff,
    /// All query heads.
    Q,
    /// All key or value heads.
    Kv,
    /// One head.
    Head,
}

/// What a tensor is, as far as its type and values go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The token embedding.
    Embedding,
    /// The output matrix.
    Output,
    /// A matrix of attention or feed-forward network whose inputs are whole (q, k, v, gate, up).
    ByRows,
    /// One whose inputs are split over ranks where a model is trained in parallel (o, down).
    ByColumns,
    /// Gains of a norm.
    Norm,
    Bias,
}

/// One tensor: per model, or per block.
pub(super) struct Template {
    /// Name in the checkpoint, for those of a block without `model.layers.N.`.
    pub hf: &'static str,
    /// Name in GGUF, for those of a block without `blk.N.`.
    pub gguf: &'static str,
    /// Rows and columns, or the length.
    pub shape: &'static [Dim],
    pub kind: Kind,
    pub required: bool,
    /// Rows of each head are paired for RoPE: halves in the checkpoint, neighbours in GGUF for `llama`.
    pub rope: bool,
}

const fn tensor(
    hf: &'static str,
    gguf: &'static str,
    shape: &'static [Dim],
    kind: Kind,
) -> Template {
    Template {
        hf,
        gguf,
        shape,
        kind,
        required: true,
        rope: false,
    }
}

const fn rope(t: Template) -> Template {
    Template { rope: true, ..t }
}

const fn optional(t: Template) -> Template {
    Template {
        required: false,
        ..t
    }
}

use Dim::{Embd, Ff, Head, Kv, Q, Vocab};
use Kind::{Bias, ByColumns, ByRows, Embedding, Norm, Output};

/// Tensors that there is one of.
pub(super) const GLOBAL: &[Template] = &[
    tensor(
        "model.embed_tokens.weight",
        "token_embd.weight",
        &[Vocab, Embd],
        Embedding,
    ),
    tensor("model.norm.weight", "output_norm.weight", &[Embd], Norm),
    optional(tensor(
        "lm_head.weight",
        "output.weight",
        &[Vocab, Embd],
        Output,
    )),
];

const Q_PROJ: Template = rope(tensor(
    "self_attn.q_proj.weight",
    "attn_q.weight",
    &[Q, Embd],
    ByRows,
));
const K_PROJ: Template = rope(tensor(
    "self_attn.k_proj.weight",
    "attn_k.weight",
    &[Kv, Embd],
    ByRows,
));
const V_PROJ: Template = tensor(
    "self_attn.v_proj.weight",
    "attn_v.weight",
    &[Kv, Embd],
    ByRows,
);
const O_PROJ: Template = tensor(
    "self_attn.o_proj.weight",
    "attn_output.weight",
    &[Embd, Q],
    ByColumns,
);
const GATE: Template = tensor(
    "mlp.gate_proj.weight",
    "ffn_gate.weight",
    &[Ff, Embd],
    ByRows,
);
const UP: Template = tensor("mlp.up_proj.weight", "ffn_up.weight", &[Ff, Embd], ByRows);
const DOWN: Template = tensor(
    "mlp.down_proj.weight",
    "ffn_down.weight",
    &[Embd, Ff],
    ByColumns,
);
const Q_BIAS: Template = rope(tensor("self_attn.q_proj.bias", "attn_q.bias", &[Q], Bias));
const K_BIAS: Template = rope(tensor("self_attn.k_proj.bias", "attn_k.bias", &[Kv], Bias));
const V_BIAS: Template = tensor("self_attn.v_proj.bias", "attn_v.bias", &[Kv], Bias);
const O_BIAS: Template = tensor("self_attn.o_proj.bias", "attn_output.bias", &[Embd], Bias);
const INPUT_NORM: Template = tensor("input_layernorm.weight", "attn_norm.weight", &[Embd], Norm);
const FFN_NORM: Template = tensor(
    "post_attention_layernorm.weight",
    "ffn_norm.weight",
    &[Embd],
    Norm,
);
/// Where `post_attention_layernorm` really is what its name says: Gemma and OLMo 2.
const POST_ATTENTION: Template = tensor(
    "post_attention_layernorm.weight",
    "post_attention_norm.weight",
    &[Embd],
    Norm,
);
const PRE_FF: Template = tensor(
    "pre_feedforward_layernorm.weight",
    "ffn_norm.weight",
    &[Embd],
    Norm,
);
const POST_FF: Template = tensor(
    "post_feedforward_layernorm.weight",
    "post_ffw_norm.weight",
    &[Embd],
    Norm,
);
const Q_NORM: Template = tensor(
    "self_attn.q_norm.weight",
    "attn_q_norm.weight",
    &[Head],
    Norm,
);
const K_NORM: Template = tensor(
    "self_attn.k_norm.weight",
    "attn_k_norm.weight",
    &[Head],
    Norm,
);

const LLAMA: &[Template] = &[
    INPUT_NORM,
    Q_PROJ,
    K_PROJ,
    V_PROJ,
    O_PROJ,
    FFN_NORM,
    GATE,
    UP,
    DOWN,
    optional(Q_BIAS),
    optional(K_BIAS),
    optional(V_BIAS),
    optional(O_BIAS),
    optional(tensor("mlp.gate_proj.bias", "ffn_gate.bias", &[Ff], Bias)),
    optional(tensor("mlp.up_proj.bias", "ffn_up.bias", &[Ff], Bias)),
    optional(tensor("mlp.down_proj.bias", "ffn_down.bias", &[Embd], Bias)),
];
const QWEN2: &[Template] = &[
    INPUT_NORM, Q_PROJ, K_PROJ, V_PROJ, O_PROJ, FFN_NORM, GATE, UP, DOWN, Q_BIAS, K_BIAS, V_BIAS,
];
const QWEN3: &[Template] = &[
    INPUT_NORM,
    Q_PROJ,
    K_PROJ,
    V_PROJ,
    O_PROJ,
    Q_NORM,
    K_NORM,
    FFN_NORM,
    GATE,
    UP,
    DOWN,
    optional(Q_BIAS),
    optional(K_BIAS),
    optional(V_BIAS),
    optional(O_BIAS),
];
const GEMMA3: &[Template] = &[
    INPUT_NORM,
    Q_PROJ,
    K_PROJ,
    V_PROJ,
    O_PROJ,
    Q_NORM,
    K_NORM,
    POST_ATTENTION,
    PRE_FF,
    GATE,
    UP,
    DOWN,
    POST_FF,
];
const OLMO2: &[Template] = &[
    Q_PROJ,
    K_PROJ,
    V_PROJ,
    O_PROJ,
    tensor("self_attn.q_norm.weight", "attn_q_norm.weight", &[Q], Norm),
    tensor("self_attn.k_norm.weight", "attn_k_norm.weight", &[Kv], Norm),
    POST_ATTENTION,
    GATE,
    UP,
    DOWN,
    POST_FF,
];
const BITNET: &[Template] = &[
    INPUT_NORM,
    Q_PROJ,
    K_PROJ,
    V_PROJ,
    O_PROJ,
    FFN_NORM,
    GATE,
    UP,
    DOWN,
    tensor(
        "self_attn.attn_sub_norm.weight",
        "attn_sub_norm.weight",
        &[Q],
        Norm,
    ),
    tensor(
        "mlp.ffn_sub_norm.weight",
        "ffn_sub_norm.weight",
        &[Ff],
        Norm,
    ),
];

/// Other names for the same tensors of a block: those of the first BitNet checkpoints (1bitLLM).
const ALIASES: &[(&str, &str)] = &[
    (
        "self_attn.inner_attn_ln.weight",
        "self_attn.attn_sub_norm.weight",
    ),
    ("mlp.ffn_layernorm.weight", "mlp.ffn_sub_norm.weight"),
];

/// A family of model classes that share tensors and metadata.
pub(super) struct Family {
    /// `general.architecture`.
    pub name: &'static str,
    /// Classes in `config.json`.
    pub classes: &'static [&'static str],
    pub block: &'static [Template],
    /// RoPE turns neighbouring rows: q and k are reordered.
    pub adjacent_pairs: bool,
    /// Gains are stored less 1.
    pub norms_plus_one: bool,
    /// The output matrix is the embedding unless `tie_word_embeddings` says otherwise.
    pub tied: bool,
    /// Activation that the graph of this architecture computes.
    pub activation: &'static str,
    pub defaults: Defaults,
}

/// What the model class assumes where `config.json` is silent.
pub(super) struct Defaults {
    pub context: u32,
    pub rope_theta: f32,
    pub rms_eps: f32,
    pub head_dim: HeadDim,
}

/// What `head_dim` is where `config.json` does not say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadDim {
    /// hidden_size / num_attention_heads, and the file states it.
    Quotient,
    /// The same, and the file does not state it.
    Implied,
    /// A number of the class.
    Fixed(u32),
}

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "llama",
        classes: &["LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM"],
        block: LLAMA,
        adjacent_pairs: true,
        norms_plus_one: false,
        tied: false,
        activation: "silu",
        defaults: Defaults {
            context: 2048,
            rope_theta: 10000.0,
            rms_eps: 1e-6,
            head_dim: HeadDim::Quotient,
        },
    },
    Family {
        name: "bitnet",
        classes: &["BitNetForCausalLM", "BitnetForCausalLM"],
        block: BITNET,
        adjacent_pairs: false,
        norms_plus_one: false,
        tied: true,
        activation: "silu",
        defaults: Defaults {
            context: 2048,
            rope_theta: 10000.0,
            rms_eps: 1e-5,
            head_dim: HeadDim::Quotient,
        },
    },
    Family {
        name: "qwen2",
        classes: &["Qwen2ForCausalLM"],
        block: QWEN2,
        adjacent_pairs: false,
        norms_plus_one: false,
        tied: false,
        activation: "silu",
        defaults: Defaults {
            context: 32768,
            rope_theta: 10000.0,
            rms_eps: 1e-6,
            head_dim: HeadDim::Implied,
        },
    },
    Family {
        name: "qwen3",
        classes: &["Qwen3ForCausalLM"],
        block: QWEN3,
        adjacent_pairs: false,
        norms_plus_one: false,
        tied: false,
        activation: "silu",
        defaults: Defaults {
            context: 32768,
            rope_theta: 10000.0,
            rms_eps: 1e-6,
            head_dim: HeadDim::Fixed(128),
        },
    },
    Family {
        name: "gemma3",
        classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
        block: GEMMA3,
        adjacent_pairs: false,
        norms_plus_one: true,
        tied: true,
        activation: "gelu_pytorch_tanh",
        defaults: Defaults {
            context: 131_072,
            rope_theta: 1_000_000.0,
            rms_eps: 1e-6,
            head_dim: HeadDim::Fixed(256),
        },
    },
    Family {
        name: "olmo2",
        classes: &["Olmo2ForCausalLM"],
        block: OLMO2,
        adjacent_pairs: false,
        norms_plus_one: false,
        tied: false,
        activation: "silu",
        defaults: Defaults {
            context: 2048,
            rope_theta: 10000.0,
            rms_eps: 1e-5,
            head_dim: HeadDim::Implied,
        },
    },
];

/// A family and the sizes of one model of it.
pub(super) struct Arch {
    pub family: &'static Family,
    /// `general.architecture`; not the family's for BitNet with squared ReLU.
    pub name: &'static str,
    pub layers: u32,
    pub vocab: u32,
    pub embd: u32,
    pub ff: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub tied: bool,
}

/// Where a tensor's name leads.
pub(super) enum Place {
    Global(&'static Template),
    Block(u32, &'static Template),
    /// Is no weight of the text model, or is computed anew.
    Ignored,
    Unknown,
}

impl Arch {
    pub fn new(h: &HParams) -> Result<Arch, ConvertError> {
        let class = h.class()?;
        let Some(family) = FAMILIES.iter().find(|f| f.classes.contains(&class)) else {
            let known: Vec<&str> = FAMILIES.iter().flat_map(|f| f.classes).copied().collect();
            return Err(ConvertError::UnknownArchitecture {
                found: class.to_owned(),
                known: known.join(", "),
            });
        };
        let embd = h.need("hidden_size")?;
        let gemma = family.name == "gemma3";
        let or = |key, default: Option<u32>| match (h.u32(key)?, default) {
            (Some(n), _) if n > 0 => Ok(n),
            (None, Some(n)) => Ok(n),
            _ => h.need(key),
        };
        let heads = or("num_attention_heads", gemma.then_some(8))?;
        let head_dim = match (h.u32("head_dim")?, family.defaults.head_dim) {
            (Some(n), _) if n > 0 => n,
            (_, HeadDim::Fixed(n)) => n,
            _ if !embd.is_multiple_of(heads) => {
                return Err(ConvertError::Config(format!(
                    "'hidden_size' {embd} is not a multiple of 'num_attention_heads' {heads}, and there is no 'head_dim'"
                )));
            }
            _ => embd / heads,
        };
        if !head_dim.is_multiple_of(2) {
            return Err(ConvertError::Config(format!(
                "heads of {head_dim} elements cannot be turned in pairs by RoPE"
            )));
        }
        let arch = Arch {
            family,
            name: graph_name(family, h)?,
            layers: h.need("num_hidden_layers")?,
            vocab: or("vocab_size", gemma.then_some(262_208))?,
            embd,
            ff: h.need("intermediate_size")?,
            heads,
            kv_heads: or("num_key_value_heads", Some(if gemma { 4 } else { heads }))?,
            head_dim,
            tied: h.bool("tie_word_embeddings")?.unwrap_or(family.tied),
        };
        if !arch.heads.is_multiple_of(arch.kv_heads) {
            return Err(ConvertError::Config(format!(
                "{} query heads cannot share {} key-value heads",
                arch.heads, arch.kv_heads
            )));
        }
        Ok(arch)
    }

    /// The extent of a dimension.
    pub fn extent(&self, dim: Dim) -> u64 {
        let n = |a: u32, b: u32| u64::from(a) * u64::from(b);
        match dim {
            Vocab => self.vocab.into(),
            Embd => self.embd.into(),
            Ff => self.ff.into(),
            Q => n(self.heads, self.head_dim),
            Kv => n(self.kv_heads, self.head_dim),
            Head => self.head_dim.into(),
        }
    }

    /// The shape of a tensor in the checkpoint, outermost extent first.
    pub fn shape(&self, t: &Template) -> Vec<u64> {
        t.shape.iter().map(|&d| self.extent(d)).collect()
    }

    /// What the tensor of this name is.
    pub fn place(&self, name: &str) -> Place {
        const IGNORED: &[&str] = &[
            ".rotary_emb.inv_freq",
            ".attention.masked_bias",
            ".attention.bias",
        ];
        const OTHER_MODALITIES: &[&str] =
            &["vision_", "vision.", "visual.", "audio_", "projector."];
        if IGNORED.iter().any(|s| name.ends_with(s)) {
            return Place::Ignored;
        }
        let name = name.replace("language_model.", "");
        if OTHER_MODALITIES.iter().any(|s| name.contains(s)) {
            return Place::Ignored;
        }
        let name = if name.starts_with("model.") || name.starts_with("lm_head.") {
            name
        } else {
            format!("model.{name}")
        };
        if let Some(t) = GLOBAL.iter().find(|t| t.hf == name) {
            return Place::Global(t);
        }
        let block = name
            .strip_prefix("model.layers.")
            .and_then(|rest| rest.split_once('.'))
            .and_then(|(n, rest)| Some((n.parse().ok()?, rest)));
        let Some((n, rest)) = block else {
            return Place::Unknown;
        };
        let rest = ALIASES
            .iter()
            .find(|(a, _)| *a == rest)
            .map_or(rest, |(_, usual)| usual);
        match self.family.block.iter().find(|t| t.hf == rest) {
            Some(t) if n < self.layers => Place::Block(n, t),
            _ => Place::Unknown,
        }
    }
}

/// The architecture by its activation: a graph computes one, and a file that names the wrong graph
/// would run and give nonsense.
fn graph_name(family: &Family, h: &HParams) -> Result<&'static str, ConvertError> {
    let stated = h.str("hidden_activation").or(h.str("hidden_act"));
    match (family.name, stated) {
        (name, None) => Ok(name),
        (name, Some(act)) if act == family.activation => Ok(name),
        ("llama", Some("swish")) => Ok("llama"),
        // llama.cpp's "bitnet" has SiLU; bitnet.cpp runs the 2B models under this name
        ("bitnet", Some("relu2")) => Ok("bitnet-b1.58"),
        (name, Some(act)) => Err(ConvertError::Config(format!(
            "the activation is '{act}', and models of architecture '{name}' compute '{}'",
            family.activation
        ))),
    }
}
