//! Which tasks are chosen, and in which order, when not all are wanted: llama-perplexity's draws with seed 1.

use crate::sample::rng::Mt19937;

/// `wanted` of `all` places, each sampled among those that are left, which keep their order.
pub fn in_order(all: usize, wanted: usize) -> Vec<usize> {
    let mut rng = Mt19937::new(1);
    let mut left: Vec<usize> = (0..all).collect();
    let draw = |_| {
        let n = u32::try_from(left.len()).unwrap_or(u32::MAX);
        left.remove(rng.next_below(n) as usize)
    };
    (0..wanted.min(all)).map(draw).collect()
}

/// `wanted` of `all` places, each sampled among those that are left, the last of which takes its place. The place is a
/// product in single precision.
pub fn with_the_last(all: usize, wanted: usize) -> Vec<usize> {
    let mut rng = Mt19937::new(1);
    let mut left: Vec<usize> = (0..all).collect();
    let draw = |_| {
        let uniform = rng.next_u32() as f32 * (1.0 / 4_294_967_296.0);
        let at = (uniform * left.len() as f32) as usize;
        // rounding can reach the end, where the reference would read beyond it
        left.swap_remove(at.min(left.len() - 1))
    };
    (0..wanted.min(all)).map(draw).collect()
}
