//! The list of tokens that may still be chosen.
//!
//! All arithmetic is `f32` unless it says otherwise, sums run in list order.

use std::collections::HashSet;

use crate::math::expf;
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
    /// True if the list is ordered by falling logit.
    pub sorted: bool,
}

fn higher(a: &Candidate, b: &Candidate) -> bool {
    a.logit > b.logit
}

impl Candidates {
    /// All tokens in id order.
    pub fn new(logits: &[f32]) -> Candidates {
        let items = (0u32..).zip(logits).map(|(id, &logit)| Candidate { id, logit, p: 0.0 });
        Candidates { items: items.collect(), sorted: false }
    }

    /// The largest logit.
    pub fn max(&self) -> f32 {
        let rest = if self.sorted { &[][..] } else { &self.items[1..] };
        rest.iter().fold(self.items[0].logit, |m, c| if m < c.logit { c.logit } else { m })
    }

    /// Probabilities of the whole list, the sum in `f32`.
    pub fn softmax(&mut self) {
        let max = self.max();
        let mut sum = 0f32;
        for c in &mut self.items {
            c.p = expf(c.logit - max);
            sum += c.p;
        }
        self.items.iter_mut().for_each(|c| c.p /= sum);
    }

    /// The whole list in falling order, with probabilities.
    pub fn sorted_softmax(&mut self) {
        self.sort();
        self.softmax();
    }

    /// The whole list in falling order.
    pub fn sort(&mut self) {
        if !self.sorted {
            self.keep_highest(self.items.len());
        }
    }

    /// Calls `f` with every candidate that is one of `ids`, which are all different.
    pub fn each_of(&mut self, ids: impl Iterator<Item = u32>, mut f: impl FnMut(&mut Candidate)) {
        // At first every token stands at the place of its number; later it may be anywhere, or gone.
        let mut elsewhere = HashSet::new();
        for id in ids {
            match self.items.get_mut(id as usize) {
                Some(c) if c.id == id => f(c),
                _ => _ = elsewhere.insert(id),
            }
        }
        if !elsewhere.is_empty() {
            let moved = self.items.iter_mut().filter(|c| elsewhere.contains(&c.id));
            moved.for_each(f);
        }
    }

    /// Keeps the `n` highest logits, in falling order.
    pub fn keep_highest(&mut self, n: usize) {
        if n <= 128 {
            order::partial_sort(&mut self.items, n, higher);
        } else {
            self.items = bucket_sort(&self.items, n);
        }
        self.items.truncate(n);
        self.sorted = true;
    }
}

/// The `n` highest of `items` in falling order, followed by what else fell into the same bucket.
///
/// Logits are spread over 128 buckets of [-10, 10]; full buckets are sorted, the last one in part.
pub fn bucket_sort(items: &[Candidate], n: usize) -> Vec<Candidate> {
    const BUCKETS: usize = 128;
    const SCALE: f32 = 6.4;
    const SHIFT: f32 = 64.0;
    let bucket = |c: &Candidate| {
        let at = SCALE * c.logit + SHIFT;
        // Beyond the range of i32 the reference's conversion gives the lowest bucket.
        let at = if at.abs() < 2_147_483_648.0 { at as i32 } else { i32::MIN };
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
