//! The candidate list and the filters that shorten it, step by step as the reference takes them.
//!
//! All arithmetic is `f32` unless it says otherwise, sums run in list order.

use crate::math::{expf, logf};
use crate::ops::order;

/// One token that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Token id.
    pub id: u32,
    /// Its logit.
    pub logit: f32,
    /// Its probability, once a filter has computed it.
    pub p: f32,
}

/// The tokens that may still be chosen.
pub struct Candidates {
    /// The list; never empty.
    pub items: Vec<Candidate>,
    /// Whether the list is ordered by falling logit.
    pub sorted: bool,
}

fn higher(a: &Candidate, b: &Candidate) -> bool {
    a.logit > b.logit
}

impl Candidates {
    /// All tokens in id order.
    pub fn new(logits: &[f32]) -> Candidates {
        let items = (0u32..)
            .zip(logits)
            .map(|(id, &logit)| Candidate { id, logit, p: 0.0 });
        Candidates {
            items: items.collect(),
            sorted: false,
        }
    }

    /// The largest logit.
    fn max(&self) -> f32 {
        let rest = if self.sorted {
            &[][..]
        } else {
            &self.items[1..]
        };
        rest.iter().fold(
            self.items[0].logit,
            |m, c| if m < c.logit { c.logit } else { m },
        )
    }

    /// Probabilities of the whole list, the sum in `f32`.
    fn softmax(&mut self) {
        let max = self.max();
        let mut sum = 0f32;
        for c in &mut self.items {
            c.p = expf(c.logit - max);
            sum += c.p;
        }
        self.items.iter_mut().for_each(|c| c.p /= sum);
    }

    /// Keeps the `n` highest logits, in falling order.
    fn keep_highest(&mut self, n: usize) {
        if n <= 128 {
            order::partial_sort(&mut self.items, n, higher);
        } else {
            self.items = bucket_sort(&self.items, n);
        }
        self.items.truncate(n);
        self.sorted = true;
    }

    /// Top-k: the `k` highest logits; 0 or less keeps all.
    pub fn top_k(&mut self, k: i32) {
        let Ok(k @ 1..) = usize::try_from(k) else {
            return;
        };
        let k = k.min(self.items.len());
        if !self.sorted {
            self.keep_highest(k);
        }
        self.items.truncate(k);
    }

    /// Locally typical sampling (Meister et al. 2022): the tokens whose information is nearest to the
    /// entropy, until their probabilities exceed `p`; 1 or more keeps all.
    pub fn typical(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        if !self.sorted {
            self.keep_highest(self.items.len());
        }
        self.softmax();
        let entropy = self.items.iter().fold(0f32, |e, c| e + -c.p * logf(c.p));
        let mut by_distance: Vec<(f32, Candidate)> = self
            .items
            .iter()
            .map(|c| ((-logf(c.p) - entropy).abs(), *c))
            .collect();
        // A probability of 0 makes the entropy and every distance NaN; they then all compare equal.
        order::sort(&mut by_distance, |a, b| a.0 < b.0);
        let mut sum = 0f32;
        let mut keep = by_distance.len();
        for (i, (_, c)) in by_distance.iter().enumerate() {
            sum += c.p;
            if sum > p {
                keep = i + 1;
                break;
            }
        }
        self.items = by_distance[..keep].iter().map(|d| d.1).collect();
        self.sorted = false;
    }

    /// Top-p (nucleus): the most likely tokens until their probabilities reach `p`; 1 or more keeps all.
    pub fn top_p(&mut self, p: f32) {
        /// Of a long list only so many are sorted at first.
        const FIRST: usize = 256;
        if p >= 1.0 {
            return;
        }
        self.softmax();
        let n = self.items.len();
        let (mut list, mut known) = if self.sorted {
            (std::mem::take(&mut self.items), n)
        } else if n > 1024 {
            (bucket_sort(&self.items, FIRST), FIRST)
        } else {
            self.keep_highest(n);
            (std::mem::take(&mut self.items), n)
        };
        let mut sum = 0f32;
        let mut keep = n;
        for i in 0..n {
            sum += list[i].p;
            if sum >= p {
                keep = i + 1;
                break;
            }
            if i + 1 == known && known < n {
                known = n;
                list = bucket_sort(&self.items, n);
            }
        }
        list.truncate(keep);
        self.items = list;
        self.sorted = true;
    }

    /// Min-p: the tokens at least `p` times as likely as the most likely one; 0 or less keeps all.
    pub fn min_p(&mut self, p: f32) {
        if p <= 0.0 {
            return;
        }
        let min = self.max() + logf(p);
        if self.sorted {
            let rest = &self.items[1..];
            let keep = 1 + rest
                .iter()
                .position(|c| c.logit < min)
                .unwrap_or(rest.len());
            self.items.truncate(keep);
        } else if self.items.iter().any(|c| c.logit >= min) {
            self.items.retain(|c| c.logit >= min);
        } else {
            self.keep_highest(self.items.len());
            self.items.truncate(1);
        }
    }

    /// Divides the logits by the temperature; 0 or less leaves only the first highest one above -inf.
    pub fn temperature(&mut self, temp: f32) {
        if temp > 0.0 {
            self.items.iter_mut().for_each(|c| c.logit /= temp);
            return;
        }
        let mut best = 0;
        for i in 1..self.items.len() {
            let loser = if self.items[i].logit > self.items[best].logit {
                std::mem::replace(&mut best, i)
            } else {
                i
            };
            self.items[loser].logit = f32::NEG_INFINITY;
        }
    }

    /// Chooses with `uniform` in [0, 1): the first token at which the running sum of the unnormalised
    /// probabilities (`f32` terms, `f64` sum) reaches that share of the total.
    pub fn choose(&self, uniform: f64) -> u32 {
        let max = self.max();
        let weight = |c: &Candidate| f64::from(expf(c.logit - max));
        let total: f64 = self.items.iter().map(weight).sum();
        let target = total * uniform;
        let mut sum = 0f64;
        for c in &self.items {
            sum += weight(c);
            if sum >= target {
                return c.id;
            }
        }
        self.items[self.items.len() - 1].id
    }
}

/// The `n` highest of `items` in falling order, followed by what else fell into the same bucket.
///
/// Logits are spread over 128 buckets of [-10, 10]; full buckets are sorted, the last one in part.
fn bucket_sort(items: &[Candidate], n: usize) -> Vec<Candidate> {
    const BUCKETS: usize = 128;
    const SCALE: f32 = 6.4;
    const SHIFT: f32 = 64.0;
    let bucket = |c: &Candidate| {
        let at = SCALE * c.logit + SHIFT;
        // Beyond the range of i32 the reference's conversion gives the lowest bucket.
        let at = if at.abs() < 2_147_483_648.0 {
            at as i32
        } else {
            i32::MIN
        };
        at.clamp(0, BUCKETS as i32 - 1) as usize
    };
    let mut buckets: Vec<Vec<Candidate>> = vec![Vec::new(); BUCKETS];
    for c in items {
        buckets[bucket(c)].push(*c);
    }
    let mut out = Vec::with_capacity(items.len());
    for mut list in buckets.into_iter().rev() {
        if out.len() + list.len() >= n {
            order::partial_sort(&mut list, n - out.len(), higher);
            out.append(&mut list);
            break;
        }
        order::sort(&mut list, higher);
        out.append(&mut list);
    }
    out
}
