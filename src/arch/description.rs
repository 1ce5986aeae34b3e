//! The description of an architecture.

use super::checkpoint::Checkpoint;
use super::factors;
use super::functions::{Activation, Pairing, Pooling};
use super::parts::{self, Group};
use super::rules::{
    Attention, DraftState, EmbeddingScale, ExpertRule, FeedForward, GateClamp, HeadRule, LayerInputs, LogitCap,
    LogitScale, Mixing, NormKind, Output, Residual, ResidualScale, RopeRule, Streams, WindowRule,
};
use super::tensor::Tensor;

/// An architecture: everything that its models have in common.
#[derive(Debug)]
pub struct Arch {
    /// The name in `general.architecture`.
    pub name: &'static str,
    /// Known models, for documents and messages.
    pub models: &'static str,
    /// Tensors outside the blocks.
    pub ends: &'static [Group],
    /// Tensors of a block without experts.
    pub block: &'static [Group],
    /// Tensors of a block with experts; the architecture has none where this is empty.
    pub expert_block: &'static [Group],
    /// Tensors that a head for multi-token prediction has beside those of a block; the heads of a model stay unused where
    /// this is empty.
    pub mtp: Group,
    /// How many of them a model may have, and what they attend to.
    pub heads: HeadRule,
    /// The states that drafters of other files read. Heads read [`DraftState::Normed`] unless it is
    /// [`DraftState::Stream`].
    pub draft_state: DraftState,
    /// True if the key `nextn_predict_layers` counts nothing where the file has no projection of such a block.
    pub further_if_there: bool,
    /// The encoder beside the blocks, which are a decoder's then: between their attention and their feed-forward network
    /// they attend to the encoder's states.
    pub encoder: Option<&'static Arch>,
    /// True if the file has adapters for the matrices of its blocks, one of which a token switches on for itself and those
    /// behind it.
    pub switched: bool,
    /// The formula of the norms.
    pub norm: NormKind,
    /// Epsilon of the norms after attention and feed-forward network, where it is not that of the others.
    pub post_norm_eps: Option<f32>,
    /// Factor on the token embeddings.
    pub embedding_scale: EmbeddingScale,
    /// True if two stacks of blocks run in cycles, with counts from keys of the file; blocks are numbered run by run.
    pub cycles: bool,
    /// True if the residual stream is saved and started afresh every `attn_res.block_size` blocks. Both sublayers of a
    /// block, and the output, then read a mean of all saved streams and the current one, weighted by scores.
    pub keeps_residuals: bool,
    /// Parallel residual streams.
    pub streams: Streams,
    /// A vector of every token for each block.
    pub layer_inputs: LayerInputs,
    /// True if one block may add embeddings of n-grams to the residual streams, as keys of the file say.
    pub ngrams: bool,
    /// The operations that mix the positions of a sequence, block by block.
    pub mixing: Mixing,
    /// How heads attend.
    pub attention: Attention,
    /// Position embedding.
    pub rope: RopeRule,
    /// Sliding windows; `None` where every layer sees everything.
    pub window: Option<WindowRule>,
    /// The feed-forward network.
    pub feed_forward: FeedForward,
    /// How experts are chosen and weighed.
    pub experts: ExpertRule,
    /// How the sublayers of a block are added to its input.
    pub residual: Residual,
    /// Factor on what they add.
    pub residual_scale: ResidualScale,
    /// Scaling and bounds of the logits.
    pub output: Output,
    /// Projections whose factors (`.scale`) the graph applies; those of others are loaded and ignored by the reference.
    pub scaled: &'static [&'static str],
    /// Tensors for other uses of a model, which the text model ignores: names, for those of a block without `blk.N.`.
    pub ignored: &'static [&'static str],
    /// True if matrices of blocks and the output matrix may be widely linear ([`trine_formats::widely`]), as keys of
    /// the file say.
    pub widely_linear: bool,
    /// Keys with the one value that trine can run; absence is as good.
    pub fixed_keys: &'static [(&'static str, u32)],
    /// True if models make vectors of texts and no logits: they end with the hidden states.
    pub vectors: bool,
    /// The pooling before the head of a ranking model, where the file does not say it with
    /// `classifier.pooling_type`; else it is the state of the first token, and of the last one where tokens do not
    /// attend to later ones.
    pub rank_pooling: Option<Pooling>,
    /// The function between the two layers of that head.
    pub rank_activation: Activation,
    /// True if ranking models answer yes or no: the outputs of their heads become their soft-max, and models without a
    /// head have the rows of their output matrix for these two tokens as one.
    pub yes_or_no: bool,
    /// True if control vectors are added after every block. For some models the reference adds none, or adds them
    /// within a block.
    pub steered: bool,
    /// How Hugging Face checkpoints of it are read, one for every family of classes; none where the converter cannot
    /// yet.
    pub checkpoints: &'static [&'static Checkpoint],
    /// Why the converter reads none, in a few words for documents; empty where it does.
    pub unconverted: &'static str,
}

