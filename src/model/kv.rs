//! The key-value cache: half floats, laid out for the loops of [`crate::kernels::halves`].

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::kernels::Isa;
use crate::kernels::halves::{self, BLOCK, LANES, LINE, Line, Lines, STEPS, Tiles};
use crate::pool;

/// Positions of a tile.
pub const TILE: usize = LANES;
/// Words of positions of a tile.
const QUADS: usize = TILE / STEPS;

/// Values that are stored by one thread rather than by several.
const SMALL: usize = 1 << 14;

/// The cache of one layer, two bytes per element of whole tiles of positions.
///
/// Every head has a part of one region, first its keys, then its values, with room for `capacity` tiles.
/// A region that is full is replaced by one of an eighth more.
pub struct LayerCache {
    n_head: usize,
    /// Elements per head.
    pub head_dim: usize,
    isa: Isa,
    lines: Lines,
    /// Tiles that the region has room for, per head.
    capacity: usize,
    /// Tiles of a head that hold an infinity or a NaN, `[n_head][capacity]`.
    special: Vec<AtomicBool>,
}

/// Sizes of a tile of one head.
#[derive(Clone, Copy)]
struct Shape {
    /// Words of four elements of one position; what a head size lacks is zero.
    quads: usize,
    /// Lines of keys, `[head elements / 4][32 positions]`: a word is four elements of a position.
    keys: usize,
    /// Lines across the elements of values; what a head size lacks is zero.
    across: usize,
    /// Lines of values, `[head elements / 32][8][32 head elements]`: a word is four positions of an element.
    values: usize,
}

impl Shape {
    fn new(head_dim: usize) -> Shape {
        let (quads, across) = (head_dim.div_ceil(STEPS), head_dim.div_ceil(LINE));
        Shape {
            quads,
            keys: quads * BLOCK,
            across,
            values: QUADS * across,
        }
    }

    fn lines(self) -> usize {
        self.keys + self.values
    }
}

/// Keys and values of one KV head.
#[derive(Clone, Copy)]
pub struct HeadCache<'a> {
    shape: Shape,
    keys: &'a [Line],
    values: &'a [Line],
    special: &'a [AtomicBool],
}

impl<'a> HeadCache<'a> {
    /// Words of four elements of one key.
    pub fn key_quads(self) -> usize {
        self.shape.quads
    }

    /// Lines of the elements of a value.
    pub fn value_lines(self) -> usize {
        self.shape.across
    }

    /// Keys of a tile, one block of [`HeadCache::key_quads`] words.
    pub fn keys(self, tile: usize) -> &'a [Line] {
        &self.keys[tile * self.shape.keys..][..self.shape.keys]
    }

    /// The `wanted` lines of values from a tile on; `at_once` is passed on.
    pub fn values(self, tile: usize, wanted: Range<usize>, at_once: usize) -> Tiles<'a> {
        Tiles {
            words: &self.values[tile * self.shape.values..],
            lines: self.shape.across,
            wanted: (wanted.start, wanted.end),
            quads: QUADS,
            at_once,
        }
    }

    /// Whether a tile needs the functions for infinities and NaN.
    pub fn is_special(self, tile: usize) -> bool {
        self.special[tile].load(Ordering::Relaxed)
    }
}

impl LayerCache {
    /// An empty cache, whose values are converted with `isa`.
    pub fn new(n_head: usize, head_dim: usize, isa: Isa) -> LayerCache {
        LayerCache {
            n_head,
            head_dim,
            isa,
            lines: Lines::new(0),
            capacity: 0,
            special: Vec::new(),
        }
    }

    /// Number of KV heads.
    pub fn n_head(&self) -> usize {
        self.n_head
    }

