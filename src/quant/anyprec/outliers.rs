//! Dense and sparse: the few weights that are kept out of the codebooks and stored as they are.
//!
//! First go the most sensitive weights of a tensor, a fixed share. Then those far from the middle: with the
//! quartiles `q1`, `q3` of the tensor and their distance `d`, all weights of at least
//! `T = max(|q1 − t d|, |q3 + t d|)` in magnitude. One range `t` serves the whole model and is searched for so
//! that the share of these comes out as asked. In a tensor with `d = 0`, such as a pruned one, nothing is far from the
//! middle: [`Spread::without_flat`] leaves it out.
//!
//! Sources: Kim et al., "SqueezeLLM", 2024; Park et al., "Any-Precision LLM", 2024; and their programs, which
//! differ: see [`Rule`].

/// Whose rules are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Sensitivities strictly above that of the last of the share; quartiles of the tensor as it was,
    /// interpolated between neighbours.
    SqueezeLlm,
    /// Exactly the share; quartiles of what is left, without interpolation.
    AnyPrecision,
}

/// How many weights are kept out, in percent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shares {
    /// Shares of each tensor, by sensitivity.
    pub sensitive: f64,
    /// Shares of the model, by magnitude.
    pub magnitude: f64,
}

impl Shares {
    /// The shares of the papers.
    pub fn default_of(rule: Rule) -> Shares {
        Shares {
            sensitive: 0.05,
            magnitude: match rule {
                Rule::SqueezeLlm => 0.45,
                Rule::AnyPrecision => 0.4,
            },
        }
    }
}

/// The indices of the most sensitive of a tensor's weights, ascending; of equal ones the first.
pub fn most_sensitive(scores: &[f32], percent: f64, rule: Rule) -> Vec<usize> {
    let count = (percent * scores.len() as f64 / 100.0) as usize;
    if count == 0 || scores.is_empty() {
        return Vec::new();
    }
    let mut values = scores.to_vec();
    let last = count.min(scores.len()) - 1;
    let (above, &mut least, _) = values.select_nth_unstable_by(last, |a, b| b.total_cmp(a));
    let above = above.iter().filter(|&&s| s > least).count();
    let mut ties = match rule {
        Rule::SqueezeLlm => 0,
        Rule::AnyPrecision => last + 1 - above,
    };
    let mut taken = |s: f32| {
        let tie = s == least && ties > 0;
        ties -= usize::from(tie);
        s > least || tie
    };
    (0..scores.len()).filter(|&i| taken(scores[i])).collect()
}

/// The facts about a tensor that the search for the range needs.
#[derive(Clone, Debug)]
pub struct Spread {
    quartiles: [f64; 2],
    /// `q3 − q1` as the rule rounds it.
    distance: f64,
    weights: usize,
    /// No weight of the tensor goes.
    left_out: bool,
    /// The lowest weights, ascending, and the highest, ascending. All others lie between.
    low: Vec<f32>,
    high: Vec<f32>,
}

impl Spread {
    /// Measures a tensor from which the weights at `removed` are gone. `tail` is the share in percent of
    /// weights at either end that are remembered.
    pub fn measure(weights: &[f32], removed: &[usize], rule: Rule, tail: f64) -> Spread {
        let n = weights.len();
        let mut values = weights.to_vec();
        let untouched = (rule == Rule::SqueezeLlm).then(|| quartiles(&mut values, rule));
        if untouched.is_some() {
            values.copy_from_slice(weights);
        }
        for &i in removed {
            values[i] = 0.0;
        }
        let (quartiles, distance) = untouched.unwrap_or_else(|| quartiles(&mut values, rule));
        let tail = ((tail * n as f64 / 100.0).ceil() as usize).clamp(1, n.max(1)).min(n);
        let ends = |values: &mut [f32], from: usize, to: usize| {
            if from > 0 {
                values.select_nth_unstable_by(from, f32::total_cmp);
            }
            if to < values.len() {
                values.select_nth_unstable_by(to, f32::total_cmp);
            }
            let mut end = values[from..to].to_vec();
            end.sort_unstable_by(f32::total_cmp);
            end
        };
        Spread {
            quartiles,
            distance,
            weights: n,
            left_out: false,
            low: ends(&mut values, 0, tail),
            high: ends(&mut values, n - tail, n),
        }
    }

    /// The same tensor, of which no weight goes where the quartiles are one value: that `T` does not depend on the
    /// range, and either all weights are beyond it or those of the rest of the model would have to make up for them.
    pub fn without_flat(mut self) -> Spread {
        self.left_out |= self.distance == 0.0;
        self
    }

    /// `T` of a range; weights of at least this magnitude go.
    pub fn threshold(&self, range: f64) -> f64 {
        if self.left_out {
            return f64::INFINITY;
        }
        let [q1, q3] = self.quartiles;
        let (low, high) = (q1 - range * self.distance, q3 + range * self.distance);
        low.abs().max(high.abs())
    }

    /// How many weights, of those that are left, have at least this magnitude, which is above 0. Right only
    /// where the range was not [clipped](Range::clipped).
    pub fn count_from(&self, threshold: f32) -> usize {
        let low = self.low.partition_point(|&w| w <= -threshold);
        let below = self.high.partition_point(|&w| w < threshold);
        low + self.high.len() - below
    }

