//! Turning keys and values before they are quantized.
//!
//! A few large elements of a vector would take the precision of all others in their block. The reference spreads them:
//! it turns vectors by the orthonormal Walsh-Hadamard matrix, which is its own inverse and leaves products of turned
//! queries and turned keys as they are, up to rounding. Values are turned back behind attention.

use super::page::PageLayout;
use super::types::is_quantized;

/// Elements that are turned together at least.
const LEAST: usize = 64;

impl PageLayout {
    /// Elements of a key, and of a query, that are turned together; `None` where keys are kept as they are.
    pub fn key_turn(&self) -> Option<usize> {
        let turned = self.turned && is_quantized(self.types.keys) && self.head_dim.is_multiple_of(LEAST);
        // the greatest power of two in the size
        turned.then(|| 1 << self.head_dim.trailing_zeros())
    }

    /// Elements of a value, and of what attention gives, that are turned together; `None` where values are kept as they
    /// are.
    pub fn value_turn(&self) -> Option<usize> {
        let turned = self.turned && is_quantized(self.types.values) && self.value_dim.is_multiple_of(LEAST);
        turned.then_some(LEAST)
    }
}

/// Turns every `n` elements of `x`, a power of two: all times `1 / sqrt(n)`, then sums and differences of pairs that
/// are 1, 2, 4 … elements apart.
pub fn rotate(x: &mut [f32], n: usize) {
    let scale = 1.0 / (n as f32).sqrt();
    for x in x.chunks_exact_mut(n) {
        x.iter_mut().for_each(|v| *v *= scale);
        let mut apart = 1;
        while apart < n {
            for pairs in x.chunks_exact_mut(2 * apart) {
                let (low, high) = pairs.split_at_mut(apart);
                for (a, b) in low.iter_mut().zip(high) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            apart *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::CacheTypes;
    use super::*;
    use trine_formats::types::TypeId;

    #[test]
    fn a_turn_is_a_product_with_signs() {
        let x: Vec<f32> = (0..128).map(|i| (i * 37 % 101) as f32).collect();
        let mut turned = x.clone();
        rotate(&mut turned, 64);
        for (i, &found) in turned.iter().enumerate() {
            let block = &x[i / 64 * 64..][..64];
            let signed = |(j, v): (usize, &f32)| match ((i % 64) & j).count_ones() % 2 {
                0 => *v,
                _ => -*v,
            };
            // numbers below 128 divided by 8 and 64 of them added up are exact
            let sum: f32 = block.iter().enumerate().map(signed).sum();
            assert_eq!(found, sum / 8.0, "element {i}");
        }
    }

    #[test]
    fn quantized_heads_of_whole_64s_are_turned() {
        let layout =
            |size: usize, keys, values| PageLayout::new(1, 1, [size; 2]).with_types(CacheTypes { keys, values }, true);
        let turns = |l: PageLayout| (l.key_turn(), l.value_turn());
        let (f16, q8) = (TypeId::F16, TypeId::Q8_0);
        assert_eq!(turns(layout(128, q8, q8)), (Some(128), Some(64)));
        assert_eq!(turns(layout(192, q8, f16)), (Some(64), None));
        assert_eq!(turns(layout(96, q8, q8)), (None, None));
        assert_eq!(turns(layout(64, TypeId::F32, TypeId::BF16)), (None, None));
    }
}
