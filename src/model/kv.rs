//! The key-value cache: half floats, laid out for the loops of [`crate::kernels::halves`].

use std::ops::Range;

use crate::kernels::Isa;
use crate::kernels::halves::{self, BLOCK, LANES, LINE, Line, STEPS, Tiles};
use crate::pool;

/// Positions of a tile.
pub const TILE: usize = LANES;

/// Words of positions of a tile.
const QUADS: usize = TILE / STEPS;

/// Values that are stored by one thread rather than by several.
const SMALL: usize = 1 << 14;

/// Keys and values of one KV head, two bytes per element. Grows with the positions in whole tiles.
#[derive(Default)]
pub struct HeadCache {
    /// `[tile][head elements / 4][32 positions]`: a word is four elements of a position.
    keys: Vec<Line>,
    /// `[tile][head elements / 32][8][32 head elements]`: a word is four positions of an element.
    values: Vec<Line>,
    /// Tiles that hold an infinity or a NaN.
    special: Vec<bool>,
    head_dim: usize,
}

impl HeadCache {
    /// Words of four elements of one position; what a head size lacks is zero.
    pub fn key_quads(&self) -> usize {
        self.head_dim.div_ceil(STEPS)
    }

    fn key_lines(&self) -> usize {
        self.key_quads() * BLOCK
    }

    /// Lines of head elements; what a head size lacks is zero.
    pub fn value_lines(&self) -> usize {
        self.head_dim.div_ceil(LINE)
    }

    /// Keys of a tile, one block of [`HeadCache::key_quads`] words.
    pub fn keys(&self, tile: usize) -> &[Line] {
        &self.keys[tile * self.key_lines()..][..self.key_lines()]
    }

    /// The `wanted` lines of values from a tile on; `at_once` is passed on.
    pub fn values(&self, tile: usize, wanted: Range<usize>, at_once: usize) -> Tiles<'_> {
        let lines = self.value_lines();
        Tiles {
            words: &self.values[tile * QUADS * lines..],
            lines,
            wanted: (wanted.start, wanted.end),
            quads: QUADS,
            at_once,
        }
    }

    /// Whether a tile needs the functions for infinities and NaN.
    pub fn is_special(&self, tile: usize) -> bool {
        self.special[tile]
    }

    /// Makes room for positions below `end` and forgets tiles beyond.
    fn resize(&mut self, end: usize) {
        fn resize<T: Clone + Default>(v: &mut Vec<T>, len: usize) {
            if len > v.capacity() {
                // An eighth at a time: the vector's own doubling could take twice what is needed.
                v.reserve_exact((len - v.len()).max(v.len() / 8));
            }
            v.resize(len, T::default());
        }
        let tiles = end.div_ceil(TILE);
        let (keys, values) = (self.key_lines(), QUADS * self.value_lines());
        resize(&mut self.keys, tiles * keys);
        resize(&mut self.values, tiles * values);
        resize(&mut self.special, tiles);
    }

    fn store(&mut self, isa: Isa, position: usize, k: &[f32], v: &[f32]) {
        let (tile, lane) = (position / TILE, position % TILE);
        let (keys, values) = (self.key_lines(), QUADS * self.value_lines());
        let block = &mut self.keys[tile * keys..][..keys];
        let mut special = halves::put_lane(isa, k, block, lane);
        let values = &mut self.values[tile * values..][..values];
        special |= halves::put_step(isa, v, values, QUADS, lane);
        // The first position of a tile forgets what was there before.
        special |= lane != 0 && self.special[tile];
        self.special[tile] = special;
    }
}

/// The cache of one layer.
pub struct LayerCache {
    /// One entry per KV head.
    pub heads: Vec<HeadCache>,
    /// Elements per head.
    pub head_dim: usize,
    isa: Isa,
}

impl LayerCache {
    /// An empty cache, whose values are converted with `isa`.
    pub fn new(n_head: usize, head_dim: usize, isa: Isa) -> LayerCache {
        let head = || HeadCache {
            head_dim,
            ..HeadCache::default()
        };
        LayerCache {
            heads: (0..n_head).map(|_| head()).collect(),
            head_dim,
            isa,
        }
    }

    /// Stores the keys and values of consecutive positions from `first`, each row all heads in order,
    /// rounded to half floats. What stood at `first` and after is overwritten or forgotten.
    pub fn store(&mut self, first: usize, k: &[f32], v: &[f32]) {
        let (hd, isa) = (self.head_dim, self.isa);
        let width = self.heads.len() * hd;
        let tokens = k.len() / width;
        let at_once = if k.len() < SMALL { self.heads.len() } else { 1 };
        pool::chunks_mut(&mut self.heads, at_once, |chunk, heads| {
            for (i, head) in heads.iter_mut().enumerate() {
                head.resize(first + tokens);
                for t in 0..tokens {
                    let at = t * width + (chunk * at_once + i) * hd;
                    head.store(isa, first + t, &k[at..][..hd], &v[at..][..hd]);
                }
            }
        });
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let lines: usize = self
            .heads
            .iter()
            .map(|h| h.keys.capacity() + h.values.capacity())
            .sum();
        lines * size_of::<Line>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_takes_two_bytes_per_element_of_whole_tiles() {
        for hd in [64, 96, 128] {
            let mut cache = LayerCache::new(3, hd, Isa::detect());
            cache.store(0, &vec![1.0; 3 * hd], &vec![1.0; 3 * hd]);
            assert_eq!(cache.bytes(), 3 * hd * TILE * 2 * 2);
            for position in 1..1000 {
                cache.store(position, &vec![1.0; 3 * hd], &vec![1.0; 3 * hd]);
            }
            let needed = 3 * hd * 1000 * 2 * 2;
            assert!(cache.bytes() >= needed && cache.bytes() <= needed / 8 * 9 + needed / 20);
        }
    }
}
