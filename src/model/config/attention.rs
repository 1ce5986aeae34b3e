//! Attention scores, and factors of other parts, as the metadata states them.

use super::keys::Keys;
use super::position;
use crate::arch::Arch;
use crate::arch::rules::{
    Alibi, EmbeddingScale, LogitCap, LogitScale, ResidualScale, ScoreCap, ScoreScale, Temperature,
};
use crate::ops::rope::Rope;

/// Factors, bounds and norms of queries and scores.
#[derive(Clone, Debug)]
pub struct Scores {
    /// Factor on the queries after RoPE, where there is one.
    pub query_scale: Option<f32>,
    /// Factor on the attention scores.
    pub scale: f32,
    /// `cap * tanh(score * factor)`: factor and cap, where the model asks for it.
    pub cap: Option<[f32; 2]>,
    /// Bound of queries, keys and values, where there is one.
    pub clamp: Option<f32>,
    /// ALiBi's greatest bias; 0 for none.
    pub alibi: f32,
    /// Buckets of distances that scores have biases by; 0 without any.
    pub buckets: usize,
    /// Factor on the queries that grows with the position, where there is one.
    pub temperature: Option<Heat>,
    /// Factor on what attention gives, where there is one.
    pub value_scale: Option<f32>,
}

/// A factor on the queries that grows with the position, and the layers that have it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Heat {
    /// The factor.
    pub factor: crate::program::Temperature,
    /// Only in layers without RoPE.
    pub unturned: bool,
}

/// The sizes that factors depend on.
#[derive(Clone, Copy)]
pub struct Shape {
    pub n_layer: usize,
    pub n_embd: usize,
    pub n_head: usize,
    pub head_dim: usize,
    pub value_dim: usize,
    /// The context that RoPE was trained with.
    pub original: u32,
    /// True if layers have windows.
    pub windows: bool,
}

/// A key that is 0 where it is absent.
fn factor(k: &mut Keys<'_>, key: &str) -> Option<f32> {
    k.f32(key).filter(|&f| f != 0.0)
}

pub fn scores(k: &mut Keys<'_>, arch: &Arch, shape: Shape, rope: &Rope) -> Scores {
    let rule = &arch.attention;
    let of_head = |elements: usize| 1.0 / (elements as f32).sqrt();
    let (query_scale, scale) = match rule.scale {
        ScoreScale::HeadSize => (None, of_head(shape.head_dim)),
        ScoreScale::ValueSize => (None, of_head(shape.value_dim)),
        ScoreScale::OnQueries(Some(layers)) if shape.n_layer == layers as usize => {
            (Some(of_head(shape.n_embd / shape.n_head)), 1.0)
        }
        ScoreScale::OnQueries(_) => (Some(of_head(shape.head_dim)), 1.0),
        ScoreScale::Key => {
            let scale = factor(k, "attention.scale");
            (None, scale.unwrap_or_else(|| of_head(shape.head_dim)))
        }
        ScoreScale::Stretched => (None, position::stretched(k, arch, rope) / (shape.head_dim as f32).sqrt()),
        ScoreScale::Inverse => (None, 1.0 / shape.head_dim as f32),
        ScoreScale::One => (None, 1.0),
    };
    let clamp = rule.clamp.then(|| k.f32("attention.clamp_kqv")).flatten();
    Scores {
        query_scale,
        scale,
        cap: cap(k, rule.softcap),
        clamp: clamp.filter(|&bound| bound > 0.0),
        alibi: match rule.alibi {
            Alibi::None => 0.0,
            Alibi::Fixed(bias) => bias,
            Alibi::Key => k.f32("attention.max_alibi_bias").unwrap_or(0.0),
            Alibi::Layers(layers, bias) if shape.n_layer == layers as usize => bias,
            Alibi::Layers(..) => 0.0,
        },
        buckets: if rule.relative { buckets(k, rule.both_ways) } else { 0 },
        temperature: temperature(k, rule.temperature, shape),
        value_scale: rule
            .value_scale
            .then(|| factor(k, "attention.value_scale"))
            .flatten()
            .filter(|&scale| scale != 1.0),
    }
}

/// Buckets of distances, half of them for each direction where there are both, and half of these for single distances,
/// which are less than 128.
fn buckets(k: &mut Keys<'_>, both_ways: bool) -> usize {
    const KEY: &str = "attention.relative_buckets_count";
    let buckets = k.count(KEY, if both_ways { 508 } else { 252 });
    if !buckets.is_multiple_of(4) {
        k.wrong(KEY, format!("is {buckets}, it must be a multiple of 4"));
        return 4;
    }
    buckets
}

