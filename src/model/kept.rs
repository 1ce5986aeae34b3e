//! Residual streams that are kept for later blocks, and the attention of blocks to them: Kimi K3.
//!
//! A score for every kept stream and for the present one is the sum of its norm's elements, whose gains are the scores'
//! weights; the mean of the streams themselves is weighed by the soft-max of these scores. A token sees its own streams
//! alone, so nothing of this is part of a sequence's state.

use crate::kernels::Isa;
use crate::ops::norm::Norm;
use crate::ops::soft_max::soft_max;

/// The scores of streams: norms whose gains are the scores' weights.
pub struct Scores(pub Norm);

impl Scores {
    /// The weighed mean of the `kept` streams and of `x`, `[tokens][n_embd]`; `x` itself where none is kept.
    pub fn mix(&self, isa: Isa, kept: &[Vec<f32>], x: &[f32]) -> Vec<f32> {
        if kept.is_empty() {
            return x.to_vec();
        }
        let n = self.0.row;
        let streams: Vec<&[f32]> = kept.iter().map(Vec::as_slice).chain([x]).collect();
        let scores: Vec<Vec<f32>> = streams.iter().map(|s| self.scores(isa, s)).collect();
        let mut y = vec![0f32; x.len()];
        for (token, y) in y.chunks_exact_mut(n).enumerate() {
            let mut weights: Vec<f32> = scores.iter().map(|s| s[token]).collect();
            soft_max(&mut weights);
            for (stream, &weight) in streams.iter().zip(&weights) {
                let stream = stream[token * n..][..n].iter();
                y.iter_mut().zip(stream).for_each(|(y, x)| *y += x * weight);
            }
        }
        y
    }

    /// One score for every token, added up in `f64`.
    fn scores(&self, isa: Isa, stream: &[f32]) -> Vec<f32> {
        let normed = self.0.apply(isa, stream);
        let total = |row: &[f32]| row.iter().fold(0.0, |sum, &x| sum + f64::from(x)) as f32;
        normed.chunks_exact(self.0.row).map(total).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::norm::Kind;

    #[test]
    fn streams_are_weighed_by_their_scores() {
        let scores = Scores(Norm { kind: Kind::Rms, eps: 0.0, row: 2, gains: vec![2.0, 1.0], bias: None });
        let isa = Isa::detect();
        let x = [3.0, 3.0, -1.0, 1.0];
        assert_eq!(scores.mix(isa, &[], &x), x);
        // equal scores: the first token's streams are parallel
        let kept = [vec![1.0, 1.0, 1.0, -1.0]];
        let y = scores.mix(isa, &kept, &x);
        assert_eq!(y[..2], [2.0, 2.0]);
        // scores 1 and -1 of the second: the kept stream counts e^2 times as much
        let e = crate::math::expf(2.0);
        let expected = (e - 1.0) / (e + 1.0);
        assert!((y[2] - expected).abs() < 1e-6, "{y:?}");
    }
}
