//! The recurrences of RWKV 6 and 7: a square state for every head, which decays element by element of the key.
//!
//! All products and sums are `f32`, each rounded, in the order of the formulas, as ggml's portable
//! `ggml_compute_forward_rwkv_wkv6_f32` and `..._wkv7_f32` have them. Heads are tasks.

use super::activation::sigmoid;
use crate::kernels::Floats;
use crate::math::expf;
use crate::pool;

/// RWKV 6: `y = S^T r` with `(k v^T) first` added to the state `S`, whose rows belong to elements of the key; then
/// `S = S w + k v^T`, where `w = e^(-e^x)` for decays `x`.
#[derive(Clone, Debug)]
pub struct Wkv6 {
    /// Elements of a head.
    pub size: usize,
    /// Factors on what a position itself adds, `[heads][size]`.
    pub first: Vec<f32>,
}

/// QRWKV: `S = S w + k v^T`, and then `y = S^T r / sqrt(size)`, for decays x as those of [`Wkv6`]; the keys are times
/// `1 - w` (ggml `ggml_compute_forward_gla_f32`).
#[derive(Clone, Copy, Debug)]
pub struct GatedLinear {
    /// Elements of a head.
    pub size: usize,
    /// Heads.
    pub heads: usize,
}

/// RWKV 7: `S = S w + v k^T + (S a) b^T`, whose rows belong to elements of the value, and `y = S r`. The decays are
/// `w = e^(-0.606531 sigmoid(x))`; a is minus the key times [`Wkv7::removal`], scaled to length 1, and b that key times
/// the rate; the key that is written is `k + (rate * k replacement - k replacement)`.
#[derive(Clone, Debug)]
pub struct Wkv7 {
    /// Elements of a head.
    pub size: usize,
    /// Factors on the keys of what is taken out of the state, `[heads][size]`.
    pub removal: Vec<f32>,
    /// Factors on the keys of what is put in its place, `[heads][size]`.
    pub replacement: Vec<f32>,
    /// Factors on the products of queries and keys with which a position's own value is added, `[heads][size]`.
    pub bonus: Vec<f32>,
}

/// Calls `f` for every head with its number, its state, `[size][size]`, and its outputs, `[tokens][parts][size]`; the
/// outputs of all, `[tokens][parts][heads][size]`.
fn by_head(
    [tokens, parts, heads, size]: [usize; 4],
    state: &mut [f32],
    f: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) -> Floats {
    let of_head = (tokens * parts * size).max(1);
    let mut y = vec![0f32; tokens * parts * heads * size];
    let states = state.chunks_exact_mut(size * size);
    let mut all: Vec<(&mut [f32], &mut [f32])> = states.zip(y.chunks_exact_mut(of_head)).collect();
    pool::chunks_mut(&mut all, 1, |head, one| one.iter_mut().for_each(|(state, y)| f(head, state, y)));
    let mut out = Floats::scratch(y.len());
    for (head, y) in y.chunks_exact(of_head).enumerate() {
        for (row, y) in out.chunks_exact_mut(heads * size).zip(y.chunks_exact(size)) {
            row[head * size..][..size].copy_from_slice(y);
        }
    }
    out
}

impl Wkv6 {
    /// The outputs, `[tokens][heads][size]`, for queries, keys, values and decays of that shape. `state`, a matrix for
    /// each head, goes on to the last position.
    pub fn run(&self, [r, k, v, x]: [&[f32]; 4], state: &mut [f32]) -> Floats {
        let (n, width) = (self.size, self.first.len());
        by_head([r.len() / width, 1, width / n, n], state, |head, state, y| {
            for (t, y) in y.chunks_exact_mut(n).enumerate() {
                let at = t * width + head * n;
                for (i, row) in state.chunks_exact_mut(n).enumerate() {
                    let (k, r, first) = (k[at + i], r[at + i], self.first[head * n + i]);
                    let decay = expf(-expf(x[at + i]));
                    for ((s, y), v) in row.iter_mut().zip(y.iter_mut()).zip(&v[at..]) {
                        let kv = v * k;
                        *y += (kv * first + *s) * r;
                        *s = *s * decay + kv;
                    }
                }
            }
        })
    }
}