impl Arch {
    /// The common description of decoders like LLaMA; other descriptions state their differences.
    pub(super) const DENSE: Arch = Arch {
        name: "",
        models: "",
        ends: &[parts::ENDS, parts::OUTPUT_OR_TIED],
        block: &[],
        expert_block: &[],
        mtp: &[],
        heads: HeadRule::One,
        draft_state: DraftState::None,
        further_if_there: false,
        encoder: None,
        switched: false,
        norm: NormKind::Rms,
        post_norm_eps: None,
        embedding_scale: EmbeddingScale::One,
        widely_linear: false,
        cycles: false,
        keeps_residuals: false,
        streams: Streams::One,
        layer_inputs: LayerInputs::None,
        ngrams: false,
        mixing: Mixing::Attention,
        attention: Attention::USUAL,
        rope: RopeRule::HALVES,
        window: None,
        feed_forward: FeedForward {
            activation: Activation::Silu,
            clamp: GateClamp::None,
            ungated: None,
            named: false,
            by_layer: false,
            cutoff: None,
        },
        experts: ExpertRule::USUAL,
        residual: Residual::Sequential,
        residual_scale: ResidualScale::One,
        output: Output {
            input_width: None,
            scale: LogitScale::One,
            softcap: LogitCap::None,
            silent: None,
            factored: true,
        },
        scaled: factors::ATTENTION_SCALES,
        ignored: &[],
        fixed_keys: &[],
        vectors: false,
        rank_pooling: None,
        rank_activation: Activation::Tanh,
        yes_or_no: false,
        steered: true,
        checkpoints: &[],
        unconverted: "",
    };

    /// True if every block attends to its own keys and values, to these alone, and runs once, and the model makes logits of
    /// a vocabulary of any size; synthetic models have this form.
    pub fn is_plain(&self) -> bool {
        let attends = !self.attention.latent && !self.attention.compressed;
        let usual = attends && self.layer_inputs == LayerInputs::None && self.encoder.is_none();
        let any_vocabulary = self.output.silent.is_none() && !self.switched;
        let mixes = matches!(self.mixing, Mixing::Attention | Mixing::ByHeadsOrNone(_));
        mixes && usual && any_vocabulary && !self.cycles && !self.vectors
    }

    /// True if the graph multiplies the output of a projection, such as `attn_q`, by its per-tensor factors (`.scale`).
    pub fn applies_factors(&self, projection: &str) -> bool {
        self.scaled.contains(&projection)
    }

    /// True if a model interleaves the two halves of every head's rows of `q` and `k`, which checkpoints store one
    /// after the other: RoPE that turns adjacent elements then finds its pairs side by side.
    pub fn interleaves_heads(&self) -> bool {
        self.rope.pairing == Pairing::Adjacent
    }

    /// Tensors outside the blocks.
    pub fn end_tensors(&self) -> impl Iterator<Item = &'static Tensor> + use<> {
        self.ends.iter().copied().flatten()
    }

    /// Tensors of a block, with experts or without.
    pub fn block_tensors(&self, experts: bool) -> impl Iterator<Item = &'static Tensor> + use<> {
        let groups = if experts { self.expert_block } else { self.block };
        groups.iter().copied().flatten()
    }

    /// Tensors of a block beside [`Arch::block_tensors`], which a `head` for multi-token prediction has.
    pub fn mtp_tensors(&self, head: bool) -> impl Iterator<Item = &'static Tensor> + use<> {
        let tensors: Group = if head { self.mtp } else { &[] };
        tensors.iter()
    }

    /// The tensor that has the place of `name`, which is its own name in GGUF unless it says otherwise: outside the
    /// blocks, or `in_block`, of one with experts or without.
    pub fn tensor(&self, in_block: bool, experts: bool, name: &str) -> Option<&'static Tensor> {
        if in_block {
            self.block_tensors(experts).find(|t| t.place() == name)
        } else {
            self.end_tensors().find(|t| t.place() == name)
        }
    }
}
