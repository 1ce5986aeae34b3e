//! Causal convolutions of every channel by itself.

use super::CHUNK;
use crate::kernels::Floats;
use crate::pool;

/// `y[t][c] = sum over i of x[t - (kernel - 1 - i) * distance][c] * w[i][c]`: products and sums in `f32`, the oldest
/// position first, beginning with 0 (ggml `ggml_compute_forward_ssm_conv_f32`); the bias is added at last.
///
/// The state is the part of the input before the next position: the last `(kernel - 1) * distance` rows of `x`, oldest
/// first.
#[derive(Clone, Debug)]
pub struct Convolution {
    channels: usize,
    /// From a position that is seen to the next one.
    pub(crate) distance: usize,
    /// `[kernel][channels]`
    pub(crate) weights: Vec<f32>,
    pub(crate) bias: Option<Vec<f32>>,
}

impl Convolution {
    /// A convolution with weights `[channels][kernel]`, `kernel` at least 1.
    pub fn new(weights: &[f32], kernel: usize, bias: Option<Vec<f32>>) -> Convolution {
        let taps = (0..kernel).flat_map(|i| weights.iter().skip(i).step_by(kernel));
        Convolution { channels: weights.len() / kernel, distance: 1, weights: taps.copied().collect(), bias }
    }

    /// The same of positions that are `distance` apart.
    pub fn with_distance(self, distance: usize) -> Convolution {
        Convolution { distance, ..self }
    }

    /// The outputs for `x`, `[tokens][channels]`, the next positions after those of `state`, which is advanced to their
    /// end.
    pub fn run(&self, x: &[f32], state: &mut [f32]) -> Floats {
        let n = self.channels;
        let all = [&*state, x].concat();
        let mut y = Floats::scratch(x.len());
        let at_once = CHUNK.div_ceil(n);
        pool::chunks_mut(&mut y, at_once * n, |chunk, y| {
            for (t, y) in y.chunks_exact_mut(n).enumerate() {
                let seen = all[(chunk * at_once + t) * n..].chunks_exact(n).step_by(self.distance);
                y.fill(0.0);
                for (x, w) in seen.zip(self.weights.chunks_exact(n)) {
                    for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
                        *y += x * w;
                    }
                }
                if let Some(bias) = &self.bias {
                    y.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
                }
            }
        });
        let kept = state.len();
        state.copy_from_slice(&all[all.len() - kept..]);
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::Random;

    #[test]
    fn every_position_sees_those_before_it_however_they_are_cut() {
        let mut random = Random(0xc0a1);
        let (channels, kernel, tokens) = (37, 4, 23);
        let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| random.float()).collect() };
        let (w, bias) = (floats(channels * kernel), floats(channels));
        let x = floats(channels * tokens);
        for distance in [1, 3] {
            let mut expected = Vec::new();
            for t in 0..tokens {
                for c in 0..channels {
                    let mut sum = 0f32;
                    for i in 0..kernel {
                        let seen = match t.checked_sub((kernel - 1 - i) * distance) {
                            Some(t) => x[t * channels + c],
                            None => 0.0,
                        };
                        sum += seen * w[c * kernel + i];
                    }
                    expected.push((sum + bias[c]).to_bits());
                }
            }
            let convolution = Convolution::new(&w, kernel, Some(bias.clone())).with_distance(distance);
            for cut in [1, 2, 5, tokens] {
                let mut state = vec![0f32; (kernel - 1) * distance * channels];
                let parts = x.chunks(cut * channels);
                let got = parts.flat_map(|x| convolution.run(x, &mut state).to_vec());
                let got: Vec<u32> = got.map(f32::to_bits).collect();
                assert!(got == expected, "parts of {cut}, {distance} apart");
            }
        }
    }
}