impl GatedLinear {
    /// The outputs, `[tokens][heads][size]`, for queries, keys, values and decays of that shape. `state`, a matrix for
    /// each head, goes on to the last position.
    pub fn run(&self, [r, k, v, x]: [&[f32]; 4], state: &mut [f32]) -> Floats {
        let (n, width) = (self.size, self.heads * self.size);
        let scale = (1.0 / (n as f64).sqrt()) as f32;
        by_head([r.len() / width, 1, self.heads, n], state, |head, state, y| {
            for (t, y) in y.chunks_exact_mut(n).enumerate() {
                let at = t * width + head * n;
                for (i, row) in state.chunks_exact_mut(n).enumerate() {
                    let decay = expf(-expf(x[at + i]));
                    let k = k[at + i];
                    let (k, r) = (k - k * decay, r[at + i] * scale);
                    for ((s, y), v) in row.iter_mut().zip(y.iter_mut()).zip(&v[at..]) {
                        *s = *s * decay + v * k;
                        *y += *s * r;
                    }
                }
            }
        })
    }
}

impl Wkv7 {
    /// The outputs, `[tokens][2][heads][size]`, for queries, decays, keys, values and rates of `[tokens][heads][size]`:
    /// those of the state, and the position's own values. `state`, a matrix for each head, goes on to the last
    /// position.
    pub fn run(&self, [r, x, k, v, rate]: [&[f32]; 5], state: &mut [f32]) -> Floats {
        let (n, width) = (self.size, self.removal.len());
        let tokens = r.len() / width;
        by_head([tokens, 2, width / n, n], state, |head, state, y| {
            for (t, y) in y.chunks_exact_mut(2 * n).enumerate() {
                let at = t * width + head * n;
                let [r, x, k, v, rate] = [r, x, k, v, rate].map(|x| &x[at..at + n]);
                let (y, own) = y.split_at_mut(n);
                let w: Vec<f32> = x.iter().map(|&x| expf(sigmoid(x) * -0.606_531)).collect();
                let written = self.written(head, k, rate);
                let removed = self.removed(head, k);
                let b: Vec<f32> = removed.iter().zip(rate).map(|(k, rate)| k * rate).collect();
                for ((row, v), y) in state.chunks_exact_mut(n).zip(v).zip(y) {
                    let sa = row.iter().zip(&removed).fold(0f32, |sum, (s, k)| sum + -k * s);
                    for (j, s) in row.iter_mut().enumerate() {
                        *s = *s * w[j] + v * written[j] + sa * b[j];
                        *y += *s * r[j];
                    }
                }
                let terms = written.iter().zip(r).zip(&self.bonus[head * n..]);
                let sum = terms.fold(0f64, |sum, ((k, r), bonus)| sum + f64::from(k * r * bonus)) as f32;
                own.iter_mut().zip(v).for_each(|(own, v)| *own = v * sum);
            }
        })
    }

    /// The key of what is written.
    fn written(&self, head: usize, k: &[f32], rate: &[f32]) -> Vec<f32> {
        let factors = &self.replacement[head * self.size..];
        let terms = k.iter().zip(rate).zip(factors);
        terms.map(|((k, rate), factor)| k + (rate * (k * factor) - k * factor)).collect()
    }

