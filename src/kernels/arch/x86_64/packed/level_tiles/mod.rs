//! The types of [`super::levels`] for AMX.
//!
//! [`limbs`]: where all scales of a block are in one integer, weights are multiplied with them once and for all tokens. A product
//! has up to twelve bits, which are two bytes with a sign, each a tile of its own: the block's integer is 256 times the
//! sum of the upper ones and the sum of the lower.
//!
//! [`units`]: where each 32 weights have a float step of their own, these are half a tile deep, and their sums leave the tiles
//! at once.

use super::level_bytes::{self, multiply as by_vectors};
use super::levels::Levels;
use crate::arch::x86_64::points;
use crate::arch::x86_64::tiles::{Hardware, ROWS as SIDE, Tiles, Tokens};
use crate::proof::{AmxVbmi, Proof};
use crate::shared::packed::{Call, Layout};

use limbs::Limbs;
use product::Product;
use units::Units;

mod limbs;
mod product;
mod units;

/// Tokens of a call, over which the expansion of weights is spread; their sums stay in the first-level cache.
const TILE: usize = 256;
/// Tokens behind the last whole tile that vectors take.
const REST: usize = 4;

const fn layout<P: Product, C: Levels>() -> Layout {
    level_bytes::layout::<C>(AmxVbmi::NEEDS, multiply::<P, C>, TILE)
}

macro_rules! all {
    () => {
        &[
            layout::<Limbs, points::Iq2Xxs>(),
            layout::<Limbs, points::Iq2Xs>(),
            layout::<Limbs, points::Iq2S>(),
            layout::<Limbs, points::Iq3Xxs>(),
            layout::<Limbs, points::Iq3S>(),
            layout::<Units, points::Iq4Xs>(),
        ]
    };
}

pub(super) static LAYOUTS: &[Layout] = all!();

fn multiply<P: Product, C: Levels>(call: Call<'_>) {
    if call.tokens < P::FROM {
        return by_vectors::<C>(call);
    }
    let Call { isa, group, acts, n, tokens, out, .. } = call.check(const { &layout::<P, C>() });
    let whole = Tokens::in_tiles(tokens, REST);
    let (acts, rest) = acts.split_at(acts.len() / tokens * whole);
    let (out, out_of_rest) = out.split_at_mut(out.len() / tokens * whole);
    // SAFETY: `check` has seen the proof of VBMI and tiles and compared all lengths.
    unsafe { on_tiles::<Hardware, P, C>(group, acts, n, whole, out) }
    if whole < tokens {
        by_vectors::<C>(Call { isa, group, acts: rest, n, tokens: tokens - whole, ahead: 0, out: out_of_rest });
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
    use crate::proof::Vbmi;

    const fn layout<P: Product, C: Levels>() -> Layout {
        level_bytes::layout::<C>(Vbmi::NEEDS, multiply::<P, C>, TILE)
    }

    pub static LAYOUTS: &[Layout] = all!();

    fn multiply<P: Product, C: Levels>(call: Call<'_>) {
        let Call { group, acts, n, tokens, out, .. } = call.check(const { &layout::<P, C>() });
        // SAFETY: `check` has seen the proof of VBMI and compared all lengths.
        unsafe { on_tiles::<Software, P, C>(group, acts, n, tokens, out) }
    }
}
