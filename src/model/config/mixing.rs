//! Recurrent layers, as the metadata states them, and the parts of every block.

use trine_formats::gguf::Value;

use super::keys::Keys;
use super::position::flags;
use crate::arch::rules::{ExpertWidth, Mixing as Rule, Recurrence};
use crate::arch::{Arch, Recurrent};
use crate::ops::lightning::Lightning;

/// Largest number in the metadata of recurrent layers.
const MOST: u32 = 1 << 20;
/// Numbers of a sequence's recurrent state that are not too many: 4 GB.
const MOST_STATE: usize = 1 << 30;

/// The parts of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// True if the block has attention.
    pub attends: bool,
    /// True if the block has a recurrent layer.
    pub recurs: bool,
    /// True if the block has a feed-forward network.
    pub feeds: bool,
}

/// Layers that mix the positions of a sequence.
#[derive(Clone, Debug)]
pub struct Mixing {
    /// Per block.
    pub blocks: Vec<Parts>,
    /// The kind of the recurrent layers, where there are any.
    pub kind: Option<Recurrence>,
    /// Their sizes; zeros without any.
    pub sizes: Recurrent,
    /// Bound of the logarithms of decays, below 0, where there is one.
    pub bound: Option<f32>,
    /// True if time steps, `b` and `c` are normed without gains.
    pub plain_norms: bool,
    /// Numbers of the state of one of them: what the convolution remembers, and the rest.
    pub numbers: [usize; 2],
    /// Numbers of the state of other operations, per block.
    pub others: Vec<usize>,
}

/// Heads and widths of all blocks, where these differ in whether they have any.
pub struct Counts {
    pub n_head: usize,
    pub n_head_kv: usize,
    pub n_ff: usize,
    /// The heads and widths of every block, where they may differ; empty where all have the same.
    pub own: Vec<OwnCounts>,
    blocks: Vec<Parts>,
}

/// Heads and width of one block.
#[derive(Clone, Copy)]
pub struct OwnCounts {
    pub n_head: usize,
    pub n_head_kv: usize,
    pub n_ff: usize,
}

impl Mixing {
    /// Where the state of block `layer` begins among the numbers of a sequence's, which are for each block those of its
    /// recurrent layer and then those of other operations. Behind the last block this is their number.
    pub fn state_of(&self, layer: usize) -> usize {
        let of_layer = self.numbers[0].saturating_add(self.numbers[1]);
        let recurrent = self.blocks[..layer].iter().filter(|b| b.recurs).count();
        let others = self.others.iter().take(layer).fold(0usize, |sum, &n| sum.saturating_add(n));
        recurrent.saturating_mul(of_layer).saturating_add(others)
    }

    /// The numbers among them of the other operations of block `layer`.
    pub fn others_of(&self, layer: usize) -> std::ops::Range<usize> {
        let end = self.state_of(layer + 1);
        end - self.others.get(layer).copied().unwrap_or(0)..end
    }

    /// Numbers of a sequence's recurrent state.
    pub fn state(&self) -> usize {
        self.state_of(self.blocks.len())
    }
}

const FF: &str = "feed_forward_length";
const HEADS: [&str; 2] = ["attention.head_count", "attention.head_count_kv"];

/// Heads and width of each of the blocks that are run, each at least `least`; at least one block's.
fn own_counts(k: &mut Keys<'_>, arch: &Arch, n_layer: usize, least: u32) -> Vec<OwnCounts> {
    let heads = k.per_layer(HEADS[0]);
    let kv = match k.meta.get(&k.name(HEADS[1])) {
        Some(_) => k.per_layer(HEADS[1]),
        None => heads.clone(),
    };
    let ff = match arch.feed_forward.by_layer {
        true => k.per_layer(FF),
        false => vec![k.count_per_layer(FF, None) as u32; k.layers],
    };
    let before = k.problems.len();
    for (key, all) in [(HEADS[0], &heads), (HEADS[1], &kv), (FF, &ff)] {
        if let Some(other) = all.iter().find(|n| !(least..=1 << 20).contains(*n)) {
            k.wrong(key, format!("says {other} for a layer, it must be {least} to {}", 1 << 20));
        }
    }
    if k.problems.len() > before {
        return vec![OwnCounts { n_head: 1, n_head_kv: 1, n_ff: 1 }; n_layer];
    }
    let own = (0..n_layer).map(|layer| {
        let [n_head, n_head_kv, n_ff] = [&heads, &kv, &ff].map(|all| all[layer] as usize);
        OwnCounts { n_head, n_head_kv, n_ff }
    });
    let own: Vec<OwnCounts> = own.collect();
    if let Some((layer, OwnCounts { n_head, n_head_kv, .. })) =
        own.iter().enumerate().find(|(_, own)| own.n_head_kv > 0 && !own.n_head.is_multiple_of(own.n_head_kv))
    {
        let what = format!("{n_head} query heads cannot share {n_head_kv} key-value heads evenly, in layer {layer}");
        k.contradiction(what);
    }
    own
}

