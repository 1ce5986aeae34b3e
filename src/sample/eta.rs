//! Eta sampling (Hewitt, Manning and Liang 2022, "Truncation Sampling as Language Model Desmoothing", section 4): a
//! token stays when its probability is no lower than a fixed one, or no lower than a share of what a uniform
//! distribution of the same entropy would give it.
//!
//! All arithmetic is `f32`, the entropy in nats is summed in list order.

use super::candidates::Candidates;
use crate::math::{expf, logf};

impl Candidates {
    /// The tokens at least as likely as η = min(ε, √ε · exp(-H)), where H is the entropy of the list; at least
    /// `min_keep` of them and always the most likely one. An ε of 0 or less keeps all.
    pub fn eta(&mut self, epsilon: f32, min_keep: usize) {
        if epsilon <= 0.0 {
            return;
        }
        self.sorted_softmax();
        let likely = self.items.iter().filter(|c| c.p > 0.0);
        let entropy = likely.fold(0f32, |e, c| e - c.p * logf(c.p));
        let eta = epsilon.min(epsilon.sqrt() * expf(-entropy));
        let kept = self.items.iter().take_while(|c| c.p >= eta).count();
        self.items.truncate(kept.max(min_keep).max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens that stay of these probabilities.
    fn kept(probabilities: &[f64], epsilon: f32, min_keep: usize) -> Vec<u32> {
        let logits: Vec<f32> = probabilities.iter().map(|&p| crate::math::log(p) as f32).collect();
        let mut list = Candidates::new(&logits);
        list.eta(epsilon, min_keep);
        list.items.iter().map(|c| c.id).collect()
    }

    /// The definition in double precision.
    fn expected(probabilities: &[f64], epsilon: f64) -> Vec<u32> {
        let entropy: f64 = probabilities.iter().filter(|p| **p > 0.0).map(|&p| -p * crate::math::log(p)).sum();
        let eta = epsilon.min(epsilon.sqrt() * crate::math::exp(-entropy));
        let mut ids: Vec<u32> = (0..probabilities.len() as u32).filter(|&i| probabilities[i as usize] >= eta).collect();
        ids.sort_by(|&a, &b| probabilities[b as usize].total_cmp(&probabilities[a as usize]));
        ids
    }

    #[test]
    fn certain_texts_are_cut_at_epsilon_and_open_ones_by_their_entropy() {
        // An entropy of 0.17 nats: η is ε.
        let sharp = [0.0009, 0.97, 0.02, 0.0091];
        assert_eq!(kept(&sharp, 0.01, 0), [1, 2]);
        assert_eq!(kept(&sharp, 0.01, 0), expected(&sharp, 0.01));
        // 400 tokens nearly alike, of 5.99 nats: η is √0.01 · exp(-5.99) = 0.00025, far below ε.
        let mut flat = vec![0.0025; 400];
        (flat[7], flat[8]) = (0.0001, 0.0049);
        assert_eq!(kept(&flat, 0.01, 0).len(), 399);
        assert_eq!(kept(&flat, 0.01, 0)[0], 8);
        assert!(!kept(&flat, 0.01, 0).contains(&7));
        let mut random = super::super::rng::Mt19937::new(5);
        for n in [2, 10, 300] {
            let weights: Vec<f64> = (0..n).map(|_| random.next_f64()).map(|x| x * x * x * x * x * x).collect();
            let sum: f64 = weights.iter().sum();
            let probabilities: Vec<f64> = weights.iter().map(|w| w / sum).collect();
            for epsilon in [0.0003, 0.01, 0.2] {
                assert_eq!(kept(&probabilities, epsilon, 0), expected(&probabilities, f64::from(epsilon)));
            }
        }
    }

    #[test]
    fn some_tokens_always_stay() {
        let sharp = [0.1, 0.7, 0.2];
        assert_eq!(kept(&sharp, 1.0, 0), [1]);
        assert_eq!(kept(&sharp, 1.0, 2), [1, 2]);
        assert_eq!(kept(&sharp, 1.0, 9), [1, 2, 0]);
        assert_eq!(kept(&sharp, 0.0, 0), [0, 1, 2]);
    }
}
