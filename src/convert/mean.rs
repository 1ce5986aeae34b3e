//! The mean of the absolute values of a matrix, in one fixed order of additions.
//!
//! A ternary checkpoint's scale is this mean in f32, so its last bits depend on the order. The order
//! here is the one that PyTorch's `weight.abs().mean()` has on a processor with vectors of 8 floats and
//! 2 threads: the bundled models were made with it, and their scales come out bit for bit. The exact
//! mean differs by at most a few units in the last place, and so does PyTorch with other threads.
//!
//! Definition, for the `n` values of a matrix in storage order:
//! 1. With more than 32768 values, two parts of `ceil(n/2)` and the rest are summed on their own, then
//!    added; otherwise the whole is one part.
//! 2. A part is read in groups of 32 values: 4 vectors of 8 lanes. Group sums run in cascades: after
//!    every 2^p groups the level below is added to the next and cleared, four levels in all, where
//!    p = max(4, ceil(log2(groups)) / 4).
//! 3. What is left of whole vectors is added to the first vector, the four vectors are added in order,
//!    then the values that fill no vector, then the 8 lanes, in order.
//! 4. The sum is divided by `n`. All in f32.

const LANES: usize = 8;
const GROUP: usize = 4 * LANES;
const LEVELS: usize = 4;
/// Fewer values than this are not shared between threads.
const GRAIN: u64 = 32768;

/// Takes the values of a matrix in storage order and gives their mean.
pub(super) struct AbsMean {
    n: u64,
    /// Values per part.
    part: u64,
    current: Part,
    /// Sums of the parts that are done.
    sums: Vec<f32>,
}

struct Part {
    /// Values that are still to come.
    left: u64,
    /// 2^p - 1.
    mask: u64,
    power: u32,
    groups: u64,
    levels: [[f32; GROUP]; LEVELS],
    pending: Vec<f32>,
}

impl Part {
    fn new(n: u64) -> Part {
        let groups = n / LANES as u64 / 4;
        let ceil_log2 = if groups <= 2 { 1 } else { (groups - 1).ilog2() + 1 };
        let power = (ceil_log2 / LEVELS as u32).max(4);
        Part {
            left: n,
            mask: (1 << power) - 1,
            power,
            groups: 0,
            levels: [[0.0; GROUP]; LEVELS],
            pending: Vec::with_capacity(GROUP),
        }
    }

    fn group(&mut self, values: &[f32]) {
        for (a, v) in self.levels[0].iter_mut().zip(values) {
            *a += v.abs();
        }
        self.groups += 1;
        if self.groups & self.mask != 0 {
            return;
        }
        for j in 1..LEVELS {
            let below = std::mem::replace(&mut self.levels[j - 1], [0.0; GROUP]);
            self.levels[j].iter_mut().zip(below).for_each(|(a, b)| *a += b);
            if self.groups & (self.mask << (j as u32 * self.power)) != 0 {
                break;
            }
        }
    }

    fn push(&mut self, mut values: &[f32]) {
        self.left -= values.len() as u64;
        if !self.pending.is_empty() {
            let take = (GROUP - self.pending.len()).min(values.len());
            self.pending.extend_from_slice(&values[..take]);
            values = &values[take..];
            if self.pending.len() == GROUP {
                let full = std::mem::take(&mut self.pending);
                self.group(&full);
            }
        }
        let mut groups = values.chunks_exact(GROUP);
        groups.by_ref().for_each(|g| self.group(g));
        self.pending.extend_from_slice(groups.remainder());
    }

    fn sum(mut self) -> f32 {
        let (first, upper) = self.levels.split_at_mut(1);
        for level in upper {
            first[0].iter_mut().zip(level).for_each(|(a, b)| *a += *b);
        }
        let mut vectors = first[0];
        let mut rest = self.pending.chunks_exact(LANES);
        for vector in rest.by_ref() {
            vectors.iter_mut().zip(vector).for_each(|(a, v)| *a += v.abs());
        }
        for k in 1..4 {
            for lane in 0..LANES {
                vectors[lane] += vectors[k * LANES + lane];
            }
        }
        let tail = rest.remainder().iter().fold(0.0f32, |a, v| a + v.abs());
        vectors[..LANES].iter().fold(tail, |a, v| a + v)
    }
}

impl AbsMean {
    /// For a matrix of `n` values.
    pub fn new(n: u64) -> AbsMean {
        let part = if n > GRAIN { n.div_ceil(2) } else { n };
        AbsMean { n, part, current: Part::new(part), sums: Vec::new() }
    }

    /// The next values; no more than `n` in all.
    pub fn push(&mut self, mut values: &[f32]) {
        while !values.is_empty() {
            let take = self.current.left.min(values.len() as u64) as usize;
            self.current.push(&values[..take]);
            values = &values[take..];
            if self.current.left == 0 {
                let next = Part::new(self.n - self.part);
                self.sums.push(std::mem::replace(&mut self.current, next).sum());
            }
        }
    }

    /// The mean of the values given.
    pub fn mean(self) -> f32 {
        self.sums.iter().fold(0.0f32, |a, s| a + s) / self.n as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(values: &[f32], step: usize) -> f32 {
        let mut m = AbsMean::new(values.len() as u64);
        values.chunks(step).for_each(|c| m.push(c));
        m.mean()
    }

    /// Values whose sum shows every change of order.
    fn values(n: usize) -> Vec<f32> {
        let mut x = 12345u32;
        (0..n)
            .map(|_| {
                x = x.wrapping_mul(1664525).wrapping_add(1013904223);
                (x >> 8) as f32 / 16777216.0 - 0.5
            })
            .collect()
    }

    #[test]
    fn how_the_values_arrive_changes_nothing() {
        for n in [1, 7, 8, 31, 33, 1000, 32768, 32769, 70001] {
            let v = values(n);
            let whole = mean(&v, n);
            for step in [1, 13, 32, 4096] {
                assert_eq!(mean(&v, step).to_bits(), whole.to_bits(), "{n} {step}");
            }
        }
    }

    /// Computed by PyTorch 1.13 on 2 threads with vectors of 8 lanes.
    #[test]
    fn the_order_is_that_of_pytorch() {
        for (n, bits) in PYTORCH {
            assert_eq!(mean(&values(n), n).to_bits(), bits, "{n}");
        }
    }

    const PYTORCH: [(usize, u32); 7] = [
        (33, 0x3e816ee0),
        (1000, 0x3e7cadc9),
        (32768, 0x3e7f098f),
        (32769, 0x3e7f09dc),
        (70001, 0x3e800ee4),
        (262_144, 0x3e802a95),
        (1_000_003, 0x3e801bcf),
    ];
}
