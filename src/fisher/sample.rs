//! Which sequences of a text are looked at.

use crate::sample::rng::Mt19937;

/// The numbers `0..n` in a random order that depends on `seed` alone; a shorter draw is the start of a
/// longer one.
pub struct Draw {
    rng: Mt19937,
    left: Vec<u32>,
}

impl Draw {
    /// A draw from `0..n`.
    pub fn new(n: u32, seed: u32) -> Draw {
        Draw { rng: Mt19937::new(seed), left: (0..n).collect() }
    }
}

impl Iterator for Draw {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.left.is_empty() {
            return None;
        }
        let random = u64::from(self.rng.next_u32());
        let at = (random * self.left.len() as u64) >> 32;
        Some(self.left.swap_remove(at as usize))
    }
}

/// Random sequences of `seq_len` tokens among the consecutive ones that `tokens` can be cut into, at most
/// `count`. `bos` replaces the first token of each.
pub fn chunks(tokens: &[u32], seq_len: usize, bos: Option<u32>, count: usize, seed: u32) -> Vec<Vec<u32>> {
    let all = tokens.len() / seq_len.max(1);
    let n = u32::try_from(all).unwrap_or(u32::MAX);
    let sequence = |i: u32| {
        let mut sequence = tokens[i as usize * seq_len..][..seq_len].to_vec();
        if let (Some(bos), Some(first)) = (bos, sequence.first_mut()) {
            *first = bos;
        }
        sequence
    };
    Draw::new(n, seed).take(count).map(sequence).collect()
}

/// The first `seq_len` tokens of random documents, at most `count` of those that have that many.
///
/// # Errors
/// Those of `encode`, which turns document number `i` into tokens.
pub fn documents<E>(
    documents: usize,
    seq_len: usize,
    count: usize,
    seed: u32,
    mut encode: impl FnMut(usize) -> Result<Vec<u32>, E>,
) -> Result<Vec<Vec<u32>>, E> {
    let n = u32::try_from(documents).unwrap_or(u32::MAX);
    let mut out = Vec::new();
    for i in Draw::new(n, seed) {
        if out.len() == count {
            break;
        }
        let mut tokens = encode(i as usize)?;
        if tokens.len() >= seq_len {
            tokens.truncate(seq_len);
            out.push(tokens);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_permutations_and_starts_of_longer_ones() {
        let all: Vec<u32> = Draw::new(100, 7).collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<u32>>());
        assert_ne!(all, sorted);
        assert!(Draw::new(100, 7).take(10).eq(all[..10].iter().copied()));
        assert_ne!(Draw::new(100, 8).collect::<Vec<u32>>(), all);
    }

    #[test]
    fn sequences_are_whole() {
        let tokens: Vec<u32> = (0..23).collect();
        let mut got = chunks(&tokens, 5, Some(99), 9, 1);
        got.sort_unstable_by_key(|s| s[1]);
        assert_eq!(got.len(), 4);
        assert_eq!(got[1], [99, 6, 7, 8, 9]);
        assert_eq!(chunks(&tokens, 5, None, 2, 1).len(), 2);
        assert!(chunks(&tokens, 24, None, 2, 1).is_empty());

        let lengths = [3, 5, 9, 4, 6];
        let encode = |i: usize| Ok::<_, ()>(vec![i as u32; lengths[i]]);
        let mut got = documents(5, 5, 9, 1, encode).expect("tokens");
        got.sort_unstable();
        assert_eq!(got, [[1; 5], [2; 5], [4; 5]]);
        assert_eq!(documents(5, 5, 1, 1, encode).expect("tokens").len(), 1);
    }
}
