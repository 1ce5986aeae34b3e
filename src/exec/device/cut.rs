//! How the layers of a model are cut over devices.

use std::ops::Range;

/// The layers of each device that has some, with its number: `layers` of them, cut at the sums of `shares`, as llama.cpp
/// does (`--tensor-split`). A layer belongs to the first device whose sum, as a part of the whole, is more than the
/// layer's place.
pub fn cut(layers: usize, shares: &[f32]) -> Vec<(usize, Range<usize>)> {
    let mut sum = 0.0;
    let sums: Vec<f32> = shares.iter().map(|share| (sum += share, sum).1).collect();
    let last = shares.len().saturating_sub(1);
    let device = |layer: usize| {
        let place = layer as f32 / layers as f32;
        sums.iter().position(|&at| at / sum > place).unwrap_or(last)
    };
    let mut parts: Vec<(usize, Range<usize>)> = Vec::new();
    for layer in 0..layers {
        match (parts.last_mut(), device(layer)) {
            (Some((number, part)), of) if *number == of => part.end = layer + 1,
            (_, of) => parts.push((of, layer..layer + 1)),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_cut_by_shares() {
        assert_eq!(cut(5, &[1.0]), [(0, 0..5)]);
        assert_eq!(cut(8, &[3.0, 1.0]), [(0, 0..6), (1, 6..8)]);
        assert_eq!(cut(5, &[1.0, 1.0]), [(0, 0..3), (1, 3..5)]);
        assert_eq!(cut(3, &[1.0, 1.0, 1.0]), [(0, 0..1), (1, 1..2), (2, 2..3)]);
        // who has no share has no layer, and so it may be with a small share
        assert_eq!(cut(4, &[0.0, 1.0, 0.0]), [(1, 0..4)]);
        assert_eq!(cut(2, &[1.0, 1.0, 1.0]), [(0, 0..1), (1, 1..2)]);
        assert!(cut(0, &[1.0, 1.0]).is_empty());
    }
}
