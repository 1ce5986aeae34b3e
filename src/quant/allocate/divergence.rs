//! The smallest file whose divergence is no more than wanted, by measuring a few.
//!
//! The divergence of small errors is quadratic in them, and the loss of an allocation is a sum of squares: one measured
//! file predicts all others by a proportion, and two by a power between them. Each prediction says which loss to try
//! next, until what is measured is a little less than wanted, or as near as the types of the tensors allow.

use crate::math::{exp, log};

/// Divergence for each unit of loss before anything is measured, of small models in four to five bits.
const FIRST: f64 = 20.0;
/// The part of the wanted divergence that is aimed at, so that errors of the prediction do not miss it.
const AIM: f64 = 0.97;
/// A file with this part of the wanted divergence or more is near enough.
const NEAR: f64 = 0.93;
/// Powers of the loss that a prediction may follow.
const POWERS: (f64, f64) = (0.5, 2.0);

/// A file that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The loss of its allocation.
    pub loss: f64,
    /// The divergence that was predicted.
    pub predicted: f64,
    /// Its divergence.
    pub divergence: f64,
}

/// A search for the largest loss whose divergence is not more than wanted.
#[derive(Clone, Debug)]
pub struct Search {
    wanted: f64,
    /// Divergence for each unit of loss before anything is measured.
    first: f64,
    measured: Vec<Measured>,
}

impl Search {
    /// A search for a divergence above 0; `first` is the divergence for each unit of loss, where it is known.
    pub fn new(wanted: f64, first: Option<f64>) -> Search {
        Search { wanted, first: first.unwrap_or(FIRST), measured: Vec::new() }
    }

    /// Files that were measured, in order.
    pub fn measured(&self) -> &[Measured] {
        &self.measured
    }

    /// The file with most loss of those whose divergence is not more than wanted, by its number.
    pub fn best(&self) -> Option<usize> {
        let fitting = (0..self.measured.len()).filter(|&i| self.measured[i].divergence <= self.wanted);
        fitting.max_by(|&a, &b| self.measured[a].loss.total_cmp(&self.measured[b].loss))
    }

    /// Takes what was measured of a file; true if it is near enough to what is wanted.
    pub fn take(&mut self, loss: f64, divergence: f64) -> bool {
        let predicted = self.predict(loss);
        self.measured.push(Measured { loss, predicted, divergence });
        (NEAR * self.wanted..=self.wanted).contains(&divergence)
    }

    /// The divergence that a loss is predicted to have.
    pub fn predict(&self, loss: f64) -> f64 {
        let Some((at, power)) = self.curve(|measured| measured.loss, loss) else { return self.first * loss };
        at.divergence * exp(power * log(loss / at.loss))
    }

    /// The loss to try next.
    pub fn next(&self) -> f64 {
        let aim = AIM * self.wanted;
        let Some((at, power)) = self.curve(|measured| measured.divergence, aim) else { return aim / self.first };
        at.loss * exp(log(aim / at.divergence) / power)
    }

    /// The nearest measured file by what `of` says of it, and the power of the loss around it.
    fn curve(&self, of: impl Fn(&Measured) -> f64, at: f64) -> Option<(Measured, f64)> {
        let useful = |m: &&Measured| m.loss > 0.0 && m.divergence > 0.0;
        let mut near: Vec<Measured> = self.measured.iter().filter(useful).copied().collect();
        let far = |m: &Measured| log(of(m) / at).abs();
        near.sort_by(|a, b| far(a).total_cmp(&far(b)));
        let first = *near.first()?;
        // The nearest on the other side, else the next one.
        let is_above = of(&first) > at;
        let other = near[1..].iter().find(|m| (of(m) > at) != is_above).or(near.get(1));
        let power = other.map_or(1.0, |m| log(m.divergence / first.divergence) / log(m.loss / first.loss));
        let power = if power.is_finite() { power.clamp(POWERS.0, POWERS.1) } else { 1.0 };
        Some((first, power))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches on curves of several powers end near what is wanted within few files.
    #[test]
    fn curves_are_followed() {
        for (factor, power) in [(20.0, 1.0), (3.0, 0.8), (400.0, 1.3), (55.0, 1.0)] {
            for wanted in [0.3, 0.02, 0.001] {
                let mut search = Search::new(wanted, None);
                let mut ended = false;
                for _ in 0..4 {
                    let loss = search.next();
                    ended = search.take(loss, factor * exp(power * log(loss)));
                    if ended {
                        break;
                    }
                }
                let best = search.best().map(|i| search.measured()[i]);
                assert!(ended && best.unwrap().divergence >= NEAR * wanted, "{factor} {power} {wanted}: {search:?}");
            }
        }
    }

    #[test]
    fn the_best_is_the_one_with_most_loss_that_is_not_too_far_off() {
        let mut search = Search::new(0.1, None);
        assert!(!search.take(0.01, 0.2));
        assert_eq!(search.best(), None);
        assert!(!search.take(0.001, 0.02));
        assert!(!search.take(0.003, 0.08));
        assert_eq!(search.best(), Some(2));
        assert!(search.take(0.004, 0.1));
        assert_eq!(search.best(), Some(3));
        // A file that loses nothing is no point of a curve.
        assert!(!search.take(0.0, 0.0));
        assert!(search.next() > 0.0 && search.next().is_finite());
    }
}
