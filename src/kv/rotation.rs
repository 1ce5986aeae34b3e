//! Rotation of keys and values before they are quantized.
//!
//! A few large elements of a vector would take the precision of all others in their block. The reference spreads them
//! by the Walsh-Hadamard transform ([`crate::kernels::elements::hadamard`]), which is its own inverse and leaves products
//! of rotated queries and rotated keys as they are, up to rounding. Values are rotated back behind attention.

use super::layout::LayerLayout;
use super::types::is_quantized;

/// The least elements that are rotated together.
pub(crate) const LEAST: usize = 64;

impl LayerLayout {
    /// Elements of a key, and of a query, that are rotated together; `None` where keys are cached as they are.
    pub fn key_turn(&self) -> Option<usize> {
        let turned = self.turned[0] && is_quantized(self.types.keys) && self.head_dim.is_multiple_of(LEAST);
        // the greatest power of two in the size
        turned.then(|| 1 << self.head_dim.trailing_zeros())
    }

    /// Elements of a value, and of an attention output, that are rotated together; `None` where values are cached as
    /// they are.
    pub fn value_turn(&self) -> Option<usize> {
        let turned = self.turned[1] && is_quantized(self.types.values) && self.value_dim.is_multiple_of(LEAST);
        turned.then_some(LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CacheTypes, PageLayout};
    use super::*;
    use trine_formats::types::TypeId;

    #[test]
    fn quantized_heads_of_whole_64s_are_turned() {
        let apart = |sizes, turned, keys, values| {
            PageLayout::new(1, 1, sizes).with_types(CacheTypes { keys, values }, turned).layer(0)
        };
        let layout = |size: usize, keys, values| apart([size; 2], [true; 2], keys, values);
        let turns = |l: LayerLayout| (l.key_turn(), l.value_turn());
        let (f16, q8) = (TypeId::F16, TypeId::Q8_0);
        assert_eq!(turns(layout(128, q8, q8)), (Some(128), Some(64)));
        assert_eq!(turns(layout(192, q8, f16)), (Some(64), None));
        assert_eq!(turns(layout(96, q8, q8)), (None, None));
        assert_eq!(turns(layout(64, TypeId::F32, TypeId::BF16)), (None, None));
        assert_eq!(turns(apart([96, 64], [true; 2], q8, q8)), (None, Some(64)));
        assert_eq!(turns(apart([128; 2], [true, false], q8, q8)), (Some(128), None));
    }
}
