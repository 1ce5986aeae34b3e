//! Norms, feed-forward networks, and how the parts of a model are added up.

use crate::arch::Activation;

/// The formula of the norms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NormKind {
    /// x / sqrt(mean(x^2) + eps), `attention.layer_norm_rms_epsilon`.
    Rms,
    /// (x - mean) / sqrt(variance + eps), `attention.layer_norm_epsilon`.
    Layer,
    /// RMS, with the epsilon of the other where it has none of its own.
    RmsOfEither,
    /// RMS where its epsilon is given and not 0, the other where it is not.
    ByKey,
    /// RMS with an epsilon of 0: the reference does not read the key.
    RmsWithoutEps,
}

/// Heads for multi-token prediction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadRule {
    /// One, which attends to all positions and goes on with its own states.
    One,
    /// The same, whose last norm takes off the mean: its epsilon is the key `attention.layer_norm_epsilon`.
    OneOfLayerNorm,
    /// One, which attends to the window of its block.
    OneInWindow,
    /// One or several, with the windows that the pattern gives their blocks; of several each drafts one token further,
    /// behind the tokens and states of those before it.
    Chained,
}

/// The states of a model that heads for multi-token prediction and drafters read, where the reference has some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DraftState {
    /// None.
    None,
    /// The residual stream behind the last block, or all of several.
    Stream,
    /// The same behind the last norm.
    Normed,
}

/// Factor on the token embeddings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum EmbeddingScale {
    /// None.
    One,
    /// The square root of the embedding width.
    RootOfWidth,
    /// The key `embedding_scale`, or this number where it is absent; none where that is 0.
    Key(f32),
    /// This number.
    Fixed(f32),
}

/// The feed-forward network.
#[derive(Clone, Copy, Debug)]
pub struct FeedForward {
    /// The function of the gate, `down(f(gate(x)) * up(x))`, or without a gate `down(f(up(x)))`. The numbers of
    /// [`Activation::Xielu`] are those of the keys `xielu.*`, layer by layer.
    pub activation: Activation,
    /// Bounds of gates.
    pub clamp: GateClamp,
    /// The function of networks without a gate, where those with one have another.
    pub ungated: Option<Activation>,
    /// True if the key `hidden_activation` may name another function.
    pub named: bool,
    /// True if the key `feed_forward_length` may say another width for every layer.
    pub by_layer: bool,
    /// In so many first blocks only those gates count that are so many standard deviations above the mean of all.
    pub cutoff: Option<(u32, f32)>,
}

/// Bounds of gates, which keys give layer by layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GateClamp {
    /// None.
    None,
    /// `swiglu_clamp_exp` bounds gate and up of experts before SiLU.
    Before,
    /// The same; in dense networks and in the expert that all tokens go to `swiglu_clamp_shexp`, or the same key where
    /// that is absent.
    BeforeEverywhere,
    /// The same key bounds up of experts, and the gate after SiLU; so does `swiglu_clamp_shexp` in dense networks and
    /// in the expert that all tokens go to.
    After,
}

/// In which order a block's input x, what attention gives (a) and what the feed-forward network gives (f) are added up,
/// and what that network sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Residual {
    /// (x + a) + f, where the network sees the norm of x + a.
    Sequential,
    /// As the sum says; the network sees the norm of x, its own or attention's.
    Parallel(Sum),
    /// Parallel where the key `use_parallel_residual` is true.
    Key(Sum),
    /// y = s n(x) + a, then s n(y) + f, where n is the norm before each sublayer and s the key `residual_scale`: the
    /// residual stream goes on from the normed input of the sublayer.
    Normed,
    /// x' = n1(x + a), then n2(x' + f), where n1 and n2 are norms of the sums (`attn_output_norm`,
    /// `layer_output_norm`): BERT. With a third one (`attn_norm_2`) the network sees, and adds to, n3(x' + x).
    NormedSums,
    /// Parallel in blocks without a norm of the network's own.
    ByNorm(Sum),
    /// Sequential, but where the key `swin_norm` is true as in [`Residual::NormedHalves`]: Chameleon.
    SwinKey,
    /// (x + n1(a)) + n2(f), where the network sees n1(a) alone, as in llama.cpp.
    NormedHalves,
}

/// Sums of a block's input x, attention's a and the feed-forward network's f.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sum {
    /// (x + a) + f.
    AttentionFirst,
    /// (x + f) + a.
    FeedForwardFirst,
    /// x + (a + f).
    HalvesFirst,
}

/// A vector of every token for each block, beside the residual stream: rows of a table of its own, to which the norm of
/// a projection of the embeddings is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayerInputs {
    /// None.
    None,
    /// One of this width.
    Fixed(u32),
    /// One as wide as the key `embedding_length_per_layer_input` says, which has to be there; none where it is 0.
    Key,
}

/// Parallel residual streams, whose number is a key of the file: hyper-connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Streams {
    /// One.
    One,
    /// Several, with coefficients for reading and for writing; behind the last block they become one by coefficients of
    /// their own. Hunyuan 4.
    Weighed,
    /// The same, and a matrix mixes them when an output is written; their mean is what the last norm reads. GLM
    /// 5.3 Flash.
    Mixed,
    /// As [`Streams::Weighed`], and a matrix mixes them. DeepSeek 4.
    MixedWeighed,
    /// Several, read as the mean of their norms, each element times a gate of low rank; so does the last norm. Qwen 4.
    Gated,
    /// Four, which a block predicts from one another; the first one runs through its sublayers, and all are corrected
    /// by what they change of it (AltUp). Gemma 3n.
    Predicted,
}

/// Factor on the output of both sublayers of a block, before it is added to the residual stream.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ResidualScale {
    /// None.
    One,
    /// The key `residual_scale`; none where it is 0 or absent.
    Key,
    /// The same; where it is absent this number divided by the root of the number of layers.
    KeyOrDepth(f32),
    /// This number divided by the root of the number of layers.
    Depth(f32),
}

/// Scaling and bounds of the logits.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Factor on what the output matrix is multiplied with: this number divided by the embedding width.
    pub input_width: Option<f32>,
    /// Factor on them.
    pub scale: LogitScale,
    /// Bound, `cap * tanh(logits / cap)`.
    pub softcap: LogitCap,
    /// The tokens, from the first to that behind the last, whose logits are the least number, so that they are not
    /// chosen.
    pub silent: Option<(u32, u32)>,
    /// True if the graph multiplies them by the output matrix's own factor (`output.scale`), which only NVFP4 matrices
    /// have. Where this is false, the reference loads the factor and does not use it.
    pub factored: bool,
}

/// Factor on the logits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LogitScale {
    /// None.
    One,
    /// The inverse of the key `logit_scale`, which has to be there.
    Divide,
    /// The same; none where it is 0 or absent.
    DivideIfAny,
    /// The inverse of the key, or of this number divided by the embedding width where it is absent.
    DivideOrWidth(f32),
    /// The key, which has to be there; none where it is 0.
    Multiply,
    /// The key, or this number where it is absent; none where that is 0.
    MultiplyOr(f32),
    /// The key, which has to be there.
    Always,
}

/// Bound of the logits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LogitCap {
    /// None.
    None,
    /// This number.
    Fixed(f32),
    /// The key `final_logit_softcapping`, or this number where it is absent; none where that is 0.
    KeyOr(f32),
}
