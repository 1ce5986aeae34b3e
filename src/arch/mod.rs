//! What models are: one description per architecture, written once as data.
//!
//! A description says which tensors a block has, and with them which operations: where norms stand, which biases there
//! are, whether the feed-forward network is a mixture of experts. What tensors cannot say (how RoPE pairs elements, the
//! gate's function, which layers have a window, factors) are fields. The engine, the converter, the gradients behind
//! `rimatrix --fisher` and made-up models all read it; none of them knows an architecture by name.
//!
//! **A new architecture of the dense kind is one file here and its line in [`ARCHITECTURES`].** Everything that a
//! description can ask for is defined in this file with the reference's order of operations; an architecture that needs
//! an operation nobody has yet adds it to the interpreter (`model/block.rs`) under a new field.

mod bitnet;
mod checkpoint;
mod fairy2i;
mod gemma3;
mod granite;
mod leftover;
mod llama;
mod olmo2;
mod parts;
mod qwen;
pub mod tensor;

use crate::ops::activation::Activation;
use crate::ops::experts::Gating;
use crate::ops::rope::Pairing;

pub(crate) use checkpoint::source_row;
pub use checkpoint::{Checkpoint, HeadDim, RopeScaling, SpacePrefix};
pub use parts::Group;
pub use tensor::{Extent, Role, Sizes, Tensor};

/// All architectures, in the order in which messages name them.
pub static ARCHITECTURES: &[&Arch] = &[
    &llama::LLAMA,
    &gemma3::GEMMA3,
    &granite::GRANITE,
    &qwen::QWEN2,
    &qwen::QWEN3,
    &qwen::QWEN3MOE,
    &olmo2::OLMO2,
    &bitnet::BITNET,
    &bitnet::BITNET_25,
    &bitnet::BITNET_B158,
    &fairy2i::FAIRY2I,
];

/// An architecture: everything that its models have in common.
#[derive(Debug)]
pub struct Arch {
    /// The name in `general.architecture`.
    pub name: &'static str,
    /// Known models, for documents and messages.
    pub models: &'static str,
    /// Tensors outside the blocks.
    pub ends: &'static [Group],
    /// Tensors of every block.
    pub block: &'static [Group],
    /// Tensors of a block whose model has experts; the architecture has none where this is empty.
    pub expert_block: &'static [Group],
    /// Position embedding.
    pub rope: RopeRule,
    /// Sliding windows; `None` where every layer sees everything.
    pub window: Option<WindowRule>,
    /// Factor on the attention scores.
    pub score_scale: ScoreScale,
    /// The gate's function: `down(f(gate(x)) * up(x))`.
    pub activation: Activation,
    /// Whether the graph applies the per-tensor factors (`.scale`) of gate, up and down projection; where it does not,
    /// the reference loads and ignores them.
    pub ffn_scales: bool,
    /// How experts are chosen and weighed.
    pub router: Router,
    /// Whether the key `expert_feed_forward_length` gives the width of an expert, which is otherwise that of the
    /// feed-forward network.
    pub expert_width_key: bool,
    /// Tensors for other uses of a model, which the text model ignores.
    pub ignored: &'static [&'static str],
    /// Factor on the token embeddings.
    pub embedding_scale: EmbeddingScale,
    /// Whether what attention and feed-forward network add to the residual stream is multiplied by the key
    /// `residual_scale`.
    pub residual_scale: bool,
    /// Whether logits are divided by the key `logit_scale`.
    pub logit_scale: bool,
    /// Whether the key `final_logit_softcapping` bounds the logits: `cap * tanh(logits / cap)`.
    pub logit_softcap: bool,
    /// Whether matrices of blocks and the output matrix may be widely linear ([`trine_formats::widely`]), as keys of the file
    /// say.
    pub widely_linear: bool,
    /// How Hugging Face checkpoints of it are read; `None` where the converter cannot yet.
    pub checkpoint: Option<&'static Checkpoint>,
}

/// How positions turn queries and keys.
#[derive(Clone, Copy, Debug)]
pub struct RopeRule {
    /// Which elements are turned together.
    pub pairing: Pairing,
    /// Whether only some elements of a head may be turned (`rope.dimension_count`).
    pub partial: bool,
    /// Whether positions may be scaled by YaRN.
    pub yarn: bool,
    /// Whether the key `rope.scaling.finetuned` turns RoPE off where it is false. trine has no models without positions
    /// and refuses such a file; the key means nothing elsewhere.
    pub switch: bool,
}

