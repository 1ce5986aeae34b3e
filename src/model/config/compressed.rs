//! Attention to compressed keys, as the metadata states it.

use super::keys::Keys;
use crate::arch::Arch;
use crate::arch::compressed_parts::{APART, OVERLAPPING};
use crate::ops::compress::Compress;

/// Largest number in the metadata of such attention.
const MOST: u32 = 1 << 20;

/// Attention to a window, and in some blocks to compressed keys of all positions.
#[derive(Clone, Debug)]
pub struct Compressed {
    /// Elements of the vector that queries are made of.
    pub query_rank: usize,
    /// Groups of heads whose outputs are projected together.
    pub groups: usize,
    /// Elements of the vector that they are projected to.
    pub rank: usize,
    /// Per block the positions that become one key; 0 for attention to the window alone.
    pub ratios: Vec<usize>,
}

impl Compressed {
    /// Read from the keys of a model of `n_layer` blocks with `n_head` heads, where the architecture has it.
    pub fn read(k: &mut Keys<'_>, arch: &Arch, n_layer: usize, n_head: usize) -> Option<Compressed> {
        const RATIOS: &str = "attention.compress_ratios";
        const GROUPS: &str = "attention.output_group_count";
        if !arch.attention.compressed {
            return None;
        }
        let ratios = k.u32s(RATIOS).unwrap_or_default();
        if ratios.len() < k.layers {
            k.entries(RATIOS, ratios.len(), k.layers);
        }
        let known = [0, OVERLAPPING as u32, APART as u32];
        if let Some(other) = ratios.iter().find(|ratio| !known.contains(ratio)) {
            k.wrong(RATIOS, format!("has {other}; the reference knows 0, {OVERLAPPING} and {APART}"));
        }
        let groups = k.count(GROUPS, MOST);
        if !n_head.is_multiple_of(groups) {
            k.wrong(GROUPS, format!("is {groups}, which does not divide {n_head} heads"));
        }
        let mut ratios: Vec<usize> = ratios.iter().map(|&ratio| ratio as usize).collect();
        ratios.resize(n_layer, 0);
        Some(Compressed {
            query_rank: k.count("attention.q_lora_rank", MOST),
            groups,
            rank: k.count("attention.output_lora_rank", MOST),
            ratios,
        })
    }

    /// True if blocks of `ratio` positions overlap.
    pub fn overlaps(ratio: usize) -> bool {
        ratio as u64 == OVERLAPPING
    }

    /// Numbers of the state of each block, whose keys have `head_dim` elements.
    pub fn states(&self, head_dim: usize) -> Vec<usize> {
        let state = |&ratio: &usize| match ratio {
            0 => 0,
            _ => Compress::state(head_dim, ratio, Compressed::overlaps(ratio)),
        };
        self.ratios.iter().map(state).collect()
    }

    /// Positions of the longest sequence in which an indexer chooses all of the overlapping blocks, of which it chooses
    /// as many as `most`; `None` where no block has one.
    pub fn indexed(&self, most: usize) -> Option<usize> {
        let overlapping = self.ratios.iter().find(|&&ratio| Compressed::overlaps(ratio))?;
        Some((most + 1) * overlapping - 1)
    }
}