    /// The key of what is removed, of length 1.
    fn removed(&self, head: usize, k: &[f32]) -> Vec<f32> {
        const LEAST: f32 = 1e-12;
        let mut key: Vec<f32> = k.iter().zip(&self.removal[head * self.size..]).map(|(k, factor)| k * factor).collect();
        let square = key.iter().fold(0f64, |sum, k| sum + f64::from(k * k)) as f32;
        let inverse = 1.0 / square.sqrt().max(LEAST);
        key.iter_mut().for_each(|k| *k *= inverse);
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::Random;

    const SIZE: usize = 6;
    const WIDTH: usize = 2 * SIZE;
    const TOKENS: usize = 11;

    fn floats(random: &mut Random, n: usize) -> Vec<f32> {
        (0..n).map(|_| random.float()).collect()
    }

    /// The bits of the outputs and of the state, for parts of `cut` positions.
    fn cut_in<const N: usize>(
        inputs: &[Vec<f32>; N],
        cut: usize,
        run: impl Fn([&[f32]; N], &mut [f32]) -> Floats,
    ) -> Vec<u32> {
        let mut state = vec![0f32; WIDTH * SIZE];
        let mut all = Vec::new();
        for from in (0..TOKENS).step_by(cut) {
            let rows = from * WIDTH..TOKENS.min(from + cut) * WIDTH;
            all.extend_from_slice(&run(inputs.each_ref().map(|x| &x[rows.clone()]), &mut state));
        }
        all.iter().chain(&state).map(|x| x.to_bits()).collect()
    }

    #[test]
    fn pieces_of_a_text_are_its_whole() {
        let mut random = Random(0x4417);
        let six = Wkv6 { size: SIZE, first: floats(&mut random, WIDTH) };
        let inputs = [(); 4].map(|()| floats(&mut random, TOKENS * WIDTH));
        let [removal, replacement, bonus] = [(); 3].map(|()| floats(&mut random, WIDTH));
        let seven = Wkv7 { size: SIZE, removal, replacement, bonus };
        let more = [(); 5].map(|()| floats(&mut random, TOKENS * WIDTH));
        let (of_six, of_seven) =
            (cut_in(&inputs, TOKENS, |x, s| six.run(x, s)), cut_in(&more, TOKENS, |x, s| seven.run(x, s)));
        let linear = GatedLinear { size: SIZE, heads: WIDTH / SIZE };
        let of_linear = cut_in(&inputs, TOKENS, |x, s| linear.run(x, s));
        for cut in [1, 3] {
            assert!(cut_in(&inputs, cut, |x, s| linear.run(x, s)) == of_linear, "{cut}");
            assert!(cut_in(&inputs, cut, |x, s| six.run(x, s)) == of_six, "{cut}");
            assert!(cut_in(&more, cut, |x, s| seven.run(x, s)) == of_seven, "{cut}");
        }
    }

    #[test]
    fn states_take_what_the_formulas_say() {
        // one head of one element: decays of e^-1 and e^(-0.606531 / 2)
        let mut state = [2.0];
        let six = Wkv6 { size: 1, first: vec![0.5] };
        let y = six.run([&[3.0], &[4.0], &[5.0], &[0.0]], &mut state);
        assert_eq!((y[0], state[0]), ((20.0 * 0.5 + 2.0) * 3.0, 2.0 * expf(-1.0) + 20.0));
        let mut state = [2.0];
        let w = expf(-1.0);
        let y = GatedLinear { size: 1, heads: 1 }.run([&[3.0], &[4.0], &[5.0], &[0.0]], &mut state);
        let expected = 2.0 * w + 5.0 * (4.0 - 4.0 * w);
        assert_eq!((y[0], state[0]), (expected * 3.0, expected));
        let mut state = [2.0];
        let seven = Wkv7 { size: 1, removal: vec![-1.0], replacement: vec![0.5], bonus: vec![2.0] };
        let y = seven.run([&[3.0], &[0.0], &[4.0], &[5.0], &[0.25]], &mut state);
        // the key is removed by -1, replaced by 4 + (0.25 - 1) * 2
        let expected = 2.0 * expf(0.5 * -0.606_531) + 5.0 * 2.5 + 2.0 * -0.25;
        assert_eq!((state[0], y[0], y[1]), (expected, expected * 3.0, 5.0 * (2.5 * 3.0 * 2.0)));
    }
}
