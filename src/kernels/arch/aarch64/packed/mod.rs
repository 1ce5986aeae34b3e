//! Kernels of the packed layouts, which are those of other processors byte for byte wherever ARM has a use for them.

use crate::shared::packed::Layout;
use registers::{FOUR, prefetch, store};

/// `$body` for `$i` from 0 on, up to eight times: what is left of it is no loop, so that arrays become registers
/// however long it is.
macro_rules! unrolled {
    ($i:ident in 0..$n:ident $body:block) => {
        unrolled!($i, $n, $body, 0 1 2 3 4 5 6 7)
    };
    ($i:ident, $n:ident, $body:block, $($at:literal)*) => {
        const { assert!($n <= 8) };
        $(if $at < $n {
            let $i = $at;
            $body
        })*
    };
}

mod block32;
mod block32_parts;
mod block32_tile;
mod half;
mod k16;
mod k16_dotprod;
mod k_one;
mod k_tile;
mod lanes;
mod lookup;
mod pair;
mod q2_k;
mod q4_k;
mod q4_k_dotprod;
mod registers;
mod t2;
mod t2_pairs;

/// All packed layouts.
pub(super) const LAYOUTS: &[&[Layout]] = &[
    t2::neon::LAYOUTS,
    t2::dotprod::LAYOUTS,
    t2_pairs::LAYOUTS,
    block32::neon::LAYOUTS,
    block32::dotprod::LAYOUTS,
    block32::i8mm::LAYOUTS,
    q2_k::neon::LAYOUTS,
    q2_k::dotprod::LAYOUTS,
    k16::LAYOUTS,
    k16_dotprod::dotprod::LAYOUTS,
    k16_dotprod::i8mm::LAYOUTS,
    q4_k::LAYOUTS,
    q4_k_dotprod::dotprod::LAYOUTS,
    q4_k_dotprod::i8mm::LAYOUTS,
    half::LAYOUTS,
];

/// Layouts whose products are looked up, element by element and bit by bit.
pub(super) const LOOKUPS: &[&[Layout]] = &[lookup::TL1, lookup::TL2, lookup::QUATERNARY, lookup::BITWISE];
