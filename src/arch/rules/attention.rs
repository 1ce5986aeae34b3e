//! How heads attend.

use crate::arch::HeadGate;

/// How heads attend.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Whether tokens see those after them too. A sequence is evaluated whole then.
    pub both_ways: bool,
    /// Whether keys and values come from a narrow vector that all heads share ([`Latent`](crate::arch::Latent)).
    pub latent: bool,
    /// Whether an indexer chooses the positions that are attended to, `attention.indexer.top_k` of them at most. As
    /// long as a sequence is no longer than that it chooses all, and trine evaluates no longer ones.
    pub indexed: bool,
    /// Factor on the scores.
    pub scale: ScoreScale,
    /// Bound of the scores: `cap * tanh(scores * factor)`.
    pub softcap: ScoreCap,
    /// Whether the key `attention.clamp_kqv` bounds what the query, key and value projections give.
    pub clamp: bool,
    /// Penalty on distant cells.
    pub alibi: Alibi,
    /// When the norms of queries and keys are computed.
    pub qk_norms: QkNorms,
    /// Factor on the queries that grows with the position.
    pub temperature: Temperature,
    /// Whether the query projection gives a gate on every element of a head's output after each head's queries.
    pub gate_in_queries: bool,
    /// The function of the gate on the heads' outputs, where there is one.
    pub gate: HeadGate,
    /// Whether the key `attention.value_scale` multiplies what attention gives.
    pub value_scale: bool,
}

/// Factor on the attention scores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScoreScale {
    /// 1 / sqrt(head size), on the scores.
    HeadSize,
    /// The same on the queries after RoPE instead; models of so many layers take the embedding width per head for the
    /// head size (llama.cpp knows the 27B models of Gemma by that).
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
    /// This bias in models of so many layers.
    Layers(u32, f32),
}

/// When the norms of queries and keys are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QkNorms {
    /// Before RoPE.
    BeforeRope,
    /// After it.
    AfterRope,
    /// After it, only in layers that have RoPE, and not in models of so many experts.
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
    /// What most have.
    pub const USUAL: Attention = Attention {
        both_ways: false,
        latent: false,
        indexed: false,
        scale: ScoreScale::HeadSize,
        softcap: ScoreCap::None,
        clamp: false,
        alibi: Alibi::None,
        qk_norms: QkNorms::BeforeRope,
        temperature: Temperature::None,
        gate_in_queries: false,
        gate: HeadGate::Sigmoid,
        value_scale: false,
    };
}
