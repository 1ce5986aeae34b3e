//! How heads attend.

use crate::arch::HeadGate;

/// How heads attend.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// True if tokens also attend to later ones. A sequence is then evaluated whole.
    pub both_ways: bool,
    /// True if tokens attend to all of the pass that they are in, later ones included, unless the key `attention.causal`
    /// is true: drafters that draft a block at once.
    pub ahead: bool,
    /// True if keys and values come from a narrow vector that all heads share ([`Latent`](crate::arch::Latent)).
    pub latent: bool,
    /// True if an indexer chooses the positions to attend to, at most `attention.indexer.top_k`. It chooses all
    /// positions of sequences up to that length, and trine refuses longer ones.
    pub indexed: bool,
    /// True if llama.cpp rotates cached keys where they are as wide as those of the indexer, as it does with the indexer's
    /// own. trine refuses such files.
    pub turned_like_indexer: bool,
    /// True if queries attend to a window, and in some blocks to compressed keys of all positions; keys are values, and
    /// the position's turn is taken back from what is attended to.
    pub compressed: bool,
    /// Factor on the scores.
    pub scale: ScoreScale,
    /// Bound of the scores: `cap * tanh(scores * factor)`.
    pub softcap: ScoreCap,
    /// True if the key `attention.clamp_kqv` bounds the outputs of the query, key and value projections.
    pub clamp: bool,
    /// Penalty on distant cells.
    pub alibi: Alibi,
    /// True if blocks have biases by distance, as many buckets as the key `attention.relative_buckets_count` says;
    /// those without have the first one's.
    pub relative: bool,
    /// When the norms of queries and keys are computed.
    pub qk_norms: QkNorms,
    /// The epsilon of norms of queries and keys that take off the mean, where those of the model do not.
    pub qk_layer_norm: Option<f32>,
    /// Factor on the queries that grows with the position.
    pub temperature: Temperature,
    /// True if the query projection's output has, after each head's queries, a gate for every element of that head's
    /// output.
    pub gate_in_queries: bool,
    /// The function of the gate on the heads' outputs, where there is one.
    pub gate: HeadGate,
    /// The blocks whose queries attend to keys and values of an earlier one.
    pub shared_keys: SharedKeys,
    /// True if the keys `attention.head_count` and `attention.head_count_kv` may say other numbers for every layer.
    pub heads_by_layer: bool,
    /// True if `attention.value_length` may be another size than that of key heads. Where it is absent, it is the
    /// embedding width per head.
    pub values_apart: bool,
    /// True if the keys `attention.key_length_swa` and `attention.value_length_swa` say the sizes of heads in layers
    /// with a window.
    pub sizes_by_window: bool,
    /// True if the key `attention.value_scale` multiplies the output of attention.
    pub value_scale: bool,
    /// True if values have a norm only where they are the block's keys.
    pub plain_values: bool,
}

/// The blocks whose queries attend to keys and values of an earlier one: of the last block before all of them that has
/// a window, or none, as they have. The two blocks before all of them have to be these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedKeys {
    /// None.
    None,
    /// The layers from this one on.
    From(u32),
    /// The last ones, as many as the key `attention.shared_kv_layers` says.
    Last,
}

/// Factor on the attention scores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScoreScale {
    /// 1 / sqrt(head size), on the scores.
    HeadSize,
    /// 1 / sqrt(size of a value head).
    ValueSize,
    /// The same on the queries after RoPE instead. Models with this number of layers use the embedding width per head
    /// as the head size (llama.cpp recognizes the 27B models of Gemma by it).
    OnQueries(Option<u32>),
    /// The key `attention.scale`, or 1 / sqrt(head size) where it is 0 or absent.
    Key,
    /// 1 / sqrt(head size), times the square of what YaRN with `rope.scaling.yarn_log_multiplier` multiplies sine and
    /// cosine by: RoPE turns only a part of a head, and the scores of the other part grow with it.
    Stretched,
    /// 1 / head size.
    Inverse,
    /// None.
    One,
}

/// Bound of the attention scores.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ScoreCap {
    /// None.
    None,
    /// The key `attn_logit_softcapping`, or this; the factor is its inverse.
    Key(f32),
    /// The same, and the factor is the key `attention.output_scale`, or the second number, divided by the cap.
    Scaled(f32, f32),
}

/// Penalty on distant cells: scores are lowered by slope times distance, with a slope per head that the largest of them
/// gives (ggml's `max_bias`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Alibi {
    /// None.
    None,
    /// This bias.
    Fixed(f32),
    /// The key `attention.max_alibi_bias`; 0 and absence are none.
    Key,
    /// This bias (second) in models with this number of layers (first).
    Layers(u32, f32),
}

/// When the norms of queries and keys are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QkNorms {
    /// Before RoPE.
    BeforeRope,
    /// After it.
    AfterRope,
    /// After it, only in layers that have RoPE, and not in models with this number of experts.
    WithRope(u32),
}

/// Factor on the queries that grows with the position:
/// `ln(floor((position + offset) / length) + 1) * scale + 1`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Temperature {
    /// None.
    None,
    /// The scale is the key `attention.temperature_scale`, none where it is 0 or absent; the length is the context that
    /// RoPE was trained with, the offset 0.
    Key,
    /// The same with the key `attention.temperature_length` for the length.
    KeyAndLength,
    /// In layers without RoPE, in models with windows: length, scale and offset.
    WithoutRope(u32, f32, f32),
}

impl Attention {
    /// The rules of most architectures.
    pub const USUAL: Attention = Attention {
        both_ways: false,
        ahead: false,
        latent: false,
        indexed: false,
        turned_like_indexer: false,
        compressed: false,
        scale: ScoreScale::HeadSize,
        softcap: ScoreCap::None,
        clamp: false,
        alibi: Alibi::None,
        relative: false,
        qk_norms: QkNorms::BeforeRope,
        qk_layer_norm: None,
        temperature: Temperature::None,
        gate_in_queries: false,
        gate: HeadGate::Sigmoid,
        shared_keys: SharedKeys::None,
        heads_by_layer: false,
        values_apart: false,
        sizes_by_window: false,
        value_scale: false,
        plain_values: false,
    };
}
