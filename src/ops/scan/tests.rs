//! Scans against the formula, cut into parts of any size.

use super::*;
use crate::kernels::testing::Random;
use crate::math::logf;

struct Case {
    heads: usize,
    /// Channels of a head.
    size: usize,
    state: usize,
    groups: usize,
    tokens: usize,
    x: Vec<f32>,
    dt: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
}

impl Case {
    fn new([heads, size, state, groups]: [usize; 4]) -> Case {
        let (tokens, mut random) = (11, Random(0x5ca7 + heads as u64));
        let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| random.float()).collect() };
        let mut dt = floats(tokens * heads);
        dt[0] = 25.0;
        Case {
            heads,
            size,
            state,
            groups,
            tokens,
            x: floats(tokens * heads * size),
            dt,
            b: floats(tokens * groups * state),
            c: floats(tokens * groups * state),
        }
    }

    /// One channel after another; `rate` of a head and a state number.
    fn expected(&self, rate: impl Fn(usize, usize) -> f32) -> Vec<u32> {
        let channels = self.heads * self.size;
        let mut out = vec![0u32; self.tokens * channels];
        for channel in 0..channels {
            let head = channel / self.size;
            let group = head / (self.heads / self.groups);
            let mut state = vec![0f32; self.state];
            for t in 0..self.tokens {
                let dt = self.dt[t * self.heads + head];
                let d = if dt > 20.0 { dt } else { logf(1.0 + expf(dt)) };
                let written = self.x[t * channels + channel] * d;
                let mut sum = 0f32;
                for (i, s) in state.iter_mut().enumerate() {
                    let at = (t * self.groups + group) * self.state + i;
                    *s = (*s * expf(d * rate(head, i))) + (self.b[at] * written);
                    sum += *s * self.c[at];
                }
                out[t * channels + channel] = sum.to_bits();
            }
        }
        out
    }

    fn check(&self, scan: &Scan, expected: &[u32]) {
        let channels = self.heads * self.size;
        for (threads, cut) in [(1, self.tokens), (2, 3), (1, 1)] {
            let pool = pool::Pool::new(threads).expect("threads");
            let mut states = vec![0f32; channels * self.state];
            let mut got = Vec::new();
            for from in (0..self.tokens).step_by(cut) {
                let to = self.tokens.min(from + cut);
                let part = |v: &'_ [f32]| -> Vec<f32> {
                    let row = v.len() / self.tokens;
                    v[from * row..to * row].to_vec()
                };
                let [x, dt, b, c] = [&self.x, &self.dt, &self.b, &self.c].map(|v| part(v));
                let steps = Steps { x: &x, dt: &dt, b: &b, c: &c };
                let y = pool.install(|| scan.run(&steps, &mut states));
                got.extend(y.iter().map(|v| v.to_bits()));
            }
            assert!(got == expected, "{threads} threads, parts of {cut}");
        }
    }
}

#[test]
fn heads_decay_together() {
    for sizes in [[4, 6, 5, 2], [3, 1, 16, 1], [2, 40, 7, 2]] {
        let case = Case::new(sizes);
        let rates: Vec<f32> = (0..case.heads).map(|h| -0.3 - h as f32).collect();
        let expected = case.expected(|head, _| rates[head]);
        let channels = case.heads * case.size;
        let scan = Scan::of_heads(rates.clone(), channels, case.state, case.groups);
        case.check(&scan, &expected);
    }
}

#[test]
fn every_number_decays_by_itself() {
    for channels in [5, 16, 37] {
        let case = Case::new([channels, 1, 6, 1]);
        let rate = |channel: usize, i: usize| -0.1 * (channel * 6 + i) as f32;
        let rates: Vec<f32> = (0..channels * 6).map(|n| rate(n / 6, n % 6)).collect();
        case.check(&Scan::of_channels(&rates, 6), &case.expected(rate));
    }
}
