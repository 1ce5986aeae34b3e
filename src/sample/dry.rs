//! DRY ("don't repeat yourself"): a penalty that grows with the length of the repetition that a token would continue.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::candidates::Candidates;
use super::recent::Recent;
use crate::math;

/// The options of DRY.
#[derive(Clone, Debug, PartialEq)]
pub struct DryOptions {
    /// How large the penalty is: this times `base` to the power of what the repetition is longer than allowed; 0: off.
    pub multiplier: f32,
    /// How fast it grows; below 1: off.
    pub base: f32,
    /// The longest repetition without a penalty, in tokens.
    pub allowed_length: usize,
    /// How many tokens are looked through; 0: off.
    pub last_n: usize,
    /// Tokens that end every repetition.
    pub breakers: DryBreakers,
}

impl Default for DryOptions {
    fn default() -> DryOptions {
        DryOptions { multiplier: 0.0, base: 1.75, allowed_length: 2, last_n: 64, breakers: DryBreakers::default() }
    }
}

impl DryOptions {
    /// The texts that llama.cpp breaks repetitions at unless others are asked for.
    pub const BREAKERS: [&'static str; 4] = ["\n", ":", "\"", "*"];

    /// True if there is anything to do.
    pub fn is_on(&self) -> bool {
        self.multiplier != 0.0 && self.base >= 1.0 && self.last_n != 0
    }
}

/// Texts that end repetitions, as tokens: by the token that such a text begins in, the rest of its tokens. Cloning
/// shares them: a text that stands in most tokens makes a long list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DryBreakers(Arc<BTreeMap<u32, Vec<Vec<u32>>>>);

/// Properties of a vocabulary that [`DryBreakers`] need.
pub trait Vocabulary {
    /// Tokens in it.
    fn n_tokens(&self) -> u32;
    /// The bytes of a token, those of a control token as they are written.
    fn bytes(&self, id: u32) -> Vec<u8>;
    /// The tokens of a text in the middle of another, without any that stand for no text.
    fn tokens(&self, text: &[u8]) -> Vec<u32>;
}

impl DryBreakers {
    /// Longest text in bytes; the rest is left out.
    const MOST_BYTES: usize = 40;
    /// Most tokens behind the first.
    const MOST_TOKENS: usize = 20;

    /// Finds every way in which one of `texts` can stand in tokens: whole in one of them, or begun at the end of one
    /// and continued in others. Empty texts break nothing.
    pub fn new(vocabulary: &impl Vocabulary, texts: &[impl AsRef<[u8]>]) -> DryBreakers {
        let mut found: BTreeMap<u32, Vec<Vec<u32>>> = BTreeMap::new();
        let pieces: Vec<Vec<u8>> = (0..vocabulary.n_tokens()).map(|id| vocabulary.bytes(id)).collect();
        for text in texts {
            let text = text.as_ref();
            let text = &text[..text.len().min(Self::MOST_BYTES)];
            if text.is_empty() {
                continue;
            }
            // The tokens of what is left of the text behind its first bytes.
            let mut tails: HashMap<usize, Vec<u32>> = HashMap::new();
            for (id, piece) in (0u32..).zip(&pieces) {
                if piece.windows(text.len()).any(|w| w == text) {
                    found.entry(id).or_default().push(Vec::new());
                    continue;
                }
                for at in 0..piece.len() {
                    let end = &piece[at..];
                    if end.len() < text.len() && text.starts_with(end) {
                        // Few of all pairs come to this: vocabularies are long.
                        let here = found.entry(id).or_default();
                        let tail = tails.entry(end.len()).or_insert_with(|| {
                            let mut tail = vocabulary.tokens(&text[end.len()..]);
                            tail.truncate(Self::MOST_TOKENS);
                            tail
                        });
                        if !here.contains(tail) {
                            here.push(tail.clone());
                        }
                    }
                }
            }
        }
        DryBreakers(Arc::new(found))
    }

