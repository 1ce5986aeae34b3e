//! The products that layouts choose from.

use super::super::levels::Levels;
use crate::arch::x86_64::tiles::Tiles;

/// A product on tiles, for any number of tokens but none.
pub(super) trait Product {
    /// Tokens from which on tiles are faster than vectors.
    const FROM: usize;

    /// # Safety
    /// The processor has AVX-512 with VBMI, and the tiles; lengths are as [`crate::shared::packed::Call::check`] has them.
    unsafe fn product<T: Tiles, C: Levels>(group: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]);
}