/// Heads and widths, which are 0 in blocks without attention or feed-forward network.
pub fn counts(k: &mut Keys<'_>, arch: &Arch, n_layer: usize) -> Counts {
    let every = |attends, recurs, feeds| vec![Parts { attends, recurs, feeds }; n_layer];
    match arch.mixing {
        Rule::Attention if arch.attention.heads_by_layer || arch.attention.sizes_by_window => {
            let own = own_counts(k, arch, n_layer, 1);
            let OwnCounts { n_head, n_head_kv, n_ff } = own[0];
            Counts { n_head, n_head_kv, n_ff, own, blocks: every(true, false, true) }
        }
        Rule::ByHeadsOrNone(_) => {
            let mut own = own_counts(k, arch, n_layer, 0);
            let parts = |own: &OwnCounts| {
                let feeds = own.n_ff > 0;
                let [heads, keys] = [own.n_head, own.n_head_kv].map(|n| n > 0);
                Parts { attends: feeds && heads && keys, recurs: feeds && heads && !keys, feeds }
            };
            let blocks: Vec<Parts> = own.iter().map(parts).collect();
            if let Some(layer) =
                own.iter().position(|own| own.n_ff == 0 && own.n_head > 0 || own.n_head < own.n_head_kv)
            {
                let what = format!("layer {layer} has heads without queries or without a feed-forward network");
                k.contradiction(what);
            }
            // what a block lacks has some size
            for own in &mut own {
                let OwnCounts { n_head, n_head_kv, n_ff } = own;
                [n_head, n_head_kv, n_ff].into_iter().for_each(|n| *n = (*n).max(1));
            }
            let first = blocks.iter().position(|b| b.attends).unwrap_or(0);
            let OwnCounts { n_head, n_head_kv, n_ff } = own[first];
            Counts { n_head, n_head_kv, n_ff, own, blocks }
        }
        Rule::Attention | Rule::Both(_) => {
            // models of experts alone, whose width has a key of its own, may lack that of what they do not have
            let alone = arch.block.is_empty() && arch.experts.width == ExpertWidth::Key;
            let n_ff = k.count_per_layer(FF, alone.then_some(1));
            let n_head = k.count_per_layer(HEADS[0], None);
            Counts {
                n_head,
                n_head_kv: k.count_per_layer(HEADS[1], Some(n_head)),
                n_ff,
                own: Vec::new(),
                blocks: every(true, arch.mixing != Rule::Attention, true),
            }
        }
        Rule::Recurrent(kind) => {
            let feeds = kind.is_rwkv_alone();
            let n_ff = if feeds || kind.is_rwkv() { k.count_per_layer(FF, None) } else { 0 };
            Counts { n_head: 1, n_head_kv: 1, n_ff, own: Vec::new(), blocks: every(false, true, feeds) }
        }
        Rule::ByPattern(_) => {
            let n_head = k.count_per_layer(HEADS[0], None);
            let recurs = recurrent_layers(k, arch, n_layer);
            Counts {
                n_head,
                n_head_kv: k.count_per_layer(HEADS[1], Some(n_head)),
                n_ff: k.count_per_layer(FF, None),
                own: Vec::new(),
                blocks: recurs.into_iter().map(|recurs| Parts { attends: !recurs, recurs, feeds: true }).collect(),
            }
        }
        Rule::ByHeads(_) | Rule::ByHeadsAlone(_) => {
            let [heads, kv, ff] = [HEADS[0], HEADS[1], FF].map(|key| k.per_layer(key));
            let alone = matches!(arch.mixing, Rule::ByHeadsAlone(_));
            let parts = |layer: usize| {
                let feeds = !alone || ff[layer] > 0;
                let mixes = !alone || ff[layer] == 0;
                Parts { attends: mixes && kv[layer] > 0, recurs: mixes && kv[layer] == 0, feeds }
            };
            let blocks: Vec<Parts> = (0..n_layer).map(parts).collect();
            // networks of experts have a key of their own for their widths
            let widest = arch.experts.by_layer && k.u32("expert_count").is_some_and(|n| n > 0);
            let widest = ff.iter().copied().max().filter(|_| widest).map(|n| n.max(1) as usize);
            let mut common = |key: &str, all: &[u32], counts: fn(&Parts) -> bool| {
                let of_blocks = all.iter().zip(&blocks).filter(|(_, b)| counts(b));
                k.common(key, of_blocks.map(|(&n, _)| n))
            };
            Counts {
                n_head: common(HEADS[0], &heads, |b| b.attends),
                n_head_kv: common(HEADS[1], &kv, |b| b.attends),
                n_ff: widest.unwrap_or_else(|| common(FF, &ff, |b| b.feeds)),
                own: Vec::new(),
                blocks,
            }
        }
    }
}