    /// The part of one KV head.
    pub fn head(&self, head: usize) -> HeadCache<'_> {
        let shape = Shape::new(self.head_dim);
        let part = self.capacity * shape.lines();
        let (keys, values) = self.lines[head * part..][..part].split_at(self.capacity * shape.keys);
        HeadCache {
            shape,
            keys,
            values,
            special: &self.special[head * self.capacity..][..self.capacity],
        }
    }

    /// Makes room for positions below `end`; those below `used` stay.
    fn reserve(&mut self, used: usize, end: usize) {
        let (used, tiles) = (used.div_ceil(TILE), end.div_ceil(TILE));
        if tiles <= self.capacity {
            return;
        }
        let shape = Shape::new(self.head_dim);
        let per_tile = (self.n_head * shape.lines()).max(1);
        let wanted = tiles.max(self.capacity + self.capacity / 8);
        let mut lines = Lines::new(wanted * per_tile);
        let capacity = lines.len() / per_tile;
        let special = |i: usize| {
            let (head, tile) = (i / capacity, i % capacity);
            AtomicBool::new(tile < used && self.head(head).is_special(tile))
        };
        let special = (0..self.n_head * capacity).map(special).collect();
        let part = (capacity * shape.lines()).max(1);
        pool::chunks_mut(&mut lines[..self.n_head * part], part, |head, new| {
            if self.capacity > 0 {
                let old = self.head(head);
                let (keys, values) = new.split_at_mut(capacity * shape.keys);
                keys[..used * shape.keys].copy_from_slice(&old.keys[..used * shape.keys]);
                values[..used * shape.values].copy_from_slice(&old.values[..used * shape.values]);
            }
        });
        (self.lines, self.capacity, self.special) = (lines, capacity, special);
    }

    /// Stores the keys and values of consecutive positions from `first`, each row all heads in order,
    /// rounded to half floats. What stood at `first` and after is overwritten or forgotten.
    pub fn store(&mut self, first: usize, k: &[f32], v: &[f32]) {
        let (hd, isa) = (self.head_dim, self.isa);
        let width = self.n_head * hd;
        let tokens = k.len() / width;
        self.reserve(first, first + tokens);
        let shape = Shape::new(hd);
        let (capacity, special) = (self.capacity, &self.special);
        let part = capacity * shape.lines();
        let at_once = if k.len() < SMALL { self.n_head } else { 1 };
        let lines = &mut self.lines[..self.n_head * part];
        pool::chunks_mut(lines, at_once * part, |chunk, lines| {
            for (i, lines) in lines.chunks_exact_mut(part).enumerate() {
                let head = chunk * at_once + i;
                let (keys, values) = lines.split_at_mut(capacity * shape.keys);
                for t in 0..tokens {
                    let (tile, lane) = ((first + t) / TILE, (first + t) % TILE);
                    let (k, v) = (&k[t * width + head * hd..], &v[t * width + head * hd..]);
                    let keys = &mut keys[tile * shape.keys..][..shape.keys];
                    let values = &mut values[tile * shape.values..][..shape.values];
                    let is_special = halves::put_lane(isa, &k[..hd], keys, lane)
                        | halves::put_step(isa, &v[..hd], values, QUADS, lane);
                    // The first position of a tile forgets what was there before.
                    if lane == 0 || is_special {
                        special[head * capacity + tile].store(is_special, Ordering::Relaxed);
                    }
                }
            }
        });
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
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

    #[test]
    fn a_cache_that_grows_keeps_what_it_holds() {
        let (n_head, hd) = (4, 128);
        let width = n_head * hd;
        let row = |position: usize, salt: usize| -> Vec<f32> {
            let value = |i: usize| ((position * 31 + i * 7 + salt) % 2039) as f32;
            (0..width).map(value).collect()
        };
        let isa = Isa::detect();
        // All at once against one by one; the end is in large pages.
        let n = 9000;
        let all = |salt| (0..n).flat_map(|p| row(p, salt)).collect::<Vec<_>>();
        let mut whole = LayerCache::new(n_head, hd, isa);
        whole.store(0, &all(0), &all(5));
        let mut grown = LayerCache::new(n_head, hd, isa);
        for position in 0..n {
            let (mut k, v) = (row(position, 0), row(position, 5));
            if position == 100 {
                k[3 * hd] = f32::NAN;
            }
            grown.store(position, &k, &v);
        }
        for head in 0..n_head {
            let (a, b) = (whole.head(head), grown.head(head));
            for tile in 0..n.div_ceil(TILE) {
                let is_special = head == 3 && tile == 100 / TILE;
                assert_eq!(b.is_special(tile), is_special);
                let same = |a: &[Line], b: &[Line]| a.iter().zip(b).all(|(a, b)| a.0 == b.0);
                assert!(
                    is_special || same(a.keys(tile), b.keys(tile)),
                    "keys {tile}"
                );
                let values = |c: HeadCache<'_>| {
                    let tiles = c.values(tile, 0..c.value_lines(), 1);
                    tiles.words[..tiles.lines * QUADS].to_vec()
                };
                assert!(same(&values(a), &values(b)), "values {tile}");
            }
        }
    }
}
