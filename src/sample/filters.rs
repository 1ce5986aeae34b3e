//! The filters that shorten the list, step by step as the reference takes them.
//!
//! All arithmetic is `f32` unless it says otherwise, sums run in list order.

use super::candidates::{Candidate, Candidates, bucket_sort};
use crate::math::{logf, powf};
use crate::ops::order;

impl Candidates {
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
    pub fn typical(&mut self, p: f32, min_keep: usize) {
        if p >= 1.0 {
            return;
        }
        self.sorted_softmax();
        let entropy = self.items.iter().fold(0f32, |e, c| e + -c.p * logf(c.p));
        let mut by_distance: Vec<(f32, Candidate)> =
            self.items.iter().map(|c| ((-logf(c.p) - entropy).abs(), *c)).collect();
        // A probability of 0 makes the entropy and every distance NaN; they then all compare equal.
        order::sort(&mut by_distance, |a, b| a.0 < b.0);
        let mut sum = 0f32;
        let mut keep = by_distance.len();
        for (i, (_, c)) in by_distance.iter().enumerate() {
            sum += c.p;
            if sum > p && i + 1 >= min_keep {
                keep = i + 1;
                break;
            }
        }
        self.items = by_distance[..keep].iter().map(|d| d.1).collect();
        self.sorted = false;
    }

    /// Top-p (nucleus): the most likely tokens until their probabilities reach `p`; 1 or more keeps all.
    pub fn top_p(&mut self, p: f32, min_keep: usize) {
        /// Candidates of a long list that are sorted at first.
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
            if sum >= p && i + 1 >= min_keep {
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
    pub fn min_p(&mut self, p: f32, min_keep: usize) {
        if p <= 0.0 {
            return;
        }
        let min = self.max() + logf(p);
        if !self.sorted {
            let kept = self.items.iter().filter(|c| c.logit >= min).count();
            if kept > 0 && kept >= min_keep {
                self.items.retain(|c| c.logit >= min);
                return;
            }
            self.sort();
        }
        let few = |(i, c): (usize, &Candidate)| c.logit < min && i >= min_keep;
        let rest = self.items.iter().enumerate().skip(1);
        let keep = rest.clone().position(few).map_or(self.items.len(), |i| i + 1);
        self.items.truncate(keep);
    }

    /// Top-nσ (Tang et al. 2024): logits no more than `n` standard deviations below the highest; 0 or less keeps all.
    /// The others stay in the list without a chance. Logits of -inf count for nothing.
    pub fn top_n_sigma(&mut self, n: f32) {
        if n <= 0.0 || self.items.len() <= 1 {
            return;
        }
        let finite = || self.items.iter().map(|c| c.logit).filter(|l| *l != f32::NEG_INFINITY);
        let count = finite().count() as f32;
        if count == 0.0 {
            return;
        }
        let max = finite().fold(self.items[0].logit, |m, l| if m < l { l } else { m });
        let mean = finite().fold(0f32, |sum, l| sum + l) / count;
        // The reference squares in double precision and keeps the sum in single.
        let squares = finite().fold(0f32, |sum, l| {
            let d = f64::from(l - mean);
            (f64::from(sum) + d * d) as f32
        });
        let min = max - n * (squares / count).sqrt();
        for c in &mut self.items {
            if c.logit < min {
                c.logit = f32::NEG_INFINITY;
            }
        }
    }

    /// XTC ("exclude top choices"): of the tokens with at least the probability `threshold`, all but the least likely
    /// leave the list, where `min_keep` tokens stay.
    pub fn exclude_top(&mut self, threshold: f32, min_keep: usize) {
        self.sorted_softmax();
        let likely = self.items.iter().take_while(|c| c.p >= threshold).count();
        let out = likely.saturating_sub(1);
        if self.items.len() - out >= min_keep {
            self.items.drain(..out);
        }
    }

    /// A temperature between `temp - range` and `temp + range`, by the entropy of the list.
    pub fn dynamic_temperature(&mut self, temp: f32, range: f32, exponent: f32) {
        if range <= 0.0 {
            return self.temperature(temp);
        }
        if self.items.len() <= 1 {
            return;
        }
        let (low, high) = ((temp - range).max(0.0), temp + range);
        let largest = -logf(1.0 / self.items.len() as f32);
        self.sorted_softmax();
        let likely = self.items.iter().filter(|c| c.p > 0.0);
        let entropy = likely.fold(0f32, |e, c| e - c.p * logf(c.p));
        let share = entropy / largest;
        self.temperature(low + (high - low) * powf(share, exponent));
    }

    /// Divides the logits by the temperature; 0 or less leaves only the first highest one above -inf.
    pub fn temperature(&mut self, temp: f32) {
        if temp > 0.0 {
            self.items.iter_mut().for_each(|c| c.logit /= temp);
            return;
        }
        let mut best = 0;
        for i in 1..self.items.len() {
            let loser = if self.items[i].logit > self.items[best].logit { std::mem::replace(&mut best, i) } else { i };
            self.items[loser].logit = f32::NEG_INFINITY;
        }
    }
}