/// The recurrent layers: as the list states, or all but every n-th.
fn recurrent_layers(k: &mut Keys<'_>, arch: &Arch, n_layer: usize) -> Vec<bool> {
    const LIST: &str = "attention.recurrent_layers";
    if let Some(Value::Array(_)) = k.meta.get(&k.name(LIST)) {
        let mut list = flags(k, LIST, n_layer);
        list.resize(n_layer, false);
        return list;
    }
    let usual = match arch.mixing.recurrence() {
        Some(Recurrence::Lightning) => 8,
        _ => 4,
    };
    let interval = k.u32("full_attention_interval").unwrap_or(usual).max(1) as usize;
    (0..n_layer).map(|layer| !(layer + 1).is_multiple_of(interval)).collect()
}

/// The sizes of recurrent layers, checked against one another.
pub fn mixing(
    k: &mut Keys<'_>,
    arch: &Arch,
    counts: Counts,
    [n_embd, head_dim]: [usize; 2],
    others: Vec<usize>,
) -> Mixing {
    let n_head = counts.n_head;
    let kind = arch.mixing.recurrence();
    let (sizes, numbers) = match kind {
        None => (Recurrent::NONE, [0, 0]),
        Some(Recurrence::Convolution) => {
            let kernel = k.count("shortconv.l_cache", MOST);
            let sizes = Recurrent { kernel, ..Recurrent::NONE };
            (sizes, [(kernel - 1).saturating_mul(n_embd), 0])
        }
        Some(Recurrence::Matrix) => (Recurrent::NONE, [0, 0]),
        Some(Recurrence::Lightning) => (Recurrent::NONE, [0, Lightning::state(n_head, head_dim)]),
        Some(kind) if kind.is_rwkv_alone() => rwkv(k, n_embd, 1),
        Some(kind) if kind.is_rwkv() => rwkv(k, n_embd, 2),
        Some(kind) if kind.is_kimi() => kimi(k, n_head),
        Some(kind) => mamba(k, kind, n_embd),
    };
    let bound = match kind {
        Some(Recurrence::Bounded) => Some(bound(k)),
        Some(kind) if kind.has_negative_factors() => k.f32(BOUND).map(|_| checked_bound(k)),
        _ => None,
    };
    let mixing = Mixing {
        blocks: counts.blocks,
        kind,
        sizes,
        bound,
        plain_norms: kind == Some(Recurrence::Mamba) && k.bool("ssm.dt_b_c_rms").unwrap_or(false),
        numbers,
        others,
    };
    let state = mixing.state();
    if state > MOST_STATE {
        k.contradiction(format!("the recurrent state of a sequence would be {state} numbers, more than {MOST_STATE}"));
    }
    mixing
}

