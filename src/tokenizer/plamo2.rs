//! PLaMo 2's tokenizer (`tokenizer.ggml.model` = `plamo2`): the segmentation with the highest sum of scores, over
//! characters, found from the end of the text to its start.
//!
//! Scores count in steps of 1/10000, so sums are exact and no order of additions decides. A character that no token
//! covers costs 1000 and becomes the tokens of its bytes. Of equal sums the longer first token wins.

use super::error::TokenizerError;
use super::trie::Trie;
use super::vocab::{BYTE, Vocab};

/// Cost of a character without a token, in steps.
const UNKNOWN_COST: i64 = 10_000_000;
/// Tokens that cost this much or more are never taken.
const COST_LIMIT: i64 = 20_000_000;

/// Tokens by their texts, and the tokens of the 256 bytes.
pub(super) struct Plamo2 {
    tokens: Trie,
    /// In steps, by token id.
    costs: Vec<i64>,
    bytes: [Option<u32>; 256],
}

/// The best way from a position to the end of the text.
#[derive(Clone, Copy)]
struct Step {
    cost: i64,
    /// The token that comes next; none for the bytes of one character.
    token: Option<u32>,
    /// How many bytes it covers.
    len: usize,
}

impl Plamo2 {
    pub(super) fn new(vocab: &Vocab) -> Plamo2 {
        let mut tokens = Trie::new();
        let mut costs = vec![0; vocab.len()];
        let mut bytes = [None; 256];
        for id in 0..vocab.len() as u32 {
            if vocab.attr(id) & BYTE != 0 {
                if let Some(byte) = vocab.byte_value(id) {
                    bytes[usize::from(byte)] = Some(id);
                }
            } else if let Some(cost) = cost_of(vocab.score(id)) {
                // Positions are those of characters, which other tokens than texts would not keep.
                if std::str::from_utf8(vocab.text(id)).is_ok() {
                    tokens.insert(vocab.text(id), id);
                    costs[id as usize] = cost;
                }
            }
        }
        Plamo2 { tokens, costs, bytes }
    }

    /// Appends the tokens of `text` without its byte order mark.
    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let bytes = text.as_bytes();
        let end = Step { cost: 0, token: None, len: 0 };
        let mut best = vec![end; bytes.len() + 1];
        for (at, c) in text.char_indices().rev() {
            let len = c.len_utf8();
            let mut step = Step { cost: best[at + len].cost + UNKNOWN_COST, token: None, len };
            for (id, len) in self.tokens.prefixes(&bytes[at..]) {
                let cost = best[at + len].cost + self.costs[id as usize];
                if cost <= step.cost {
                    step = Step { cost, token: Some(id), len };
                }
            }
            best[at] = step;
        }
        let mut at = 0;
        while at < bytes.len() {
            let step = best[at];
            match step.token {
                Some(id) => out.push(id),
                None => {
                    for &byte in &bytes[at..at + step.len] {
                        out.push(self.byte_token(byte)?);
                    }
                }
            }
            at += step.len;
        }
        Ok(())
    }

    fn byte_token(&self, byte: u8) -> Result<u32, TokenizerError> {
        self.bytes[usize::from(byte)]
            .ok_or_else(|| TokenizerError::NoToken { what: format!("token for the byte 0x{byte:02X}") })
    }
}

/// The cost of a token with `score`, in steps; none for one that is never taken.
fn cost_of(score: f32) -> Option<i64> {
    let steps = (f64::from(score) * 1e4).round();
    // The reference keeps steps in 32 bits.
    (steps.abs() <= f64::from(i32::MAX)).then_some(-(steps as i64)).filter(|&cost| cost < COST_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tokenizer of these tokens and costs, in which byte N is token 1000 + N.
    fn of(tokens: &[(&str, i64)]) -> Plamo2 {
        let mut all = Trie::new();
        for (id, (text, _)) in tokens.iter().enumerate() {
            all.insert(text.as_bytes(), id as u32);
        }
        Plamo2 {
            tokens: all,
            costs: tokens.iter().map(|&(_, cost)| cost).collect(),
            bytes: std::array::from_fn(|byte| Some(1000 + byte as u32)),
        }
    }

    fn encoded(tokenizer: &Plamo2, text: &str) -> Vec<u32> {
        let mut out = Vec::new();
        tokenizer.encode(text, &mut out).expect("all bytes");
        out
    }

    #[test]
    fn of_equal_costs_the_longer_first_token_wins() {
        let costs = [("a", 3), ("b", 4), ("ab", 7), ("bc", 5), ("c", 1)];
        let tied = of(&costs);
        assert_eq!(encoded(&tied, "ab"), [2]);
        assert_eq!(encoded(&tied, "abc"), [2, 4]);
        assert_eq!(encoded(&tied, "bc"), [3]);
        let dearer = of(&[("a", 3), ("b", 4), ("ab", 8)]);
        assert_eq!(encoded(&dearer, "ab"), [0, 1]);
    }

    #[test]
    fn a_token_that_costs_as_much_as_bytes_is_taken() {
        let tied = of(&[("x", UNKNOWN_COST), ("y", UNKNOWN_COST + 1)]);
        assert_eq!(encoded(&tied, "xy"), [0, 1000 + u32::from(b'y')]);
    }
}
