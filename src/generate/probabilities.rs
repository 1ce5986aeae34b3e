//! How likely tokens were.

use crate::eval::LogProbabilities;

/// The probabilities that are told with a token.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// By the model.
    Logprobs(TokenLogprobs),
    /// To be sampled.
    Odds(TokenOdds),
}

/// The probability of a token by the model, before anything was done to the logits.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// The token.
    pub id: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The most likely tokens, the likeliest first; of equal ones the lower id first.
    pub top: Vec<(u32, f32)>,
}

/// The probability of a token to be sampled, behind the sampler's chain.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenOdds {
    /// The token.
    pub id: u32,
    /// Its probability.
    pub odds: f32,
    /// The tokens that were likeliest to be sampled, the likeliest first, none of probability 0; of equal ones the
    /// lower id first.
    pub top: Vec<(u32, f32)>,
}

impl TokenLogprobs {
    /// The probability of `id` by `logits`, with the `top` most likely tokens.
    pub fn new(logits: &[f32], id: u32, top: usize) -> TokenLogprobs {
        let all = LogProbabilities::new(logits);
        let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
        let by_logit = |a: &u32, b: &u32| {
            let (x, y) = (logits[*a as usize], logits[*b as usize]);
            y.total_cmp(&x).then(a.cmp(b))
        };
        if top < ids.len() {
            if top > 0 {
                ids.select_nth_unstable_by(top - 1, by_logit);
            }
            ids.truncate(top);
        }
        ids.sort_unstable_by(by_logit);
        TokenLogprobs { id, logprob: all.of(id) as f32, top: ids.iter().map(|&t| (t, all.of(t) as f32)).collect() }
    }
}

impl TokenOdds {
    /// The probability of `id` among `odds`, which are ordered by falling probability, with the first `top` of them.
    pub fn new(odds: &[(u32, f32)], id: u32, top: usize) -> TokenOdds {
        let of = odds.iter().find(|(token, _)| *token == id);
        TokenOdds { id, odds: of.map_or(0.0, |(_, p)| *p), top: odds.iter().take(top).copied().collect() }
    }
}
