//! The key-value cache: half floats, laid out for the loop of [`crate::kernels::halves`].

use trine_formats::types::num::f32_to_f16;

/// Positions per key tile and lanes of the attention kernel.
pub const TILE: usize = crate::kernels::halves::LANES;

/// Keys and values of one KV head. Grows with the positions, never ahead of them by more than a tile.
#[derive(Default)]
pub struct HeadCache {
    /// Tiles of 16 positions, `[tile][element][position in tile]`.
    keys: Vec<u16>,
    /// `[position][value_stride]`.
    pub values: Vec<u16>,
    /// Head size rounded up to whole lanes; the padding is zero.
    pub value_stride: usize,
    head_dim: usize,
}

impl HeadCache {
    /// Keys of positions `16 * tile ..`, `[element][16]`.
    pub fn key_tile(&self, tile: usize) -> &[u16] {
        &self.keys[tile * self.head_dim * TILE..][..self.head_dim * TILE]
    }
}

/// The cache of one layer.
pub struct LayerCache {
    /// One entry per KV head.
    pub heads: Vec<HeadCache>,
    /// Elements per head.
    pub head_dim: usize,
}

impl LayerCache {
    /// An empty cache.
    pub fn new(n_head: usize, head_dim: usize) -> LayerCache {
        let head = || HeadCache {
            value_stride: head_dim.next_multiple_of(TILE),
            head_dim,
            ..HeadCache::default()
        };
        LayerCache {
            heads: (0..n_head).map(|_| head()).collect(),
            head_dim,
        }
    }

    /// Stores the keys and values of consecutive positions from `first`, each row all heads in order,
    /// rounded to half floats. What stood at `first` and after is overwritten or forgotten.
    pub fn store(&mut self, first: usize, k: &[f32], v: &[f32]) {
        let hd = self.head_dim;
        let width = self.heads.len() * hd;
        let tokens = k.len() / width;
        for (h, head) in self.heads.iter_mut().enumerate() {
            let end = first + tokens;
            head.keys.resize(end.div_ceil(TILE) * hd * TILE, 0);
            // The attention kernel reads whole lanes and, in scores, whole tiles.
            head.values.resize(end * head.value_stride, 0);
            for t in 0..tokens {
                let position = first + t;
                let row = t * width + h * hd..t * width + (h + 1) * hd;
                let tile = &mut head.keys[position / TILE * hd * TILE..][..hd * TILE];
                for (element, &x) in tile.chunks_exact_mut(TILE).zip(&k[row.clone()]) {
                    element[position % TILE] = f32_to_f16(x);
                }
                let values = &mut head.values[position * head.value_stride..][..hd];
                for (y, &x) in values.iter_mut().zip(&v[row]) {
                    *y = f32_to_f16(x);
                }
            }
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.heads
            .iter()
            .map(|h| 2 * (h.keys.capacity() + h.values.capacity()))
            .sum()
    }
}