fn mamba(k: &mut Keys<'_>, kind: Recurrence, n_embd: usize) -> (Recurrent, [usize; 2]) {
    const HEADS: &str = "ssm.time_step_rank";
    const GROUPS: &str = "ssm.group_count";
    let heads = k.count(HEADS, MOST);
    let sizes = Recurrent {
        kernel: k.count("ssm.conv_kernel", MOST),
        inner: k.count("ssm.inner_size", MOST),
        state: k.count("ssm.state_size", MOST),
        heads,
        groups: match kind {
            Recurrence::Mamba | Recurrence::Plamo => 0,
            _ => k.count(GROUPS, MOST),
        },
        // PLaMo derives it from the width, which is at least 64 then
        time: match kind {
            Recurrence::Plamo => (n_embd / 16).max(64),
            _ => heads,
        },
    };
    let Recurrent { inner, groups, .. } = sizes;
    if kind != Recurrence::Mamba && !inner.is_multiple_of(heads) {
        k.wrong(HEADS, format!("is {heads}, which does not divide {inner} channels"));
    }
    if groups > 0 && !(heads.is_multiple_of(groups) && inner.is_multiple_of(groups)) {
        k.wrong(GROUPS, format!("is {groups}, which does not divide {heads} heads of {inner} channels"));
    }
    if kind == Recurrence::Plamo && k.u32(GROUPS).is_some_and(|n| n > 0) {
        k.wrong(GROUPS, "must be 0 in models of PLaMo 2");
    }
    if kind.is_delta() && inner != heads.saturating_mul(sizes.state) {
        k.wrong("ssm.inner_size", format!("is {inner}, and {heads} heads have {} elements each", sizes.state));
    }
    let remembered = (sizes.kernel - 1).saturating_mul(sizes.channels());
    (sizes, [remembered, inner.saturating_mul(sizes.state)])
}

/// RWKV remembers a row for each of its mixers.
fn rwkv(k: &mut Keys<'_>, n_embd: usize, mixers: usize) -> (Recurrent, [usize; 2]) {
    const SIZE: &str = "wkv.head_size";
    const KEYS: &str = "attention.head_count_kv";
    let state = k.count(SIZE, MOST);
    if !n_embd.is_multiple_of(state) {
        k.wrong(SIZE, format!("is {state}, which does not divide {n_embd} elements"));
    }
    let heads = n_embd / state;
    // heads of keys and values; none stands for all
    let keys = k.u32(KEYS).filter(|&n| n > 0).map_or(heads, |n| n as usize);
    if !heads.is_multiple_of(keys) {
        k.wrong(KEYS, format!("is {keys}, which does not divide {heads} heads"));
    }
    let sizes = Recurrent { inner: n_embd, state, heads, groups: keys.min(heads), ..Recurrent::NONE };
    (sizes, [n_embd.saturating_mul(mixers), n_embd.saturating_mul(state)])
}

/// Kimi Delta Attention has as many heads as attention, and keys for each.
fn kimi(k: &mut Keys<'_>, heads: usize) -> (Recurrent, [usize; 2]) {
    let size = k.count("kda.head_dim", MOST);
    let inner = heads.saturating_mul(size);
    let sizes =
        Recurrent { kernel: k.count("ssm.conv_kernel", MOST), inner, state: size, heads, groups: heads, time: 0 };
    let remembered = (sizes.kernel - 1).saturating_mul(3 * inner);
    (sizes, [remembered, inner.saturating_mul(size)])
}

/// The key of the bound of decays.
const BOUND: &str = "kda.gate_lower_bound";

/// The bound of decays, which have to have one.
fn bound(k: &mut Keys<'_>) -> f32 {
    const SAFE: &str = "kda.safe_gate";
    if k.bool(SAFE) == Some(false) {
        k.wrong(SAFE, "is false, and decays have a bound");
    }
    checked_bound(k)
}

fn checked_bound(k: &mut Keys<'_>) -> f32 {
    let bound = k.f32(BOUND).unwrap_or(0.0);
    if !(bound.is_finite() && bound < 0.0) {
        k.wrong(BOUND, format!("is {bound}, it must be a number below 0"));
    }
    bound
}
