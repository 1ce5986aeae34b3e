//! Mixtures of experts, as the metadata states them.

use trine_formats::gguf::Value;

use super::header::Header;
use super::keys::Keys;
use super::vocabulary::vocabulary;
use crate::arch::Arch;
use crate::arch::rules::{ExpertLayers, ExpertWidth, GatingRule, Normalize, SharedWidth};
use crate::ops::experts::Gating;

/// Most experts of a block that llama.cpp accepts.
const MAX_EXPERTS: u32 = 1024;

/// A mixture of experts.
#[derive(Clone, Debug)]
pub struct Experts {
    /// Experts of a block.
    pub count: usize,
    /// Experts that a token goes to.
    pub used: usize,
    /// Width of one expert's feed-forward network.
    pub n_ff: usize,
    /// Width of what experts see and give, where it is not that of the residual stream.
    pub latent: Option<usize>,
    /// Width of the feed-forward network of the expert that all tokens go to; 0 without one.
    pub shared_ff: usize,
    /// Per layer, whether it has experts.
    pub layers: Vec<bool>,
    /// From the router's scores to probabilities.
    pub gating: Gating,
    /// True if the chosen experts' probabilities are divided by their sum.
    pub normalize: bool,
    /// Factor on their weights, where there is one.
    pub scale: Option<f32>,
    /// First layers in which a table has the experts of every token.
    pub listed: usize,
    /// Groups of experts, and how many of them a token may choose from.
    pub groups: Option<[usize; 2]>,
    /// Small experts that others have in common, where there are any.
    pub chunks: Option<Chunks>,
}

/// Small experts that others have in common.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    /// How many.
    pub count: usize,
    /// How many others have one in common.
    pub shared_by: usize,
    /// Width of its feed-forward network.
    pub n_ff: usize,
    /// Factor on the experts' weights.
    pub scale: f32,
}

/// The experts, checked against what the architecture has.
pub fn experts(
    k: &mut Keys<'_>,
    arch: &'static Arch,
    file: &dyn Header,
    n_layer: usize,
    [n_ff, head_dim]: [usize; 2],
) -> Option<Experts> {
    let rule = &arch.experts;
    let count = k.u32("expert_count").unwrap_or(0);
    if rule.layers == ExpertLayers::None {
        return None;
    }
    if count == 0 {
        if arch.block.is_empty() {
            k.wrong("expert_count", format!("is missing, and models of architecture {} have experts", arch.name));
        }
        return None;
    }
    if arch.expert_block.is_empty() {
        k.wrong(
            "expert_count",
            format!("is {count}, and models of architecture {} have no experts in trine", arch.name),
        );
        return None;
    }
    let count = k.count("expert_count", MAX_EXPERTS);
    // the largest number stands for those of layers, where they differ
    let mut of_layers = |key: &str| match rule.by_layer && is_list(k, key) {
        true => k.per_layer(key).into_iter().max().map(|most| most.max(1) as usize),
        false => None,
    };
    let [used, width_of_layers] = OF_LAYERS.map(&mut of_layers);
    let used = used.unwrap_or_else(|| k.count_per_layer(OF_LAYERS[0], None));
    if used > count {
        k.wrong("expert_used_count", format!("is {used}, more than the {count} experts"));
    }
    let n_ff_exp = width_of_layers.unwrap_or_else(|| width(k, rule.width, n_ff, used));
    Some(Experts {
        count,
        used,
        n_ff: n_ff_exp,
        latent: rule.latent.and_then(|key| stated(k, key)),
        shared_ff: shared_width(k, rule.shared, n_ff, n_ff_exp),
        layers: layers(k, rule.layers, file, n_layer),
        gating: gating(k, rule.gating, file),
        normalize: match rule.normalize {
            Normalize::Always => true,
            Normalize::Never => false,
            Normalize::Key => k.bool("expert_weights_norm").unwrap_or(false),
        },
        scale: rule
            .scale
            .then(|| k.f32("expert_weights_scale"))
            .flatten()
            .filter(|&scale| scale != 0.0 && scale != 1.0),
        listed: match rule.listed {
            true => k.u32("hash_layer_count").unwrap_or(0).min(n_layer as u32) as usize,
            false => 0,
        },
        groups: groups(k, count),
        chunks: rule.chunks.then(|| chunks(k, count, head_dim)),
    })
}

