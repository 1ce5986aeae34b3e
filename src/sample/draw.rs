//! The last step: one token out of the list, and what is remembered for the next one.

use super::candidates::Candidates;
use super::options::{Mirostat, MirostatVersion};
use super::rng::Mt19937;
use crate::math::{expf, log2f, logf, powf};

/// Draws with the probabilities of the list. Takes exactly one random number, whatever is in the list.
pub fn draw(list: &Candidates, rng: &mut Mt19937) -> u32 {
    let uniform = rng.next_f64();
    let max = list.max();
    let weight = |logit: f32| f64::from(expf(logit - max));
    let total: f64 = list.items.iter().map(|c| weight(c.logit)).sum();
    let target = total * uniform;
    // The first token at which the running sum of the unnormalised probabilities reaches the target.
    let mut sum = 0f64;
    for c in &list.items {
        sum += weight(c.logit);
        if sum >= target {
            return c.id;
        }
    }
    list.items[list.items.len() - 1].id
}

/// Returns the distribution of [`draw`]: tokens with their probabilities, the likeliest first, those of probability 0
/// left out. The sum of the unnormalised probabilities is taken in double precision, as there.
pub fn odds(list: &Candidates) -> Vec<(u32, f32)> {
    let max = list.max();
    let weight = |logit: f32| f64::from(expf(logit - max));
    let total: f64 = list.items.iter().map(|c| weight(c.logit)).sum();
    let share = list.items.iter().map(|c| (c.id, (weight(c.logit) / total) as f32));
    let mut odds: Vec<(u32, f32)> = share.filter(|(_, p)| *p > 0.0).collect();
    odds.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    odds
}

/// Draws by the probabilities that stand in the list, as libstdc++'s `discrete_distribution` does: shares in double
/// precision, the last running sum taken as 1, and no random number where there is one token. Returns the place in the
/// list.
fn draw_by_p(list: &Candidates, rng: &mut Mt19937) -> usize {
    let n = list.items.len();
    if n < 2 {
        return 0;
    }
    let total: f64 = list.items.iter().map(|c| f64::from(c.p)).sum();
    let uniform = rng.next_f64();
    let mut sum = 0f64;
    let reaches = |c: &super::candidates::Candidate| {
        sum += f64::from(c.p) / total;
        sum >= uniform
    };
    list.items[..n - 1].iter().position(reaches).unwrap_or(n - 1)
}

/// Mirostat with the surprise that it allows at the moment.
#[derive(Clone)]
pub struct Surprise {
    options: Mirostat,
    /// The most surprising token that may come, in bits.
    mu: f32,
    rng: Mt19937,
}

impl Surprise {
    /// Number of the most likely tokens by which the exponent of Zipf's law is estimated.
    const M: usize = 100;

    /// Mirostat at its beginning.
    pub fn new(options: Mirostat, seed: u32) -> Surprise {
        Surprise { options, mu: 2.0 * options.tau, rng: Mt19937::new(seed) }
    }

    /// Draws a token of a model with `n_vocab` of them.
    pub fn draw(&mut self, list: &mut Candidates, n_vocab: usize) -> u32 {
        list.sorted_softmax();
        match self.options.version {
            MirostatVersion::V1 => list.top_k(self.k(list, n_vocab)),
            MirostatVersion::V2 | MirostatVersion::Off => {
                let allowed = |p: f32| -log2f(p) <= self.mu;
                let likely = list.items.iter().take_while(|c| allowed(c.p)).count();
                list.items.truncate(likely.max(1));
            }
        }
        list.softmax();
        let chosen = list.items[draw_by_p(list, &mut self.rng)];
        let surprise = -log2f(chosen.p);
        self.mu -= self.options.eta * (surprise - self.options.tau);
        chosen.id
    }

    /// How many tokens stay: from the exponent s of Zipf's law, by least squares over the most likely tokens.
    fn k(&self, list: &Candidates, n_vocab: usize) -> i32 {
        let (mut products, mut squares) = (0f32, 0f32);
        for (i, pair) in list.items.windows(2).take(Self::M - 1).enumerate() {
            let t = logf((i + 2) as f32 / (i + 1) as f32);
            let b = logf(pair[0].p / pair[1].p);
            products += t * b;
            squares += t * t;
        }
        let s = products / squares;
        let epsilon = s - 1.0;
        let top = epsilon * powf(2.0, self.mu);
        let k = powf(top / (1.0 - powf(n_vocab as f32, -epsilon)), 1.0 / s);
        // What is no number, or too large for an i32, becomes the lowest i32 in the reference, and then 1.
        let k = if k.abs() < 2_147_483_648.0 { k as i32 } else { 1 };
        k.max(1)
    }
}

/// Adaptive-p: chooses near a probability, which moves so that the average of what was chosen comes out right.
#[derive(Clone)]
pub struct Adaptive {
    target: f32,
    decay: f32,
    rng: Mt19937,
    /// Probabilities of what was chosen, older ones counting less, and what they count together.
    sum: f32,
    weight: f32,
    /// The token that was chosen and not accepted yet, with its probability.
    pending: Option<(u32, f32)>,
}

impl Adaptive {
    /// At its beginning: as if all tokens so far had been chosen at the target.
    pub fn new(target: f32, decay: f32, seed: u32) -> Adaptive {
        let decay = decay.clamp(0.0, 0.99);
        Adaptive {
            target,
            decay,
            rng: Mt19937::new(seed),
            sum: target / (1.0 - decay),
            weight: 1.0 / (1.0 - decay),
            pending: None,
        }
    }

    /// Draws a token.
    pub fn draw(&mut self, list: &mut Candidates) -> u32 {
        const WIDTH: f32 = 0.3;
        const PEAK: f32 = 5.0;
        const SHARPNESS: f32 = 10.0;
        list.softmax();
        if self.target < 0.0 {
            return list.items[draw_by_p(list, &mut self.rng)].id;
        }
        let target = self.target.clamp(0.0, 1.0);
        let now = if self.weight == 0.0 { target } else { 2.0 * target - self.sum / self.weight };
        let now = now.clamp(0.0, 1.0);
        let before: Vec<f32> = list.items.iter().map(|c| c.p).collect();
        for c in list.items.iter_mut().filter(|c| c.logit != f32::NEG_INFINITY) {
            // Quadratic near the target, linear far from it.
            let d = ((c.p - now) * (1.0 / WIDTH)).abs();
            c.logit = PEAK - SHARPNESS * d * d / (1.0 + d);
        }
        list.softmax();
        let at = draw_by_p(list, &mut self.rng);
        let id = list.items[at].id;
        self.pending = Some((id, before[at]));
        id
    }

    /// Remembers how likely the chosen token was.
    pub fn accept(&mut self, id: u32) {
        if let Some((chosen, p)) = self.pending.take()
            && chosen == id
        {
            self.sum = p + self.decay * self.sum;
            self.weight = 1.0 + self.decay * self.weight;
        }
    }
}
