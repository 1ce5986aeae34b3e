//! Mean, deviation and median of a few samples.

/// Statistics of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample (n - 1); 0 for a single one.
    pub stddev: f64,
    /// The middle one, or the mean of the middle two.
    pub median: f64,
}

impl Summary {
    /// The statistics of `samples`; zeros when there are none.
    pub fn of(samples: &[f64]) -> Summary {
        let n = samples.len() as f64;
        if samples.is_empty() {
            return Summary { mean: 0.0, stddev: 0.0, median: 0.0 };
        }
        let mean = samples.iter().sum::<f64>() / n;
        let squares: f64 = samples.iter().map(|x| (x - mean) * (x - mean)).sum();
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let half = sorted.len() / 2;
        let median =
            if sorted.len().is_multiple_of(2) { (sorted[half - 1] + sorted[half]) / 2.0 } else { sorted[half] };
        Summary { mean, stddev: (squares / (n - 1.0).max(1.0)).sqrt(), median }
    }
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn of_a_few() {
        let s = Summary::of(&[4.0, 1.0, 1.0]);
        assert_eq!((s.mean, s.median), (2.0, 1.0));
        assert_eq!(s.stddev, 3f64.sqrt());
        assert_eq!(Summary::of(&[4.0, 2.0]).median, 3.0);
        assert_eq!(Summary::of(&[7.0]).stddev, 0.0);
        assert_eq!(Summary::of(&[]).mean, 0.0);
    }
}