    /// How many weights are beyond a threshold, and whether there may be more.
    fn beyond(&self, threshold: f64) -> (usize, bool) {
        let low = self.low.partition_point(|&w| f64::from(w) < -threshold);
        let below = self.high.partition_point(|&w| f64::from(w) < threshold);
        // those at the threshold go as well
        let last = self.low.last().is_some_and(|&w| f64::from(w) <= -threshold);
        let clipped = self.low.len() < self.weights && (last || below == 0);
        (low + self.high.len() - below, clipped)
    }
}

/// `q1` and `q3` of a tensor, and their distance. Reorders the values.
fn quartiles(values: &mut [f32], rule: Rule) -> ([f64; 2], f64) {
    let n = values.len();
    if n == 0 {
        return ([0.0; 2], 0.0);
    }
    let mut at = |i: usize| *values.select_nth_unstable_by(i.min(n - 1), f32::total_cmp).1;
    match rule {
        Rule::AnyPrecision => {
            let (q1, q3) = (at(n / 4), at(3 * n / 4));
            ([q1.into(), q3.into()], f64::from(q3 - q1))
        }
        Rule::SqueezeLlm => {
            let [q1, q3] = [1, 3].map(|quarter| {
                let place = quarter * (n - 1);
                let (low, high) = (f64::from(at(place / 4)), f64::from(at(place / 4 + 1)));
                low + (high - low) * (place % 4) as f64 / 4.0
            });
            ([q1, q3], q3 - q1)
        }
    }
}

/// A range, and how much it removes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Range {
    /// `t`.
    pub range: f64,
    /// The share of weights beyond, in percent.
    pub percent: f64,
    /// Tensors that may have more weights beyond than their spreads remember.
    pub clipped: bool,
}

/// Where the search for a range ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Search {
    /// The last range tried, which is the reference's: without end where the share cannot be met, it stays
    /// at this one.
    pub last: Range,
    /// The range whose share is nearest of those that were tried.
    pub nearest: Range,
}

/// Steps after which halving has come to an end.
const MAX_STEPS: usize = 64;
/// Percentage points that are near enough.
const TOLERANCE: f64 = 1e-4;
/// The reference's largest range.
const MAX_RANGE: f64 = 32.0;

/// Searches by halving for the range that removes `percent` of all weights.
pub fn find_range(tensors: &[Spread], percent: f64) -> Search {
    let total: usize = tensors.iter().map(|t| t.weights).sum();
    let measure = |range: f64| {
        let counts = tensors.iter().map(|t| t.beyond(t.threshold(range)));
        let (beyond, clipped) = counts.fold((0, false), |(n, any), (count, clipped)| (n + count, any || clipped));
        Range { range, percent: beyond as f64 / total.max(1) as f64 * 100.0, clipped }
    };
    let (mut low, mut high) = (0.0, MAX_RANGE);
    let mut found: Option<Search> = None;
    for _ in 0..MAX_STEPS {
        let last = measure((low + high) / 2.0);
        let away = |r: &Range| (r.percent - percent).abs();
        let nearest = match found {
            Some(f) if away(&f.nearest) <= away(&last) => f.nearest,
            _ => last,
        };
        found = Some(Search { last, nearest });
        if away(&last) < TOLERANCE {
            break;
        }
        if last.percent < percent {
            high = last.range;
        } else {
            low = last.range;
        }
    }
    found.unwrap_or_else(|| {
        let only = measure(MAX_RANGE);
        Search { last: only, nearest: only }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_the_most_sensitive() {
        let scores = [1.0, 5.0, 3.0, 5.0, 3.0, 0.0, 2.0, 3.0];
        let of = |percent, rule| most_sensitive(&scores, percent, rule);
        assert_eq!(of(50.0, Rule::AnyPrecision), [1, 2, 3, 4]);
        assert_eq!(of(50.0, Rule::SqueezeLlm), [1, 3]);
        assert_eq!(of(12.5, Rule::AnyPrecision), [1]);
        assert!(of(12.5, Rule::SqueezeLlm).is_empty());
        assert!(of(12.4, Rule::AnyPrecision).is_empty());
        assert_eq!(of(62.5, Rule::AnyPrecision), [1, 2, 3, 4, 7]);
        assert_eq!(of(100.0, Rule::AnyPrecision).len(), 8);
    }

    #[test]
    fn a_short_memory_says_so() {
        let weights: Vec<f32> = (0..1000).map(|i| (i as f32 - 500.0) / 500.0).collect();
        let whole = [Spread::measure(&weights, &[], Rule::AnyPrecision, 100.0)];
        let ends = [Spread::measure(&weights, &[], Rule::AnyPrecision, 4.0)];
        for percent in [0.5, 2.0, 5.0] {
            let (a, b) = (find_range(&whole, percent), find_range(&ends, percent));
            assert_eq!((a.nearest, b.nearest.clipped), (b.nearest, false));
            assert!((a.nearest.percent - percent).abs() < 0.11, "{a:?}");
        }
        assert!(find_range(&ends, 20.0).nearest.clipped);
        assert!(!find_range(&whole, 20.0).nearest.clipped);
    }

    #[test]
    fn one_value_has_no_outliers_to_choose() {
        let found = find_range(&[Spread::measure(&[0.5; 64], &[], Rule::SqueezeLlm, 100.0)], 1.0);
        assert_eq!((found.nearest.percent, found.nearest.clipped), (100.0, false));
    }
}