    /// From sequences of tokens; empty ones break nothing.
    pub fn from_tokens(sequences: &[Vec<u32>]) -> DryBreakers {
        let mut found: BTreeMap<u32, Vec<Vec<u32>>> = BTreeMap::new();
        for sequence in sequences {
            if let [first, rest @ ..] = &sequence[..] {
                found.entry(*first).or_default().push(rest.to_vec());
            }
        }
        DryBreakers(Arc::new(found))
    }

    /// True if the token ends every repetition by itself.
    fn is_one(&self, id: u32) -> bool {
        let tails = self.0.get(&id);
        tails.is_some_and(|t| t.iter().any(Vec::is_empty))
    }

    /// How many of the last tokens come after the last breaker.
    fn limit(&self, recent: &Recent) -> usize {
        for i in 0..recent.len() {
            let Some(tails) = self.0.get(&recent.back(i)) else {
                continue;
            };
            let stands = |tail: &&Vec<u32>| {
                let n = tail.len();
                n <= i && (0..n).all(|o| tail[o] == recent.back(i - o - 1))
            };
            if let Some(longest) = tails.iter().filter(stands).map(Vec::len).max() {
                return i - longest;
            }
        }
        recent.len()
    }
}

/// The step with its memory.
#[derive(Clone)]
pub struct Dry {
    options: DryOptions,
    recent: Recent,
}

impl Dry {
    /// The step before any token.
    pub fn new(options: DryOptions) -> Dry {
        Dry { recent: Recent::new(options.last_n), options }
    }

    /// Remembers a token.
    pub fn accept(&mut self, id: u32) {
        self.recent.push(id);
    }

    /// Lowers the logits of tokens that would continue a repetition.
    pub fn apply(&self, list: &mut Candidates) {
        let o = &self.options;
        if self.recent.len() <= o.allowed_length {
            return;
        }
        let limit = o.breakers.limit(&self.recent);
        if limit < o.allowed_length {
            return;
        }
        let longest = self.longest(limit);
        let most = match o.base {
            // The exponent at which a power of the base overflows; ln of the largest f32 as the reference has it.
            base if base > 1.000_001 => (f32::from_bits(0x42b1_7218) / math::logf(base)) as i32,
            _ => 0,
        };
        list.each_of(longest.keys().copied(), |c| {
            if o.breakers.is_one(c.id) {
                return;
            }
            let mut exponent = longest[&c.id] as i32 - o.allowed_length as i32;
            if most > 0 {
                exponent = exponent.min(most);
            }
            let power = math::pow(f64::from(o.base), f64::from(exponent));
            c.logit -= (f64::from(o.multiplier) * power) as f32;
        });
        list.sorted = false;
    }

    /// Length of the longest repetition that each token would continue.
    fn longest(&self, limit: usize) -> HashMap<u32, usize> {
        let n = self.recent.len();
        let mut longest: HashMap<u32, usize> = HashMap::new();
        for (k, &length) in self.suffixes(limit).iter().enumerate().skip(1) {
            if length >= self.options.allowed_length && k < n {
                let next = self.recent.back(k - 1);
                let known = longest.entry(next).or_insert(length);
                *known = length.max(*known);
            }
        }
        longest
    }

    /// For each `k`, how many tokens before and at the one `k` places from the end are those at the end of the text, at
    /// most `limit`: the Z-function of the text read backwards.
    fn suffixes(&self, limit: usize) -> Vec<usize> {
        let n = self.recent.len();
        let same = |a: usize, b: usize| self.recent.back(a) == self.recent.back(b);
        let mut lengths = vec![0; n];
        // The range [left, right] that is known to equal the beginning; empty at first.
        let (mut left, mut right) = (0, 0);
        for k in 1..n {
            let known = if k > right {
                0
            } else {
                let inside = right - k + 1;
                if lengths[k - left] < inside {
                    lengths[k] = lengths[k - left].min(limit);
                    continue;
                }
                inside
            };
            let mut length = known;
            while length + k < n && same(length, length + k) {
                length += 1;
            }
            lengths[k] = length.min(limit);
            if length > 0 {
                (left, right) = (k, k + length - 1);
            }
        }
        lengths
    }
}