/// Which layers see only the last positions.
#[derive(Clone, Copy, Debug)]
pub struct WindowRule {
    /// Every so many layers one sees everything, where the key `attention.sliding_window_pattern` does not say otherwise.
    pub period: u32,
    /// RoPE in the layers with a window.
    pub rope: WindowRope,
}

/// RoPE in layers with a window. Positions are not scaled there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowRope {
    /// The base of the other layers.
    SameBase,
    /// A base of their own, `rope.freq_base_swa`, or 10000.
    OwnBase,
}

/// Factor on the attention scores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScoreScale {
    /// 1 / sqrt(head size), on the scores.
    HeadSize,
    /// The same on the queries after RoPE instead; models of 62 layers take the embedding width per head for the head
    /// size (llama.cpp knows Gemma's 27B model by that).
    OnQueries,
    /// The key `attention.scale`, or 1 / sqrt(head size) where it is 0 or absent.
    FromKey,
}

/// Factor on the token embeddings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EmbeddingScale {
    /// None.
    One,
    /// The square root of the embedding width.
    RootOfWidth,
    /// The key `embedding_scale`; none where it is 0 or absent.
    FromKey,
}

/// How experts are chosen and weighed.
#[derive(Clone, Copy, Debug)]
pub struct Router {
    /// From the router's scores to probabilities.
    pub gating: Gating,
    /// Whether the chosen experts' probabilities are divided by their sum.
    pub normalize: bool,
}

impl Arch {
    /// What most decoders of the LLaMA kind have; a description states what differs.
    const DENSE: Arch = Arch {
        name: "",
        models: "",
        ends: &[parts::ENDS, parts::OUTPUT_OR_TIED],
        block: &[],
        expert_block: &[],
        rope: RopeRule {
            pairing: Pairing::Halves,
            partial: false,
            yarn: true,
            switch: false,
        },
        window: None,
        score_scale: ScoreScale::HeadSize,
        activation: Activation::Silu,
        ffn_scales: false,
        router: Router {
            gating: Gating::SoftMax,
            normalize: true,
        },
        expert_width_key: false,
        ignored: &[],
        embedding_scale: EmbeddingScale::One,
        residual_scale: false,
        logit_scale: false,
        logit_softcap: false,
        widely_linear: false,
        checkpoint: None,
    };

    /// The architecture that `general.architecture` names.
    pub fn find(name: &str) -> Option<&'static Arch> {
        ARCHITECTURES.iter().find(|a| a.name == name).copied()
    }

    /// All names, for messages.
    pub fn names() -> String {
        let names: Vec<&str> = ARCHITECTURES.iter().map(|a| a.name).collect();
        names.join(", ")
    }

    /// Whether the graph multiplies what a projection, such as `attn_q`, gives by its per-tensor factors (`.scale`).
    pub fn applies_factors(&self, projection: &str) -> bool {
        self.ffn_scales || !projection.starts_with("ffn_")
    }

    /// Whether a model has the halves of every head's rows of `q` and `k` interleaved, where checkpoints have them one
    /// after the other: RoPE that turns adjacent elements finds its pairs side by side then.
    pub fn interleaves_heads(&self) -> bool {
        self.rope.pairing == Pairing::Adjacent
    }

    /// Tensors outside the blocks.
    pub fn end_tensors(&self) -> impl Iterator<Item = &'static Tensor> + use<> {
        self.ends.iter().copied().flatten()
    }

    /// Tensors of every block, of a model with experts or without.
    pub fn block_tensors(&self, experts: bool) -> impl Iterator<Item = &'static Tensor> + use<> {
        let groups = if experts {
            self.expert_block
        } else {
            self.block
        };
        groups.iter().copied().flatten()
    }

    /// The tensor that GGUF calls `name`: of every block, where `in_block`, of a model with experts or without, or
    /// outside the blocks.
    pub fn tensor(&self, in_block: bool, experts: bool, name: &str) -> Option<&'static Tensor> {
        if in_block {
            self.block_tensors(experts).find(|t| t.gguf == name)
        } else {
            self.end_tensors().find(|t| t.gguf == name)
        }
    }
}

#[cfg(test)]
mod tests;
