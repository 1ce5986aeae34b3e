//! SentencePiece BPE by score (`tokenizer.ggml.model` = `llama`).
//!
//! The text starts as single characters. Of all neighbours whose joined text is a token, the pair with
//! the highest score is joined, the leftmost of equals first, until no pair is left. What is no token
//! then is written byte by byte.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::error::TokenizerError;
use super::vocab::Vocab;

/// A piece of the text in the chain of pieces; `len` is 0 once it is part of its left neighbour.
struct Symbol {
    start: usize,
    len: usize,
    prev: Option<usize>,
    next: Option<usize>,
}

/// Two neighbours that can be joined to a token of `len` bytes.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    len: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        // Scores are never NaN, and -0 equals 0 here as it does in C.
        self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pair {}

/// Appends the tokens of `text`, whose spaces are escaped already.
pub(super) fn encode(vocab: &Vocab, text: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
    let bytes = text.as_bytes();
    let mut symbols: Vec<Symbol> = text
        .char_indices()
        .enumerate()
        .map(|(i, (start, c))| Symbol { start, len: c.len_utf8(), prev: i.checked_sub(1), next: Some(i + 1) })
        .collect();
    if let Some(last) = symbols.last_mut() {
        last.next = None;
    }
    let candidate = |symbols: &[Symbol], left: Option<usize>, right: Option<usize>| {
        let (left, right) = (left?, right?);
        let start = symbols[left].start;
        let len = symbols[left].len + symbols[right].len;
        let id = vocab.id(&bytes[start..start + len])?;
        Some(Pair { score: vocab.score(id), left, right, len })
    };
    let mut queue: BinaryHeap<Pair> =
        (1..symbols.len()).filter_map(|i| candidate(&symbols, Some(i - 1), Some(i))).collect();
    while let Some(pair) = queue.pop() {
        let (left, right) = (&symbols[pair.left], &symbols[pair.right]);
        if left.len == 0 || right.len == 0 || left.len + right.len != pair.len {
            continue; // one of the two has been joined to something else since
        }
        let after = right.next;
        symbols[pair.right].len = 0;
        symbols[pair.left].len = pair.len;
        symbols[pair.left].next = after;
        if let Some(after) = after {
            symbols[after].prev = Some(pair.left);
        }
        let before = symbols[pair.left].prev;
        queue.extend(candidate(&symbols, before, Some(pair.left)));
        queue.extend(candidate(&symbols, Some(pair.left), after));
    }
    for s in symbols.iter().filter(|s| s.len > 0) {
        let piece = &bytes[s.start..s.start + s.len];
        match vocab.id(piece) {
            Some(id) => out.push(id),
            None => {
                for &byte in piece {
                    out.push(vocab.fallback(byte)?);
                }
            }
        }
    }
    Ok(())
}