fn cap(k: &mut Keys<'_>, rule: ScoreCap) -> Option<[f32; 2]> {
    const KEY: &str = "attn_logit_softcapping";
    let (default, scale) = match rule {
        ScoreCap::None => return None,
        ScoreCap::Key(default) => (default, 1.0),
        ScoreCap::Scaled(default, scale) => (default, k.f32("attention.output_scale").unwrap_or(scale)),
    };
    let cap = k.f32(KEY).unwrap_or(default);
    let cap = k.positive(KEY, cap);
    Some([scale / cap, cap])
}

fn temperature(k: &mut Keys<'_>, rule: Temperature, shape: Shape) -> Option<Heat> {
    let (unturned, length, scale, offset) = match rule {
        Temperature::None => return None,
        Temperature::Key => (false, shape.original, factor(k, "attention.temperature_scale")?, 0.0),
        Temperature::KeyAndLength => {
            let scale = factor(k, "attention.temperature_scale")?;
            (false, k.u32("attention.temperature_length").unwrap_or(0), scale, 0.0)
        }
        Temperature::WithoutRope(length, scale, offset) => (true, length, scale, offset),
    };
    if length == 0 {
        let key = match rule {
            Temperature::KeyAndLength => "attention.temperature_length",
            _ => "rope.scaling.original_context_length",
        };
        k.wrong(key, "is 0, and attention is scaled by it");
    }
    let factor = crate::program::Temperature { length, scale, offset };
    (!unturned || shape.windows).then_some(Heat { factor, unturned })
}

pub fn embedding_scale(k: &mut Keys<'_>, arch: &Arch, n_embd: usize) -> Option<f32> {
    match arch.embedding_scale {
        EmbeddingScale::One => None,
        EmbeddingScale::RootOfWidth => Some((n_embd as f32).sqrt()),
        EmbeddingScale::Fixed(scale) => Some(scale),
        EmbeddingScale::Key(default) => {
            let scale = k.f32("embedding_scale").unwrap_or(default);
            Some(scale).filter(|&s| s != 0.0)
        }
    }
}

pub fn residual_scale(k: &mut Keys<'_>, arch: &Arch, n_layer: usize) -> Option<f32> {
    let scale = match arch.residual_scale {
        ResidualScale::One => return None,
        ResidualScale::Depth(depth) => depth / (n_layer as f32).sqrt(),
        ResidualScale::Key => k.f32("residual_scale").unwrap_or(0.0),
        ResidualScale::KeyOrDepth(depth) => {
            let depth = depth / (n_layer as f32).sqrt();
            k.f32("residual_scale").unwrap_or(depth)
        }
    };
    Some(scale).filter(|&s| s != 0.0)
}

pub fn logit_scale(k: &mut Keys<'_>, arch: &Arch, n_embd: usize) -> Option<f32> {
    const KEY: &str = "logit_scale";
    let rule = arch.output.scale;
    let default = match rule {
        LogitScale::One => return None,
        LogitScale::DivideIfAny => {
            return factor(k, KEY).map(|scale| 1.0 / k.positive(KEY, scale));
        }
        LogitScale::DivideOrWidth(width) => Some(width / n_embd as f32),
        LogitScale::MultiplyOr(scale) => Some(scale),
        LogitScale::Divide | LogitScale::Multiply | LogitScale::Always => None,
    };
    let Some(scale) = k.f32(KEY).or(default) else {
        k.missing(KEY);
        return None;
    };
    match rule {
        LogitScale::Divide | LogitScale::DivideOrWidth(_) => Some(1.0 / k.positive(KEY, scale)),
        LogitScale::Always => Some(scale),
        _ => Some(scale).filter(|&s| s != 0.0),
    }
}

pub fn logit_cap(k: &mut Keys<'_>, arch: &Arch) -> Option<f32> {
    match arch.output.softcap {
        LogitCap::None => None,
        LogitCap::Fixed(cap) => Some(cap),
        LogitCap::KeyOr(default) => {
            let cap = k.f32("final_logit_softcapping").unwrap_or(default);
            Some(cap).filter(|&cap| cap != 0.0)
        }
    }
}
