//! Sizes that differ from layer to layer, as the metadata states them.

use super::header::Header;
use super::keys::Keys;
use super::mixing::OwnCounts;
use crate::arch::Arch;
use crate::arch::rules::LayerInputs;

/// Largest `block_count` llama.cpp accepts.
pub const MAX_LAYERS: u32 = 512;

/// The blocks of a decoder beside an encoder.
const OF_DECODER: &str = "decoder_block_count";

/// Heads and width of one layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OfLayer {
    /// Query heads.
    pub n_head: usize,
    /// Key and value heads.
    pub n_head_kv: usize,
    /// Elements of a query head and of a cached key.
    pub head_dim: usize,
    /// Elements of a cached value.
    pub value_dim: usize,
    /// Width of the feed-forward block.
    pub n_ff: usize,
}

/// Largest size of a head.
const MOST: usize = 1 << 20;

/// Heads and width of every layer, where they differ: `counts` with heads of `sizes`, keys and values, in layers without
/// a window. Empty where all layers are alike.
pub fn own(
    k: &mut Keys<'_>,
    arch: &Arch,
    counts: Vec<OwnCounts>,
    sizes: [usize; 2],
    windowed: &[bool],
) -> Vec<OfLayer> {
    const WINDOW: [&str; 2] = ["attention.key_length_swa", "attention.value_length_swa"];
    const SIZE: &str = "attention.sliding_window";
    const PATTERN: &str = "attention.sliding_window_pattern";
    let stated = WINDOW.map(|key| k.u32(key).map(|n| n as usize));
    let mut in_windows = sizes;
    for (i, key) in WINDOW.into_iter().enumerate() {
        match (stated[i], arch.attention.sizes_by_window) {
            (Some(n), true) if (1..=MOST).contains(&n) => in_windows[i] = n,
            (Some(n), true) => k.wrong(key, format!("is {n}, it must be 1 to {MOST}")),
            (None, true) => k.missing(key),
            (Some(n), false) if arch.attention.heads_by_layer && n != sizes[i] => {
                let other = key.trim_end_matches("_swa");
                k.wrong(key, format!("is {n}; trine can run models with {}, as {} says", sizes[i], k.name(other)));
            }
            (_, false) => {}
        }
    }
    if arch.attention.sizes_by_window {
        k.count(SIZE, u32::MAX);
        if k.meta.get(&k.name(PATTERN)).is_none() {
            k.missing(PATTERN);
        }
    }
    let [key, value] = in_windows;
    if key != value && stated.iter().all(Option::is_some) && sizes[0] == sizes[1] {
        k.contradiction(format!("heads of {key} key and {value} value elements are not supported"));
    }
    let of_layer = |(layer, counts): (usize, OwnCounts)| {
        let [head_dim, value_dim] = if windowed.get(layer) == Some(&true) { in_windows } else { sizes };
        let OwnCounts { n_head, n_head_kv, n_ff } = counts;
        OfLayer { n_head, n_head_kv, head_dim, value_dim, n_ff }
    };
    let all: Vec<OfLayer> = counts.into_iter().enumerate().map(of_layer).collect();
    match all.first() {
        Some(first) if all.iter().all(|own| own == first) && sizes == [first.head_dim, first.value_dim] => Vec::new(),
        _ => all,
    }
}

/// Notes layers that attend to keys of others whose heads are not theirs.
pub fn check_shared(k: &mut Keys<'_>, own: &[OfLayer], shared: &[Option<usize>]) {
    for (layer, source) in shared.iter().enumerate() {
        let Some((own, of_source)) = source.and_then(|source| own.get(layer).zip(own.get(source))) else {
            continue;
        };
        if own.n_head_kv != of_source.n_head_kv {
            let (count, source) = (own.n_head_kv, source.unwrap_or_default());
            let what =
                format!("says {count} for layer {layer}, whose keys are the {} of layer {source}", of_source.n_head_kv);
            return k.wrong("attention.head_count_kv", what);
        }
    }
}

/// Elements of a token's vector for a block, where it has one.
pub fn input(k: &mut Keys<'_>, arch: &Arch) -> Option<usize> {
    const KEY: &str = "embedding_length_per_layer_input";
    match arch.layer_inputs {
        LayerInputs::None => None,
        LayerInputs::Fixed(width) => Some(width as usize),
        LayerInputs::Key if k.u32(KEY) == Some(0) => None,
        LayerInputs::Key => Some(k.count(KEY, MOST as u32)),
    }
}

/// The blocks that are run: all but those that predict further tokens, which stand last. Those of a decoder beside an
/// encoder are as many as the encoder's where they have no number of their own.
pub fn run(k: &mut Keys<'_>, arch: &Arch, file: &dyn Header) -> usize {
    const FURTHER: &str = "nextn_predict_layers";
    k.layers = k.count("block_count", MAX_LAYERS);
    if arch.encoder.is_some() && k.meta.get(&k.name(OF_DECODER)).is_some() {
        k.layers = k.count(OF_DECODER, MAX_LAYERS);
    }
    let further = k.u32(FURTHER).unwrap_or(0) as usize;
    if further >= k.layers {
        k.wrong(FURTHER, format!("is {further}, of {} layers", k.layers));
        return k.layers;
    }
    let first = k.layers - further;
    let is_there = || file.rows(&format!("blk.{first}.nextn.eh_proj.weight")).is_some();
    if arch.further_if_there && !is_there() { k.layers } else { first }
}
