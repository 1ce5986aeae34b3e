//! How experts are chosen and weighed, and what stands beside them.

use crate::arch::{Claim, Gating};

/// How experts are chosen and weighed, and what stands beside them.
#[derive(Clone, Copy, Debug)]
pub struct ExpertRule {
    /// From the router's scores to probabilities.
    pub gating: GatingRule,
    /// Rule for dividing the chosen experts' probabilities by their sum.
    pub normalize: Normalize,
    /// True if the key `expert_weights_scale` multiplies them.
    pub scale: bool,
    /// The values by which experts are ranked.
    pub claim: Claim,
    /// True if the weights multiply the input of an expert instead of its output.
    pub weigh_inputs: bool,
    /// True if the router reads the block's input instead of the expert's.
    pub early_router: bool,
    /// The width of an expert.
    pub width: ExpertWidth,
    /// The width of the expert that all tokens go to.
    pub shared: SharedWidth,
    /// True if the gate on that expert is the sigmoid itself, not the quotient of SiLU and its argument.
    pub plain_gate: bool,
    /// Which layers have experts.
    pub layers: ExpertLayers,
    /// Factor on the sum of experts and what stands beside them, where something does.
    pub beside: Option<f32>,
    /// True if each group of `experts_per_group` experts shares a small one, whose input is the output of the mixture
    /// and whose output is multiplied by the key `expert_group_scale`.
    pub chunks: bool,
    /// The key for the width of the experts' vectors where these are narrower than the residual stream, which they are
    /// where it is not 0: one matrix projects to this width, another projects the experts' output back.
    pub latent: Option<&'static str>,
    /// True if a table has the experts of every token in the first layers, as many as the key `hash_layer_count` says.
    pub listed: bool,
    /// True if experts and the dense network beside them read norms of their own, and norms of what each of them gives
    /// are added up; the router reads a norm without gains, divided by the root of its width, times
    /// `ffn_gate_inp.scale`. Gemma 4.
    pub apart: bool,
    /// True if a file may say for every layer how wide its experts are and how many a token goes to.
    pub by_layer: bool,
    /// True if the graph leaves the experts out: the activation alone is the feed-forward network then.
    pub unused: bool,
}

/// From the router's scores to probabilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GatingRule {
    /// Always so.
    Fixed(Gating),
    /// As the key `expert_gating_func` says, and so where it is 0 or absent; without a default it has to say.
    Key(Option<Gating>),
    /// The same, soft-max where the key is 0 or absent, but sigmoid in models with a vocabulary of this size.
    KeyOrVocabulary(u32),
}

/// Rule for dividing the chosen experts' probabilities by their sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Normalize {
    /// Yes.
    Always,
    /// No.
    Never,
    /// Where the key `expert_weights_norm` is true.
    Key,
}

/// Which layers of a model with experts have them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpertLayers {
    /// None: what the file says of experts means nothing.
    None,
    /// All.
    All,
    /// All but the first, as many as `leading_dense_block_count` says.
    AfterLeading,
    /// Every n-th layer, n being the key `interleave_moe_layer_step`.
    Every,
    /// The same, but none of the first.
    EveryAfterLeading,
    /// Every n-th from the second on, n being the key `moe_every_n_layers`.
    SecondOfEvery,
    /// Those with a router in the file.
    Routed,
}

/// The width of one expert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpertWidth {
    /// That of the feed-forward network.
    Full,
    /// The key `expert_feed_forward_length`.
    Key,
    /// The key, or that of the feed-forward network where it is 0 or absent.
    KeyOrFull,
    /// The key, or that of the feed-forward network divided by the experts that a token goes to.
    KeyOrShare,
}

/// The width of the expert that all tokens go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedWidth {
    /// There is none.
    None,
    /// The key `expert_shared_feed_forward_length`; none where it is 0 or absent.
    Key,
    /// The key, or that of the feed-forward network.
    KeyOrFull,
    /// The key, or that of an expert.
    KeyOrExpert,
    /// That of an expert.
    Expert,
    /// That of `expert_shared_count` experts; none where that is 0.
    Count,
    /// The same, of at least one.
    CountOrOne,
    /// The key, or that of `expert_shared_count` experts; none where that is 0.
    KeyOrCount,
    /// The key, or that of `expert_shared_count` experts, of 1 where that is absent.
    KeyOrCountOrOne,
    /// The key or that of an expert, times `expert_shared_count`.
    Times,
}

impl ExpertRule {
    /// Mixtral's: soft-max, weights that add up to 1, nothing beside the experts.
    pub const USUAL: ExpertRule = ExpertRule {
        gating: GatingRule::Fixed(Gating::SoftMax),
        normalize: Normalize::Always,
        scale: false,
        claim: Claim::Probabilities,
        weigh_inputs: false,
        early_router: false,
        width: ExpertWidth::Full,
        shared: SharedWidth::None,
        plain_gate: false,
        layers: ExpertLayers::All,
        beside: None,
        chunks: false,
        latent: None,
        listed: false,
        apart: false,
        by_layer: false,
        unused: false,
    };

    /// Where the file says how experts are weighed, sigmoid where it does not, with dense layers first.
    pub const KEYED: ExpertRule = ExpertRule {
        gating: GatingRule::Key(Some(Gating::Sigmoid)),
        normalize: Normalize::Key,
        scale: true,
        width: ExpertWidth::Key,
        layers: ExpertLayers::AfterLeading,
        ..ExpertRule::USUAL
    };
}
