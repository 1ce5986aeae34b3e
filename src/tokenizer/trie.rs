//! A byte trie in one hash map.

use std::collections::HashMap;

/// Maps byte strings to token ids and finds all keys that start at a position.
#[derive(Default)]
pub(super) struct Trie {
    edges: HashMap<u64, u32>,
    values: Vec<Option<u32>>,
}

impl Trie {
    /// The node of the empty string.
    pub(super) const ROOT: u32 = 0;

    pub(super) fn new() -> Self {
        Trie { edges: HashMap::new(), values: vec![None] }
    }

    /// Sets the value of `key`.
    pub(super) fn insert(&mut self, key: &[u8], value: u32) {
        let mut node = Self::ROOT;
        for &byte in key {
            let next = self.values.len() as u32;
            node = *self.edges.entry(edge(node, byte)).or_insert(next);
            if node == next {
                self.values.push(None);
            }
        }
        self.values[node as usize] = Some(value);
    }

    /// The child of `node` along `byte`.
    pub(super) fn step(&self, node: u32, byte: u8) -> Option<u32> {
        self.edges.get(&edge(node, byte)).copied()
    }

    /// The value that ends at `node`.
    pub(super) fn value(&self, node: u32) -> Option<u32> {
        self.values[node as usize]
    }

    /// The keys that `text` begins with, shortest first: their values and lengths.
    pub(super) fn prefixes<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = (u32, usize)> + 'a {
        let walk = text.iter().enumerate().scan(Self::ROOT, |node, (i, &byte)| {
            *node = self.step(*node, byte)?;
            Some((*node, i + 1))
        });
        walk.filter_map(|(node, len)| Some((self.value(node)?, len)))
    }

    /// The longest key that `text` begins with: its value and length.
    pub(super) fn longest(&self, text: &[u8]) -> Option<(u32, usize)> {
        self.prefixes(text).last()
    }

    /// How many bytes of `text` can be walked, whether or not a key ends there.
    pub(super) fn depth(&self, text: &[u8]) -> usize {
        let mut node = Self::ROOT;
        for (i, &byte) in text.iter().enumerate() {
            match self.step(node, byte) {
                Some(next) => node = next,
                None => return i,
            }
        }
        text.len()
    }
}

fn edge(node: u32, byte: u8) -> u64 {
    u64::from(node) << 8 | u64::from(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_keys_and_prefixes() {
        let mut t = Trie::new();
        t.insert(b"ab", 1);
        t.insert(b"abcd", 2);
        let ab = b"ab".iter().try_fold(Trie::ROOT, |n, &b| t.step(n, b)).unwrap();
        assert_eq!(t.value(ab), Some(1));
        assert_eq!(t.value(t.step(ab, b'c').unwrap()), None);
        assert_eq!(t.prefixes(b"abcde").collect::<Vec<_>>(), [(1, 2), (2, 4)]);
        assert_eq!(t.longest(b"abcx"), Some((1, 2)));
        assert_eq!(t.longest(b"a"), None);
        assert_eq!(t.depth(b"abcx"), 3);
        assert_eq!(t.depth(b"abcde"), 4);
        assert_eq!(t.depth(b"x"), 0);
    }
}