/// Keys with the experts of a token and the width of an expert.
const OF_LAYERS: [&str; 2] = ["expert_used_count", "expert_feed_forward_length"];

fn is_list(k: &Keys<'_>, key: &str) -> bool {
    matches!(k.meta.get(&k.name(key)), Some(Value::Array(_)))
}

/// The experts of every layer, where a file says them by layer; else none.
pub fn of_layers(k: &mut Keys<'_>, arch: &Arch, experts: Option<&Experts>) -> Vec<Experts> {
    let Some(common) = experts.filter(|_| arch.experts.by_layer && OF_LAYERS.iter().any(|key| is_list(k, key))) else {
        return Vec::new();
    };
    let [used, widths] = OF_LAYERS.map(|key| k.per_layer(key));
    let mut all = Vec::new();
    for (layer, (used, n_ff)) in used.into_iter().zip(widths).enumerate() {
        let routed = common.layers.get(layer) == Some(&true) && [used, n_ff] != [0, 0];
        if routed && (used == 0 || used as usize > common.count) {
            let what = format!("is {used} for layer {layer}, it must be 1 to {}", common.count);
            k.wrong(OF_LAYERS[0], what);
        }
        if routed && n_ff == 0 {
            k.wrong(OF_LAYERS[1], format!("is 0 for layer {layer}, which has experts"));
        }
        all.push(Experts { used: (used as usize).max(1), n_ff: (n_ff as usize).max(1), ..common.clone() });
    }
    all
}

fn chunks(k: &mut Keys<'_>, experts: usize, head_dim: usize) -> Chunks {
    const SCALE: &str = "expert_group_scale";
    const WIDTH: &str = "expert_chunk_feed_forward_length";
    let shared_by = k.count("experts_per_group", MAX_EXPERTS);
    if !experts.is_multiple_of(shared_by) {
        k.wrong("experts_per_group", format!("is {shared_by}, which does not divide {experts} experts"));
    }
    let scale = k.f32(SCALE);
    if scale.is_none() {
        k.missing(SCALE);
    }
    Chunks {
        count: (experts / shared_by).max(1),
        shared_by,
        n_ff: stated(k, WIDTH).unwrap_or(head_dim),
        scale: scale.unwrap_or(1.0),
    }
}

/// A number that stands once, or once per layer, or is 0 or absent.
fn stated(k: &mut Keys<'_>, key: &str) -> Option<usize> {
    let zero = k.meta.get(&k.name(key)).is_none() || matches!(k.meta.get_u32(&k.name(key)), Ok(Some(0)));
    (!zero).then(|| k.count_per_layer(key, None))
}

fn width(k: &mut Keys<'_>, rule: ExpertWidth, n_ff: usize, used: usize) -> usize {
    const KEY: &str = "expert_feed_forward_length";
    let share = (n_ff / used.max(1)).max(1);
    match rule {
        ExpertWidth::Full => n_ff,
        ExpertWidth::Key => k.count_per_layer(KEY, None),
        ExpertWidth::KeyOrFull => stated(k, KEY).unwrap_or(n_ff),
        ExpertWidth::KeyOrShare => stated(k, KEY).unwrap_or(share),
    }
}

