//! The types of [`super::levels`] for AMX.
//!
//! [`limbs`]: where all scales of a block are in one integer, weights are multiplied with them once and for all tokens. A product
//! has up to twelve bits, which are two bytes with a sign, each a tile of its own: the block's integer is 256 times the
//! sum of the upper ones and the sum of the lower.
//!
//! [`units`]: where each 32 weights have a float step of their own, these are half a tile deep, and their sums leave the tiles
//! at once.

use super::check;
use super::level_bytes::{self, multiply as by_vectors};
use super::levels::Levels;
use crate::arch::x86_64::points;
use crate::arch::x86_64::tiles::{Hardware, ROWS as SIDE, Tiles, Tokens};
use crate::packed::Layout;

mod limbs;
mod units;

/// Tokens of a call, over which the expansion of weights is spread; their sums stay in the first-level cache.
const TILE: usize = 256;
/// Tokens behind the last whole tile that vectors take.
const REST: usize = 4;

/// A product on tiles, for any number of tokens but none.
trait Product {
    /// Tokens from which on tiles are faster than vectors.
    const FROM: usize;

    /// # Safety
    /// The processor has AVX-512 with VBMI, and the tiles; lengths are as [`check`] has them.
    unsafe fn product<T: Tiles, C: Levels>(group: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]);
}

const fn layout<P: Product, C: Levels>() -> Layout {
    level_bytes::layout::<C>(multiply::<P, C>, TILE)
}

macro_rules! layouts {
    ($layout:ident: $($name:ident $product:ident $codes:ident)*) => {$(
        pub(in super::super) static $name: Layout = $layout::<$product, points::$codes>();
    )*};
}

macro_rules! all {
    ($layout:ident) => {
        layouts! {
            $layout:
            IQ2_XXS Limbs Iq2Xxs
            IQ2_XS Limbs Iq2Xs
            IQ2_S Limbs Iq2S
            IQ3_XXS Limbs Iq3Xxs
            IQ3_S Limbs Iq3S
            IQ4_XS Units Iq4Xs
        }
    };
}

use limbs::Limbs;
use units::Units;
all!(layout);

fn multiply<P: Product, C: Levels>(group: &[u8], acts: &[u8], n: usize, tokens: usize, ahead: usize, out: &mut [f32]) {
    if tokens < P::FROM {
        return by_vectors::<C>(group, acts, n, tokens, ahead, out);
    }
    let p = const { &layout::<P, C>() };
    check(p, group, acts, n, tokens, out);
    let whole = Tokens::in_tiles(tokens, REST);
    let (acts, rest) = acts.split_at(acts.len() / tokens * whole);
    let (out, out_of_rest) = out.split_at_mut(out.len() / tokens * whole);
    // SAFETY: `layouts` hands the layout out only for an `Isa` with VBMI and tiles; `check` has compared all lengths.
    unsafe { on_tiles::<Hardware, P, C>(group, acts, n, whole, out) }
    if whole < tokens {
        by_vectors::<C>(group, rest, n, tokens - whole, 0, out_of_rest);
    }
}

/// # Safety
/// As [`Product::product`].
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vbmi")]
unsafe fn on_tiles<T: Tiles, P: Product, C: Levels>(
    group: &[u8],
    acts: &[u8],
    n: usize,
    tokens: usize,
    out: &mut [f32],
) {
    // SAFETY: the caller has seen to it.
    unsafe { P::product::<T, C>(group, acts, n, tokens, out) }
}

/// The same with tiles in memory, on a processor with AVX-512 and VBMI.
#[cfg(test)]
pub(super) mod software {
    use super::*;
    use crate::arch::x86_64::tiles::Software;

    const fn layout<P: Product, C: Levels>() -> Layout {
        level_bytes::layout::<C>(multiply::<P, C>, TILE)
    }

    all!(layout);

    fn multiply<P: Product, C: Levels>(group: &[u8], acts: &[u8], n: usize, tokens: usize, _: usize, out: &mut [f32]) {
        check(const { &layout::<P, C>() }, group, acts, n, tokens, out);
        // SAFETY: `software_layouts` hands the layout out only where there is VBMI; `check` has compared all lengths.
        unsafe { on_tiles::<Software, P, C>(group, acts, n, tokens, out) }
    }
}