fn shared_width(k: &mut Keys<'_>, rule: SharedWidth, n_ff: usize, n_ff_exp: usize) -> usize {
    const KEY: &str = "expert_shared_feed_forward_length";
    const MOST: u32 = 1 << 20;
    let mut number = |key: &str| match k.u32(key) {
        Some(n) if n > MOST => {
            k.wrong(key, format!("is {n}, it must be at most {MOST}"));
            None
        }
        n => n.map(|n| n as usize),
    };
    let key = number(KEY).filter(|&n| n > 0);
    let count = number("expert_shared_count");
    let counted = n_ff_exp.saturating_mul(count.unwrap_or(0));
    match rule {
        SharedWidth::None => 0,
        SharedWidth::Key => key.unwrap_or(0),
        SharedWidth::KeyOrFull => key.unwrap_or(n_ff),
        SharedWidth::KeyOrExpert => key.unwrap_or(n_ff_exp),
        SharedWidth::Expert => n_ff_exp,
        SharedWidth::Count => counted,
        SharedWidth::CountOrOne => counted.max(n_ff_exp),
        SharedWidth::KeyOrCount if count.unwrap_or(0) == 0 => 0,
        SharedWidth::KeyOrCount => key.unwrap_or(counted),
        SharedWidth::KeyOrCountOrOne => key.unwrap_or_else(|| n_ff_exp.saturating_mul(count.unwrap_or(1))),
        SharedWidth::Times => key.unwrap_or(n_ff_exp).saturating_mul(count.unwrap_or(0)),
    }
}

fn layers(k: &mut Keys<'_>, rule: ExpertLayers, file: &dyn Header, n_layer: usize) -> Vec<bool> {
    let mut number = |key: &str| k.u32(key).unwrap_or(0) as usize;
    let (leading, every) = match rule {
        ExpertLayers::None => (n_layer, 1),
        ExpertLayers::All | ExpertLayers::Routed | ExpertLayers::SecondOfEvery => (0, 1),
        ExpertLayers::AfterLeading => (number("leading_dense_block_count"), 1),
        ExpertLayers::Every => (0, number("interleave_moe_layer_step")),
        ExpertLayers::EveryAfterLeading => (number("leading_dense_block_count"), number("interleave_moe_layer_step")),
    };
    if rule == ExpertLayers::SecondOfEvery {
        let every = number("moe_every_n_layers");
        return (0..n_layer).map(|layer| every > 0 && layer % every == 1).collect();
    }
    let routed = |layer: usize| {
        let router = format!("blk.{layer}.ffn_gate_inp.weight");
        rule != ExpertLayers::Routed || file.rows(&router).is_some()
    };
    (0..n_layer)
        .map(|layer| layer >= leading && every > 0 && (layer + 1).is_multiple_of(every) && routed(layer))
        .collect()
}

fn gating(k: &mut Keys<'_>, rule: GatingRule, file: &dyn Header) -> Gating {
    let default = match rule {
        GatingRule::Fixed(gating) => return gating,
        GatingRule::Key(default) => default,
        GatingRule::KeyOrVocabulary(tokens) if vocabulary(k, file) == tokens as usize => Some(Gating::Sigmoid),
        GatingRule::KeyOrVocabulary(_) => Some(Gating::SoftMax),
    };
    match (k.u32("expert_gating_func").unwrap_or(0), default) {
        (0, Some(gating)) => gating,
        (1, _) => Gating::SoftMax,
        (2, _) => Gating::Sigmoid,
        (3, _) => Gating::SoftMaxOfChosen,
        (4, _) => Gating::RootOfSoftplus,
        (other, _) => {
            let known = "trine has 1 (soft-max), 2 (sigmoid), 3 (soft-max of the chosen) and 4 (root of soft-plus)";
            k.wrong("expert_gating_func", format!("is {other}; {known}"));
            Gating::SoftMax
        }
    }
}

/// Groups that can be chosen from: each of as many experts, at least two.
fn groups(k: &mut Keys<'_>, count: usize) -> Option<[usize; 2]> {
    let groups = k.u32("expert_group_count").unwrap_or(0) as usize;
    let used = k.u32("expert_group_used_count").unwrap_or(0) as usize;
    if groups <= 1 {
        return None;
    }
    if !count.is_multiple_of(groups) || count / groups < 2 || used == 0 || used >= groups {
        k.wrong(
            "expert_group_count",
            format!(
                "is {groups} and {} is {used}: {count} experts cannot be grouped like that",
                k.name("expert_group_used_count")
            ),
        );
    }
    Some([groups, used])
}
